//! stub
#![allow(missing_docs, dead_code)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizing {
    capacity: u64,
    false_positive_rate: f64,
    bit_count: u64,
    hash_count: u32,
}
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SizingError {
    #[error("capacity")]
    CapacityOutOfRange { found: u64 },
    #[error("rate")]
    RateOutOfRange { found: f64 },
}
impl Sizing {
    pub fn new(_capacity: u64, _false_positive_rate: f64) -> Result<Self, SizingError> {
        unimplemented!()
    }
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
    pub fn false_positive_rate(&self) -> f64 {
        self.false_positive_rate
    }
    pub fn bit_count(&self) -> u64 {
        self.bit_count
    }
    pub fn hash_count(&self) -> u32 {
        self.hash_count
    }
    pub fn memory_bytes(&self) -> u64 {
        unimplemented!()
    }
    /// expected fp rate once `items` distinct items are in
    pub fn fp_rate_at(&self, _items: u64) -> f64 {
        unimplemented!()
    }
}
