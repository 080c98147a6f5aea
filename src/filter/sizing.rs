//! From what a filter is declared for to how it is built: (n, p) → (m, k); and the formulas that
//! tell from its bits how it fares.
//!
//! | sign | name |
//! |---|---|
//! | n | capacity, or the number of items |
//! | p | `false_positive_rate` |
//! | m | `bit_count` |
//! | k | `hash_count` |
//!
//! Invariants: a [`Sizing`] is within its bounds; every rate given here is a number in [0, 1].
//! This module must not know how bits are stored or items hashed.
//!
//! Sources:
//!
//! * B. H. Bloom, *Space/Time Trade-offs in Hash Coding with Allowable Errors*, CACM 13(7), 1970.
//! * A. Broder, M. Mitzenmacher, *Network Applications of Bloom Filters: A Survey*, Internet
//!   Mathematics 1(4), 2004; also M. Mitzenmacher, E. Upfal, *Probability and Computing*, §5.5.3.
//! * S. J. Swamidass, P. Baldi, *Mathematical Correction for Fingerprint Similarity Measures to
//!   Improve Chemical Retrieval*, J. Chem. Inf. Model. 47(3), 2007.

use std::f64::consts::LN_2;

/// Bits in a word of storage.
pub(super) const WORD_BITS: u64 = u64::BITS as u64;

/// Bytes in a word of storage.
pub(super) const WORD_BYTES: u64 = size_of::<u64>() as u64;

/// What a filter is sized for, and the bits and hashes that this takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizing {
    capacity: u64,
    false_positive_rate: f64,
    bit_count: u64,
    hash_count: u32,
}

/// Why a filter cannot be sized as asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SizingError {
    /// The capacity is out of bounds.
    #[error(
        "expected a capacity from {} to {} items, found {found}: give the number of items that \
         the filter is to hold",
        Sizing::MIN_CAPACITY,
        Sizing::MAX_CAPACITY
    )]
    CapacityOutOfRange {
        /// The capacity asked for, in items.
        found: u64,
    },
    /// The rate is out of bounds, or no number.
    #[error(
        "expected a false_positive_rate from {:?} to {:?}, found {found:?}: give the share of \
         absent items that may be answered maybe, such as 0.01",
        Sizing::MIN_FALSE_POSITIVE_RATE,
        Sizing::MAX_FALSE_POSITIVE_RATE
    )]
    RateOutOfRange {
        /// The rate asked for.
        found: f64,
    },
}

impl Sizing {
    /// Lowest capacity, in items.
    pub const MIN_CAPACITY: u64 = 1;

    /// Highest capacity, in items. With the lowest rate it takes 4.8 · 10^13 bits, well below
    /// 2^53, so that every number of bits is exact as an `f64`.
    pub const MAX_CAPACITY: u64 = 1_000_000_000_000;

    /// Lowest false positive rate.
    pub const MIN_FALSE_POSITIVE_RATE: f64 = 1e-10;

    /// Highest false positive rate.
    pub const MAX_FALSE_POSITIVE_RATE: f64 = 0.5;

    /// Sizes a filter for `capacity` items at `false_positive_rate`.
    ///
    /// # Errors
    /// When the capacity is not in [`MIN_CAPACITY`](Self::MIN_CAPACITY) to
    /// [`MAX_CAPACITY`](Self::MAX_CAPACITY), or the rate is not in
    /// [`MIN_FALSE_POSITIVE_RATE`](Self::MIN_FALSE_POSITIVE_RATE) to
    /// [`MAX_FALSE_POSITIVE_RATE`](Self::MAX_FALSE_POSITIVE_RATE); NaN is not.
    pub fn new(capacity: u64, false_positive_rate: f64) -> Result<Self, SizingError> {
        if !(Self::MIN_CAPACITY..=Self::MAX_CAPACITY).contains(&capacity) {
            return Err(SizingError::CapacityOutOfRange { found: capacity });
        }
        let rates = Self::MIN_FALSE_POSITIVE_RATE..=Self::MAX_FALSE_POSITIVE_RATE;
        if !rates.contains(&false_positive_rate) {
            return Err(SizingError::RateOutOfRange {
                found: false_positive_rate,
            });
        }
        let bit_count = optimal_bit_count(capacity, false_positive_rate);
        Ok(Self {
            capacity,
            false_positive_rate,
            bit_count,
            hash_count: optimal_hash_count(bit_count, capacity),
        })
    }

    /// The number of items that the filter is sized for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The rate that the filter is sized for, at its capacity.
    #[must_use]
    pub fn false_positive_rate(&self) -> f64 {
        self.false_positive_rate
    }

    /// The number of bits, m: at least 2.
    #[must_use]
    pub fn bit_count(&self) -> u64 {
        self.bit_count
    }

    /// The number of probes of each item, k: at least 1, at most 34.
    #[must_use]
    pub fn hash_count(&self) -> u32 {
        self.hash_count
    }

    /// The memory that the bits take, in bytes: whole 64-bit words.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        memory_bytes(self.bit_count)
    }

    /// The rate to expect once `items` distinct items are in.
    #[must_use]
    pub fn fp_rate_at(&self, items: u64) -> f64 {
        expected_fp_rate(self.bit_count, self.hash_count, items)
    }
}

/// The memory that `bit_count` bits take, in bytes: whole 64-bit words.
#[must_use]
pub fn memory_bytes(bit_count: u64) -> u64 {
    bit_count.div_ceil(WORD_BITS) * WORD_BYTES
}

/// The bits that `capacity` items need: m = ⌈−n · ln p / (ln 2)²⌉ (Broder & Mitzenmacher, §2).
///
/// Takes what [`Sizing::new`] admits.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive and below 2^53 within the bounds of Sizing, and whole after ceil"
)]
pub fn optimal_bit_count(capacity: u64, false_positive_rate: f64) -> u64 {
    (-(capacity as f64) * false_positive_rate.ln() / (LN_2 * LN_2)).ceil() as u64
}

/// The probes that suit `bit_count` bits for `capacity` items: of ⌊(m/n) · ln 2⌋ and
/// ⌈(m/n) · ln 2⌉ the one with the lower rate at capacity, at least 1 (Broder & Mitzenmacher, §2).
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, whole after floor, and a u32 saturates"
)]
pub fn optimal_hash_count(bit_count: u64, capacity: u64) -> u32 {
    let optimum = bit_count as f64 / capacity as f64 * LN_2;
    let below = (optimum.floor() as u32).max(1);
    let above = below.saturating_add(1);
    let rate_with = |hash_count| expected_fp_rate(bit_count, hash_count, capacity);
    if rate_with(above) < rate_with(below) {
        above
    } else {
        below
    }
}

/// The rate to expect of m bits and k probes with n distinct items in: (1 − e^(−kn/m))^k
/// (Bloom; in this form Mitzenmacher & Upfal, §5.5.3).
#[must_use]
pub fn expected_fp_rate(bit_count: u64, hash_count: u32, items: u64) -> f64 {
    let load = f64::from(hash_count) * items as f64 / bit_count as f64;
    // 1 − e^(−x) by expm1, or an almost empty filter would lose its digits.
    fp_rate_from_fill(-(-load).exp_m1(), hash_count)
}

/// The rate of a filter of which the share `fill_ratio` of its bits is set: fill^k, for a check
/// of an absent item looks at k bits anywhere (Broder & Mitzenmacher, §2).
#[must_use]
pub fn fp_rate_from_fill(fill_ratio: f64, hash_count: u32) -> f64 {
    fill_ratio.powi(hash_count.cast_signed())
}

/// The number of distinct items that set `ones` of the bits: −(m/k) · ln(1 − ones/m), to the
/// nearest whole number (Swamidass & Baldi).
///
/// With every bit set the formula is infinite. It is then taken at one bit less: the highest
/// number that the filter can still tell.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, whole after round, and a u64 saturates"
)]
pub fn cardinality_from_ones(bit_count: u64, hash_count: u32, ones: u64) -> u64 {
    let ones_below_all = ones.min(bit_count.saturating_sub(1));
    let fill_ratio = ones_below_all as f64 / bit_count as f64;
    let items = -(bit_count as f64) / f64::from(hash_count) * (-fill_ratio).ln_1p();
    items.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizing_table_of_the_field_is_met_to_the_bit() {
        for (capacity, rate, bit_count, hash_count, memory_bytes) in [
            (1_000, 0.001, 14_378, 10, 1_800),
            (1_000_000, 0.01, 9_585_059, 7, 1_198_136),
            (5_000_000, 0.001, 71_887_938, 10, 8_986_000),
            (100_000_000, 0.001, 1_437_758_757, 10, 179_719_848),
            (1_000_000_000, 0.01, 9_585_058_378, 7, 1_198_132_304),
        ] {
            let sizing = Sizing::new(capacity, rate).unwrap();
            assert_eq!(sizing.bit_count(), bit_count, "m of {capacity} at {rate}");
            assert_eq!(sizing.hash_count(), hash_count, "k of {capacity} at {rate}");
            assert_eq!(sizing.memory_bytes(), memory_bytes);
            assert_eq!(sizing.capacity(), capacity);
            assert!((sizing.false_positive_rate() - rate).abs() < f64::EPSILON);
        }
    }

    #[test]
    fn ten_bits_an_item_take_seven_probes_and_give_eight_in_a_thousand() {
        let (bit_count, capacity) = (10_000_000_000, 1_000_000_000);
        assert_eq!(optimal_hash_count(bit_count, capacity), 7);
        assert_near(expected_fp_rate(bit_count, 7, capacity), 0.0082, 0.000_05);
    }

    #[test]
    fn past_its_capacity_the_rate_grows_as_known() {
        let sizing = Sizing::new(1_000_000, 0.01).unwrap();
        assert!(sizing.fp_rate_at(0).abs() < f64::EPSILON);
        assert_near(sizing.fp_rate_at(1_000_000), 0.01, 0.000_1);
        assert_near(sizing.fp_rate_at(2_000_000), 0.157, 0.002);
        assert_near(sizing.fp_rate_at(3_000_000), 0.436, 0.002);
        assert_near(sizing.fp_rate_at(10_000_000), 0.995, 0.002);
        assert!((sizing.fp_rate_at(u64::MAX) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn no_neighbouring_number_of_probes_gives_a_lower_rate() {
        for capacity in [1, 2, 3, 10, 1_000, 123_457, 1_000_000_000_000] {
            for rate in [0.5, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-6, 1e-10] {
                let sizing = Sizing::new(capacity, rate).unwrap();
                let (m, k) = (sizing.bit_count(), sizing.hash_count());
                assert!((1..=34).contains(&k), "{k} probes for {capacity} at {rate}");
                let found = expected_fp_rate(m, k, capacity);
                assert!(found <= expected_fp_rate(m, k + 1, capacity));
                assert!(k == 1 || found <= expected_fp_rate(m, k - 1, capacity));
            }
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused_with_what_to_do() {
        for capacity in [0, 1_000_000_000_001, u64::MAX] {
            let error = Sizing::new(capacity, 0.01).unwrap_err();
            assert_eq!(error, SizingError::CapacityOutOfRange { found: capacity });
        }
        for rate in [
            0.0,
            -0.01,
            9.9e-11,
            0.500_1,
            1.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ] {
            let error = Sizing::new(1_000, rate).unwrap_err();
            assert!(
                matches!(error, SizingError::RateOutOfRange { .. }),
                "{rate}"
            );
        }
        assert_eq!(
            Sizing::new(0, 0.01).unwrap_err().to_string(),
            "expected a capacity from 1 to 1000000000000 items, found 0: give the number of items \
             that the filter is to hold"
        );
        assert_eq!(
            Sizing::new(1, 1e300).unwrap_err().to_string(),
            "expected a false_positive_rate from 1e-10 to 0.5, found 1e300: give the share of \
             absent items that may be answered maybe, such as 0.01"
        );
    }

    #[test]
    fn the_bounds_themselves_are_taken() {
        let smallest = Sizing::new(1, 0.5).unwrap();
        assert_eq!((smallest.bit_count(), smallest.hash_count()), (2, 1));
        let largest = Sizing::new(1_000_000_000_000, 1e-10).unwrap();
        assert!(largest.bit_count() < 1 << 53);
    }

    #[test]
    fn cardinality_is_zero_when_empty_and_finite_when_saturated() {
        assert_eq!(cardinality_from_ones(9_586, 7, 0), 0);
        let saturated = cardinality_from_ones(9_586, 7, 9_586);
        assert_eq!(saturated, cardinality_from_ones(9_586, 7, 9_585));
        assert_eq!(saturated, 12_555);
    }

    fn assert_near(found: f64, expected: f64, tolerance: f64) {
        assert!(
            (found - expected).abs() <= tolerance,
            "expected {expected} ± {tolerance}, found {found}"
        );
    }
}
