//! The Bloom filter: items are added and checked, and its bits tell how it fares.
//!
//! The layout is the classic one: k probes anywhere in m bits. Its error is exactly fill^k, so
//! that the rate published is true; a layout in blocks of a cache line would be a little faster,
//! and its rate would lie above every simple formula.
//!
//! Invariants:
//!
//! * an item that was added is never told absent, however many threads add and check;
//! * `ones` is the number of set bits as soon as the adds that set them have returned;
//! * every rate is a number in [0, 1].
//!
//! This module must not know where items come from, how they became canonical bytes, or what a
//! verdict is.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bits::SharedBits;
use super::hashing::{HashKey, ItemHash};
use super::sizing::{self, Sizing};

pub use super::bits::AllocationError;

/// Items of a batch that are hashed together, so that their cache misses overlap: enough to keep
/// a core's outstanding loads busy, few enough for their hashes to stay in its first cache.
const GROUP_ITEMS: usize = 32;

/// A Bloom filter that any number of threads add to and check at once.
///
/// An item can be added and never taken out.
#[derive(Debug)]
pub struct BloomFilter {
    key: HashKey,
    sizing: Sizing,
    bits: SharedBits,
    ones: AtomicU64,
}

/// What the bits tell of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// The number of bits, m.
    pub bit_count: u64,
    /// The number of probes of each item, k.
    pub hash_count: u32,
    /// How many of them are set.
    pub ones: u64,
    /// ones / m, in [0, 1].
    pub fill_ratio: f64,
    /// fill^k, in [0, 1]: the share of absent items that a check does not tell absent.
    pub estimated_fp_rate: f64,
    /// −(m/k) · ln(1 − fill): the number of distinct items that were added. Of a filter with
    /// every bit set, the highest number that it can tell.
    pub estimated_cardinality: u64,
}

impl Statistics {
    /// What so many ones tell of a filter of this sizing. O(1).
    #[must_use]
    pub fn from_ones(sizing: &Sizing, ones: u64) -> Self {
        let (bit_count, hash_count) = (sizing.bit_count(), sizing.hash_count());
        let fill_ratio = fill_ratio(sizing, ones);
        Self {
            bit_count,
            hash_count,
            ones,
            fill_ratio,
            estimated_fp_rate: sizing::fp_rate_from_fill(fill_ratio, hash_count),
            estimated_cardinality: sizing::cardinality_from_ones(bit_count, hash_count, ones),
        }
    }
}

fn fill_ratio(sizing: &Sizing, ones: u64) -> f64 {
    ones as f64 / sizing.bit_count() as f64
}

/// Items of one filter on their way into it, hashed under its key: at most [`GROUP_ITEMS`].
#[derive(Debug, Default)]
pub struct Group(Vec<ItemHash>);

impl BloomFilter {
    /// An empty filter. Takes [`Sizing::memory_bytes`] of memory, and no time that grows with it.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn new(sizing: Sizing, key: HashKey) -> Result<Self, AllocationError> {
        Ok(Self {
            bits: SharedBits::zeroed(sizing.bit_count())?,
            ones: AtomicU64::new(0),
            key,
            sizing,
        })
    }

    /// A filter with bits that were set before, under this key and in this sizing; `ones` is how
    /// many of them are set.
    pub(super) fn from_bits(sizing: Sizing, key: HashKey, bits: SharedBits, ones: u64) -> Self {
        Self {
            bits,
            ones: AtomicU64::new(ones),
            key,
            sizing,
        }
    }

    pub(super) fn bits(&self) -> &SharedBits {
        &self.bits
    }

    pub(super) fn key(&self) -> &HashKey {
        &self.key
    }

    /// What the filter is sized for.
    #[must_use]
    pub fn sizing(&self) -> &Sizing {
        &self.sizing
    }

    /// The memory of the bits, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.sizing.memory_bytes()
    }

    /// Adds an item by its canonical bytes. O(k).
    ///
    /// True when at least one bit was new: the item had not been added. False tells only that all
    /// its bits were set. Of threads that add one item at once, several may be told true.
    pub fn add(&self, canonical: &[u8]) -> bool {
        let new_bits = self.set_bits(self.key.hash(canonical));
        self.count_ones(new_bits);
        new_bits > 0
    }

    /// Adds each item as [`add`](Self::add) does, with the cache misses of a group overlapping.
    pub fn add_batch<I>(&self, items: I)
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.for_each_group(items, |group| self.add_group(group));
    }

    /// Adds an item that comes in a row of many: when its turn comes is for the group, which is
    /// given to every call and to [`end_group`](Self::end_group) at last. Until then it may not be
    /// in the filter.
    pub fn add_to_group(&self, canonical: &[u8], group: &mut Group) {
        group.0.push(self.key.hash(canonical));
        if group.0.len() == GROUP_ITEMS {
            self.end_group(group);
        }
    }

    /// Adds what is left in the group.
    pub fn end_group(&self, group: &mut Group) {
        self.add_group(&group.0);
        group.0.clear();
    }

    /// Adds at most [`GROUP_ITEMS`].
    fn add_group(&self, group: &[ItemHash]) {
        // An atomic OR waits for its word alone; reading first brings the words of the whole group
        // into the cache side by side.
        let missing: [bool; GROUP_ITEMS] = std::array::from_fn(|index| {
            group
                .get(index)
                .is_some_and(|&hash| !self.all_bits_set(hash))
        });
        let of_missing = group.iter().zip(missing).filter(|(_, missing)| *missing);
        let new_bits = of_missing.map(|(&hash, _)| self.set_bits(hash)).sum();
        self.count_ones(new_bits);
    }

    /// True when all bits of the item are set: it may have been added. False: it never was. O(k).
    #[must_use]
    pub fn check(&self, canonical: &[u8]) -> bool {
        self.probes(self.key.hash(canonical))
            .all(|position| self.bits.get(position))
    }

    /// Checks each item as [`check`](Self::check) does, with the cache misses of a group
    /// overlapping, and appends one answer an item to `matches`, in order.
    pub fn check_batch<I>(&self, items: I, matches: &mut Vec<bool>)
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        self.for_each_group(items, |group| {
            matches.extend(group.iter().map(|&hash| self.all_bits_set(hash)));
        });
    }

    /// The share of absent items that a check does not tell absent, from the bits: fill^k, in
    /// [0, 1]. Cheap enough for every request: it counts no bits.
    #[must_use]
    pub fn estimated_fp_rate(&self) -> f64 {
        let fill_ratio = fill_ratio(&self.sizing, self.ones.load(Ordering::Relaxed));
        sizing::fp_rate_from_fill(fill_ratio, self.sizing.hash_count())
    }

    /// What the bits tell, all of one moment. O(1).
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics::from_ones(&self.sizing, self.ones.load(Ordering::Relaxed))
    }

    fn probes(&self, hash: ItemHash) -> impl Iterator<Item = u64> {
        hash.probes(self.sizing.bit_count(), self.sizing.hash_count())
    }

    /// Sets the bits of an item and gives how many were new, which are to be counted.
    fn set_bits(&self, hash: ItemHash) -> u64 {
        self.probes(hash)
            .map(|position| u64::from(self.bits.set(position)))
            .sum()
    }

    /// Once a group and not once an item: threads that add at once wait for this word.
    fn count_ones(&self, new_bits: u64) {
        if new_bits > 0 {
            self.ones.fetch_add(new_bits, Ordering::Relaxed);
        }
    }

    /// Reads all bits of an item, whatever the first ones say: without a branch between them the
    /// loads of one item, and of the next, run side by side.
    fn all_bits_set(&self, hash: ItemHash) -> bool {
        self.probes(hash)
            .fold(true, |all, position| all & self.bits.get(position))
    }

    /// Hashes the items and hands the hashes on, [`GROUP_ITEMS`] at a time.
    fn for_each_group<I>(&self, items: I, mut with_group: impl FnMut(&[ItemHash]))
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let mut items = items.into_iter();
        let mut group = Vec::with_capacity(GROUP_ITEMS);
        loop {
            group.clear();
            let next = items.by_ref().take(GROUP_ITEMS);
            group.extend(next.map(|item| self.key.hash(item.as_ref())));
            if group.is_empty() {
                return;
            }
            with_group(&group);
        }
    }
}

#[cfg(test)]
mod tests;
