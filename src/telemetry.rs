//! stub
#![allow(missing_docs, unused_variables)]
use crate::filter::verdict::Verdict;
pub struct FilterMeters;
pub enum Road {
    Add,
    AddBatch,
    BulkLoad,
}
impl FilterMeters {
    pub fn new(filter: &str) -> Self {
        Self
    }
    pub fn checked(&self, v: Verdict) {}
    pub fn checked_many(&self, v: Verdict, n: u64) {}
    pub fn added(&self, r: Road, n: u64) {}
}
pub fn record_load(filter: &str, source: &str, rows: u64, seconds: f64) {}
pub fn record_poll(seconds: f64) {}
pub fn record_store_error() {}
