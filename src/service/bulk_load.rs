//! stub: being written
#![allow(missing_docs, unused_variables, clippy::unused_async)]
use super::{Service, answers::BulkLoadAnswer, error::ServiceError};
use jiff::Timestamp;
pub struct BulkLoad<'s> {
    service: &'s Service,
}
impl BulkLoad<'_> {
    /// Takes one item (blank ones are counted and passed over). Waits for the store as needed.
    pub async fn push(
        &mut self,
        item: &str,
        expires_at: Option<Timestamp>,
    ) -> Result<(), ServiceError> {
        unimplemented!()
    }
    /// A blank line.
    pub fn push_blank(&mut self) {
        unimplemented!()
    }
    /// Makes durable what was pushed so far, and says how far the load came. To be called at the end and when a line is refused.
    pub async fn finish(self) -> Result<BulkLoadAnswer, ServiceError> {
        unimplemented!()
    }
}
