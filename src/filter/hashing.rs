//! stub
#![allow(missing_docs, dead_code)]
#[derive(Clone)]
pub struct MasterKey([u8; 32]);
impl MasterKey {
    pub const BYTES: usize = 32;
    pub fn from_bytes(b: [u8; 32]) -> Self {
        Self(b)
    }
    /// per-filter key, derived with blake3 from the master key and the filter's UUID bytes
    pub fn filter_key(&self, _filter_id: &[u8; 16]) -> HashKey {
        unimplemented!()
    }
}
#[derive(Clone)]
pub struct HashKey([u8; 16]);
impl HashKey {
    pub fn from_bytes(b: [u8; 16]) -> Self {
        Self(b)
    }
    pub fn hash(&self, _canonical: &[u8]) -> ItemHash {
        unimplemented!()
    }
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemHash {
    a: u64,
    b: u64,
}
impl ItemHash {
    pub fn probes(self, _bit_count: u64, _hash_count: u32) -> impl Iterator<Item = u64> {
        std::iter::empty()
    }
}
