//! Policy, over ports: what may be said of a filter and when. It knows the core and its own
//! ports, and must not know HTTP, SQL or files.
#![allow(missing_docs, unused_variables, clippy::unused_async)]

pub mod answers;
pub mod bulk_load;
pub mod declaration;
pub mod error;
pub mod ports;
pub mod watermark;

use answers::*;
use declaration::Declaration;
use error::ServiceError;
use jiff::Timestamp;
use watermark::Watermark;

pub struct Service {}
impl Service {
    pub fn check(
        &self,
        filter: &str,
        item: &str,
        min_watermark: Option<Watermark>,
    ) -> Result<CheckAnswer, ServiceError> {
        unimplemented!()
    }
    pub fn check_batch<I: AsRef<str>>(
        &self,
        filter: &str,
        items: &[I],
        min_watermark: Option<Watermark>,
    ) -> Result<CheckBatchAnswer, ServiceError> {
        unimplemented!()
    }
    pub async fn add(
        &self,
        filter: &str,
        item: &str,
        expires_at: Option<Timestamp>,
    ) -> Result<AddAnswer, ServiceError> {
        unimplemented!()
    }
    pub async fn add_batch<I: AsRef<str> + Sync>(
        &self,
        filter: &str,
        items: &[(I, Option<Timestamp>)],
    ) -> Result<AddAnswer, ServiceError> {
        unimplemented!()
    }
    pub fn bulk_load(&self, filter: &str) -> Result<bulk_load::BulkLoad<'_>, ServiceError> {
        unimplemented!()
    }
    pub fn list(&self) -> Vec<Description> {
        unimplemented!()
    }
    pub fn describe(&self, filter: &str) -> Result<Description, ServiceError> {
        unimplemented!()
    }
    pub async fn put(
        &self,
        filter: &str,
        declaration: Declaration,
    ) -> Result<PutOutcome, ServiceError> {
        unimplemented!()
    }
    pub async fn delete(&self, filter: &str) -> Result<(), ServiceError> {
        unimplemented!()
    }
    pub fn readiness(&self) -> Readiness {
        unimplemented!()
    }
    /// From now on readiness says no.
    pub fn begin_draining(&self) {
        unimplemented!()
    }
}
