//! Shared bit storage: the one place that knows how bits lie in memory and how threads share them.
//!
//! Invariants: a bit that is set stays set, for the only write is an atomic OR: there is no clear
//! and no delete; each bit that turns from 0 to 1 is reported as new to exactly one caller.
//! This module must not know what the bits mean.
//!
//! Every access is `Relaxed`. The bits guard no other memory, so nothing has to be published
//! along with them. What must hold is that a check that happens after an acknowledged add sees its
//! bits. "After" is made by whatever carries the acknowledgement from one thread to another (a
//! channel, a lock, the system's socket buffers), and each of these orders memory; from there on
//! coherence of the single word obliges every load to see the bit. A check that runs beside the
//! add may see some of its bits: it was not acknowledged yet.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bitvec::boxed::BitBox;
use bitvec::order::Lsb0;
use zerocopy::FromZeros as _;

use super::sizing::{self, WORD_BITS};

/// The memory for the bits could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected {bytes} bytes of memory for the bits of a filter, found less: lower its capacity, \
     raise its false_positive_rate, or give the process more memory"
)]
pub struct AllocationError {
    /// The memory asked for, in bytes.
    pub bytes: u64,
}

/// Bits that any number of threads set and read at once.
pub(super) struct SharedBits(BitBox<AtomicU64, Lsb0>);

impl SharedBits {
    /// Room for `bit_count` bits, all 0, in whole words.
    ///
    /// The system hands out zeroed pages at their first touch, so this takes no time that grows
    /// with `bit_count`.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub(super) fn zeroed(bit_count: u64) -> Result<Self, AllocationError> {
        let refused = || AllocationError {
            bytes: sizing::memory_bytes(bit_count),
        };
        // `vec![0; n]` would end the process where this says no.
        let words = usize::try_from(bit_count.div_ceil(WORD_BITS))
            .ok()
            .and_then(|words| <[AtomicU64]>::new_box_zeroed_with_elems(words).ok())
            .ok_or_else(refused)?;
        BitBox::try_from_boxed_slice(words)
            .map(Self)
            .map_err(|_| refused())
    }

    /// Whether the bit at `position` is set. Panics when it is past the end.
    pub(super) fn get(&self, position: u64) -> bool {
        let (word, mask) = self.locate(position);
        word.load(Ordering::Relaxed) & mask != 0
    }

    /// Sets the bit at `position`; true when it was 0 and this call, of all that run at once, is
    /// the one that set it. Panics when it is past the end.
    pub(super) fn set(&self, position: u64) -> bool {
        let (word, mask) = self.locate(position);
        // A set bit stays set, so one that is seen needs no write: an item that is added again
        // takes no cache line from the other cores.
        word.load(Ordering::Relaxed) & mask == 0
            && word.fetch_or(mask, Ordering::Relaxed) & mask == 0
    }

    /// Counts the set bits one word after the other. O(`bit_count`).
    #[cfg(test)]
    pub(super) fn recount(&self) -> u64 {
        self.0.count_ones() as u64
    }

    // The cast loses nothing: bitvec has 64-bit words on 64-bit targets only.
    fn locate(&self, position: u64) -> (&AtomicU64, u64) {
        let word = &self.0.as_raw_slice()[(position / WORD_BITS) as usize];
        (word, 1 << (position % WORD_BITS))
    }
}

impl fmt::Debug for SharedBits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bits are many, and a guess at the items.
        formatter.write_str("SharedBits(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_new_once_and_stays_set() {
        let bits = SharedBits::zeroed(130).unwrap();
        for position in [0, 63, 64, 129] {
            assert!(!bits.get(position));
            assert!(bits.set(position));
            assert!(!bits.set(position));
            assert!(bits.get(position));
        }
        assert_eq!(bits.recount(), 4);
        // The order in which bitvec numbers the bits is ours.
        assert!(bits.0.iter_ones().eq([0, 63, 64, 129]));
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error_that_says_what_to_do() {
        // 512 TiB are more than a process can address; the largest count is more than there is.
        for (bit_count, bytes) in [(1 << 52, 1 << 49), (u64::MAX, 1 << 61)] {
            let error = SharedBits::zeroed(bit_count).unwrap_err();
            assert_eq!(error, AllocationError { bytes });
            assert!(error.to_string().contains("lower its capacity"));
        }
    }
}
