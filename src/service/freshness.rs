//! How old knowledge is: the moment up to which something was followed, and its age.
//!
//! Invariant: whatever the clocks do, the age errs on the side of old. This module reads no clock;
//! moments are handed in.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use jiff::Timestamp;

use super::ports::Moment;

/// Stands in `monotonic_ms` for "not followed yet".
const NEVER: u64 = u64::MAX;

/// The moment up to which a store or a source was followed.
#[derive(Debug)]
pub struct Followed {
    monotonic_ms: AtomicU64,
    wall_ms: AtomicI64,
}

impl Followed {
    /// Not followed yet.
    #[must_use]
    pub fn never() -> Self {
        Self {
            monotonic_ms: AtomicU64::new(NEVER),
            wall_ms: AtomicI64::new(0),
        }
    }

    /// Records that everything up to `moment` is known: the sending of the question that was
    /// answered, not the arrival of the answer.
    pub fn set(&self, moment: Moment) {
        // A reader between the two stores sees one old and one new value. Each clock's age is
        // taken for itself and the larger one counts, so that mixture reads as too old.
        self.wall_ms.store(moment.wall_ms, Ordering::Relaxed);
        self.monotonic_ms
            .store(moment.monotonic_ms, Ordering::Release);
    }

    /// The age at `now`, in milliseconds; none when it was never followed.
    ///
    /// The larger of both clocks' ages counts. A wall clock that was set back says nothing about
    /// how much time passed, so the distance counts in either direction.
    #[must_use]
    pub fn age_ms(&self, now: Moment) -> Option<u64> {
        let monotonic_ms = self.monotonic_ms.load(Ordering::Acquire);
        if monotonic_ms == NEVER {
            return None;
        }
        let by_wall = now.wall_ms.abs_diff(self.wall_ms.load(Ordering::Relaxed));
        let by_monotonic = now.monotonic_ms.saturating_sub(monotonic_ms);
        Some(by_monotonic.max(by_wall))
    }

    /// Whether the age at `now` is known and at most `max_ms`.
    #[must_use]
    pub fn is_within(&self, max_ms: u64, now: Moment) -> bool {
        self.age_ms(now).is_some_and(|age_ms| age_ms <= max_ms)
    }

    /// Whether it was followed up to a moment after this one, by the monotonic clock.
    #[must_use]
    pub fn is_later_than(&self, moment: Moment) -> bool {
        let monotonic_ms = self.monotonic_ms.load(Ordering::Acquire);
        monotonic_ms != NEVER && monotonic_ms > moment.monotonic_ms
    }

    /// The moment by the wall clock; none when it was never followed.
    #[must_use]
    pub fn as_of(&self) -> Option<Timestamp> {
        if self.monotonic_ms.load(Ordering::Acquire) == NEVER {
            return None;
        }
        Timestamp::from_millisecond(self.wall_ms.load(Ordering::Relaxed)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment {
        monotonic_ms: 5_000,
        wall_ms: 1_700_000_000_000,
    };

    fn later(monotonic_ms: u64, wall_ms: i64) -> Moment {
        Moment {
            monotonic_ms: START.monotonic_ms + monotonic_ms,
            wall_ms: START.wall_ms + wall_ms,
        }
    }

    #[test]
    fn what_was_never_followed_has_no_age_and_is_within_no_bound() {
        let followed = Followed::never();
        assert_eq!(followed.age_ms(START), None);
        assert_eq!(followed.as_of(), None);
        assert!(!followed.is_within(u64::MAX, START));
    }

    #[test]
    fn the_larger_of_both_ages_counts() {
        let followed = Followed::never();
        followed.set(START);
        assert_eq!(followed.age_ms(later(300, 300)), Some(300));
        assert_eq!(followed.age_ms(later(7, 3_600_000)), Some(3_600_000));
        assert_eq!(followed.age_ms(later(3_600_000, 7)), Some(3_600_000));
    }

    #[test]
    fn a_wall_clock_set_back_reads_as_old() {
        let followed = Followed::never();
        followed.set(START);
        assert!(!followed.is_within(30_000, later(5, -3_600_000)));
    }

    #[test]
    fn the_bound_itself_is_within() {
        let followed = Followed::never();
        followed.set(START);
        assert!(followed.is_within(30_000, later(30_000, 30_000)));
        assert!(!followed.is_within(30_000, later(30_001, 30_000)));
    }
}
