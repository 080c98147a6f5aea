//! The terms of an item: until when it is kept, and which of its tokens are revoked.
//!
//! Invariant: nothing here lets in a token that anybody has revoked. Of several terms for one item
//! those hold that keep it longest and revoke most, and no rounding makes a time of revocation
//! earlier, or a token younger.

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

/// The terms that an item is added under.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// When the item may be forgotten; none means never.
    pub expires_at: Option<Timestamp>,
    /// Its tokens that were issued at this time or before are revoked; none means all of them,
    /// whenever they were issued.
    pub revoke_issued_until: Option<Timestamp>,
}

impl Terms {
    /// What holds of an item that was added under both: of each the later time, and none beats any.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self {
            expires_at: later(self.expires_at, other.expires_at),
            revoke_issued_until: later(self.revoke_issued_until, other.revoke_issued_until),
        }
    }
}

fn later(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    Some(one?.max(other?))
}

/// Which tokens of an item are revoked: the more, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revoked {
    /// Those that were issued at this time or before.
    IssuedUntil(Timestamp),
    /// All, whenever they were issued.
    All,
}

impl Revoked {
    /// Of a time as [`Terms`] have it.
    #[must_use]
    pub fn until(revoke_issued_until: Option<Timestamp>) -> Self {
        revoke_issued_until.map_or(Self::All, Self::IssuedUntil)
    }

    /// Whether a token that was issued at this time is revoked. None where that depends on the time
    /// and the time is not given. It is taken in whole microseconds downwards, as stores keep times in
    /// whole microseconds upwards.
    #[must_use]
    pub fn includes(self, issued_at: Option<Timestamp>) -> Option<bool> {
        match self {
            Self::All => Some(true),
            Self::IssuedUntil(until) => issued_at.map(|at| whole_microseconds(at) <= until),
        }
    }
}

fn whole_microseconds(time: Timestamp) -> Timestamp {
    let downwards = TimestampRound::new()
        .smallest(Unit::Microsecond)
        .mode(RoundMode::Floor);
    // The first moment of all is a whole one, so that there is always one to go down to.
    time.round(downwards).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn seconds(unix_s: i64) -> Option<Timestamp> {
        Some(Timestamp::from_second(unix_s).unwrap())
    }

    #[test]
    fn of_two_terms_the_later_times_hold_and_none_beats_any() {
        for (one, other, both) in [
            (seconds(5), seconds(9), seconds(9)),
            (seconds(-9), seconds(-5), seconds(-5)),
            (seconds(5), None, None),
            (None, None, None),
        ] {
            let terms = |expires_at, revoke_issued_until| Terms {
                expires_at,
                revoke_issued_until,
            };
            for (one, other) in [(one, other), (other, one)] {
                let joined = terms(one, seconds(1)).joined(terms(other, seconds(1)));
                assert_eq!(joined, terms(both, seconds(1)));
                let joined = terms(seconds(1), one).joined(terms(seconds(1), other));
                assert_eq!(joined, terms(seconds(1), both));
            }
        }
    }

    #[test]
    fn what_was_issued_until_the_time_is_revoked_and_what_was_issued_later_is_not() {
        let until = Revoked::IssuedUntil(at("2030-01-01T00:00:00.000001Z"));
        for (issued_at, is_revoked) in [
            ("2030-01-01T00:00:00Z", true),
            ("2030-01-01T00:00:00.000001Z", true),
            // Rounded down: within the microsecond of the time.
            ("2030-01-01T00:00:00.000001999Z", true),
            ("2030-01-01T00:00:00.000002Z", false),
            ("2030-01-01T00:00:01Z", false),
        ] {
            let found = until.includes(Some(at(issued_at)));
            assert_eq!(found, Some(is_revoked), "{issued_at}");
        }
        let before_1970 = Revoked::IssuedUntil(at("1969-12-31T23:59:59.000001Z"));
        let just_before = at("1969-12-31T23:59:59.000001999Z");
        assert_eq!(before_1970.includes(Some(just_before)), Some(true));
        let after = at("1969-12-31T23:59:59.000002Z");
        assert_eq!(before_1970.includes(Some(after)), Some(false));
        assert_eq!(until.includes(None), None);
    }

    #[test]
    fn without_a_time_all_are_revoked_and_the_ends_of_time_are_times() {
        assert_eq!(Revoked::until(None), Revoked::All);
        for issued_at in [None, Some(Timestamp::MIN), Some(Timestamp::MAX)] {
            assert_eq!(Revoked::All.includes(issued_at), Some(true));
        }
        let earliest = Revoked::until(Some(Timestamp::MIN));
        assert_eq!(earliest.includes(Some(Timestamp::MIN)), Some(true));
        assert_eq!(earliest.includes(Some(Timestamp::MAX)), Some(false));
        let latest = Revoked::until(Some(Timestamp::MAX));
        assert_eq!(latest.includes(Some(Timestamp::MAX)), Some(true));
    }

    #[test]
    fn who_revokes_more_is_the_greater_one() {
        let (early, late) = (
            at("2030-01-01T00:00:00Z"),
            at("2030-01-01T00:00:00.000001Z"),
        );
        assert!(Revoked::IssuedUntil(early) < Revoked::IssuedUntil(late));
        assert!(Revoked::IssuedUntil(Timestamp::MAX) < Revoked::All);
        assert!(None < Some(Revoked::IssuedUntil(Timestamp::MIN)));
    }
}
