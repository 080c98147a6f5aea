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
use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::ParallelSliceMut as _;
use zerocopy::{FromZeros as _, IntoBytes as _};

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

/// Words that are copied out at a time: 256 KiB, so that whoever looks at them next finds
/// them in the second cache.
const CHUNK_WORDS: usize = 1 << 15;

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

    /// Room for `bit_count` bits, which `fill` fills on all cores: it is given the offset of a
    /// segment in bytes, and the segment, `segment_bytes` long but for the last one, for
    /// little-endian words as [`read_out`](Self::read_out) gives them. The segments are the memory
    /// itself: what `fill` writes there is copied nowhere else. What it gives comes back in their
    /// order.
    ///
    /// # Errors
    /// When the system refuses the memory, and what `fill` fails with.
    pub(super) fn filled<T: Send, E: From<AllocationError> + Send>(
        bit_count: u64,
        segment_bytes: usize,
        fill: impl Fn(u64, &mut [u8]) -> Result<T, E> + Sync,
    ) -> Result<(Self, Vec<T>), E> {
        let mut bits = Self::zeroed(bit_count)?;
        let segment_words = segment_bytes / size_of::<u64>();
        let segments = bits.0.as_raw_mut_slice().par_chunks_mut(segment_words);
        let filled = segments.enumerate().map(|(number, words)| {
            let filled = fill((number * segment_bytes) as u64, words.as_mut_bytes())?;
            for word in words {
                let word = word.get_mut();
                *word = u64::from_le(*word);
            }
            Ok(filled)
        });
        let filled = filled.collect::<Result<Vec<T>, E>>()?;
        Ok((bits, filled))
    }

    /// Hands out all words a part at a time, in order, as the little-endian bytes of 64-bit words:
    /// bit number `i` is bit `i % 8`, counted from the lowest, of byte `i / 8`. What is set
    /// meanwhile may or may not be among them; what was set before is.
    ///
    /// # Errors
    /// What `take` fails with.
    pub(super) fn read_out<E>(
        &self,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut part = Vec::with_capacity(CHUNK_WORDS);
        for words in self.0.as_raw_slice().chunks(CHUNK_WORDS) {
            part.clear();
            part.extend(
                words
                    .iter()
                    .map(|word| word.load(Ordering::Relaxed).to_le()),
            );
            take(part.as_bytes())?;
        }
        Ok(())
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

/// Counts the set bits of whole words, as [`SharedBits::read_out`] gives them.
pub(super) fn count_ones(words: &[u8]) -> u64 {
    let (words, _) = words.as_chunks::<8>();
    words
        .iter()
        .map(|word| u64::from(u64::from_le_bytes(*word).count_ones()))
        .sum()
}

/// Whether the last of the words of `bit_count` bits has ones past the last bit. No position ever
/// leads there.
pub(super) fn has_stray_ones(bit_count: u64, last_word: [u8; 8]) -> bool {
    let used_bits = bit_count % WORD_BITS;
    used_bits != 0 && u64::from_le_bytes(last_word) >> used_bits != 0
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
    fn what_is_read_out_fills_other_bits_with_the_same() {
        for bit_count in [2, 64, 130, 3 * 64 * CHUNK_WORDS as u64 + 65] {
            let bits = SharedBits::zeroed(bit_count).unwrap();
            let mut positions = vec![0, 1, bit_count / 2, bit_count - 1];
            positions.dedup();
            for position in &positions {
                bits.set(*position);
            }
            let mut bytes = Vec::new();
            let taken: Result<(), AllocationError> = bits.read_out(|part| {
                bytes.extend_from_slice(part);
                Ok(())
            });
            taken.unwrap();
            assert_eq!(bytes.len() as u64, sizing::memory_bytes(bit_count));
            for position in &positions {
                assert_ne!(bytes[(position / 8) as usize] & (1 << (position % 8)), 0);
            }
            assert_eq!(count_ones(&bytes), bits.recount());
            let segment_bytes = 1 << 12;
            let (filled, offsets) =
                SharedBits::filled(bit_count, segment_bytes, |offset, words| {
                    words
                        .copy_from_slice(&bytes[usize::try_from(offset).unwrap()..][..words.len()]);
                    Ok::<u64, AllocationError>(offset)
                })
                .unwrap();
            let in_order = (0..bytes.len() as u64).step_by(segment_bytes);
            assert!(offsets.into_iter().eq(in_order));
            assert_eq!(filled.recount(), bits.recount());
            assert!(positions.iter().all(|position| filled.get(*position)));
        }
    }

    #[test]
    fn ones_past_the_last_bit_are_seen() {
        assert!(!has_stray_ones(64, [255; 8]));
        assert!(!has_stray_ones(65, [1, 0, 0, 0, 0, 0, 0, 0]));
        assert!(has_stray_ones(65, [2, 0, 0, 0, 0, 0, 0, 0]));
        assert!(has_stray_ones(127, [0, 0, 0, 0, 0, 0, 0, 128]));
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
