//! stub
#![allow(missing_docs, dead_code)]
use super::hashing::HashKey;
use super::sizing::Sizing;
pub struct BloomFilter {
    key: HashKey,
    sizing: Sizing,
}
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    pub bit_count: u64,
    pub ones: u64,
    pub fill_ratio: f64,
    pub estimated_fp_rate: f64,
    pub estimated_cardinality: u64,
}
#[derive(Debug, thiserror::Error)]
#[error("allocation")]
pub struct AllocationError {
    pub bytes: u64,
}
impl Statistics {
    pub fn empty(_s: &Sizing) -> Self {
        unimplemented!()
    }
}
impl BloomFilter {
    pub fn new(sizing: Sizing, key: HashKey) -> Result<Self, AllocationError> {
        Ok(Self { key, sizing })
    }
    pub fn sizing(&self) -> &Sizing {
        &self.sizing
    }
    pub fn memory_bytes(&self) -> u64 {
        unimplemented!()
    }
    /// true when at least one bit was new
    pub fn add(&self, _canonical: &[u8]) -> bool {
        unimplemented!()
    }
    /// true when all bits are set
    pub fn check(&self, _canonical: &[u8]) -> bool {
        unimplemented!()
    }
    /// appends one bool an item, in order
    pub fn check_batch<I>(&self, _items: I, _matches: &mut Vec<bool>)
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        unimplemented!()
    }
    pub fn add_batch<I>(&self, _items: I)
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        unimplemented!()
    }
    pub fn estimated_fp_rate(&self) -> f64 {
        unimplemented!()
    }
    pub fn statistics(&self) -> Statistics {
        unimplemented!()
    }
}
