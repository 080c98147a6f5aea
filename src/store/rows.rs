//! Rows on their way into a table: digested, each (filter, item) once, in the order of the
//! primary key.
//!
//! It must not know which database they go to.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use crate::service::ports::{FilterId, NewRow};
use crate::service::terms::Terms;

/// SHA-256.
pub(super) type Digest = [u8; 32];

/// The digest of an item, or of its canonical bytes.
pub(super) fn digest(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// A row as a table keeps it.
#[derive(Clone)]
pub(super) struct DigestedRow<'a> {
    /// The filter that it belongs to.
    pub(super) filter: FilterId,
    /// The item as it came.
    pub(super) item: &'a [u8],
    /// SHA-256 of `item`.
    pub(super) item_digest: Digest,
    /// SHA-256 of the canonical bytes.
    pub(super) canonical_digest: Digest,
    /// The version of the profile that made the canonical bytes.
    pub(super) profile_version: i32,
    /// Until when it is kept, and which of its tokens are revoked.
    pub(super) terms: Terms,
}

/// Digests the rows and merges those of the same filter and item, with their terms joined.
/// `ON CONFLICT DO UPDATE` cannot touch a row twice in one statement, and rows that are locked in one
/// order by every writer cannot deadlock.
///
/// O(n log n) in the number of rows.
pub(super) fn digested(rows: &[NewRow]) -> Vec<DigestedRow<'_>> {
    let mut digested: Vec<_> = rows
        .iter()
        .map(|row| DigestedRow {
            filter: row.filter,
            item: &row.item,
            item_digest: digest(&row.item),
            canonical_digest: digest(&row.canonical),
            // A profile's version is a small number written by hand.
            profile_version: i32::try_from(row.profile_version).unwrap_or(i32::MAX),
            terms: row.terms,
        })
        .collect();
    // Stable, so that of two equal rows the later one's canonical digest is kept, as if they
    // had come in two calls.
    digested.sort_by(key_order);
    digested.dedup_by(|later, kept| {
        let same = key_order(later, kept) == Ordering::Equal;
        if same {
            kept.terms = kept.terms.joined(later.terms);
            kept.canonical_digest = later.canonical_digest;
            kept.profile_version = later.profile_version;
        }
        same
    });
    digested
}

fn key_order(one: &DigestedRow<'_>, other: &DigestedRow<'_>) -> Ordering {
    (one.filter, one.item_digest).cmp(&(other.filter, other.item_digest))
}

/// Microseconds since 1970-01-01 UTC, rounded up: an item is never forgotten too early, and none of
/// its tokens is let in that is revoked.
pub(super) fn unix_us_rounded_up(time: Timestamp) -> i64 {
    let us = time.as_microsecond();
    let has_rest = Timestamp::from_microsecond(us)
        .is_ok_and(|floor| time.duration_since(floor) > SignedDuration::ZERO);
    us + i64::from(has_rest)
}

/// A time span in microseconds. No configuration allows one near the bound, which only keeps a
/// database's arithmetic within its range.
pub(super) fn leeway_us(leeway: SignedDuration) -> i64 {
    const LONGEST_US: i128 = 1_000 * 366 * 86_400 * 1_000_000;
    let us = leeway.as_micros().clamp(0, LONGEST_US);
    i64::try_from(us).unwrap_or(i64::MAX)
}

/// The filters that rows name, each once, in order.
pub(super) fn filters_named(rows: &[DigestedRow<'_>]) -> Vec<FilterId> {
    let mut filters: Vec<_> = rows.iter().map(|row| row.filter).collect();
    // The rows come in the order of their filters.
    filters.dedup();
    filters
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// A row whose both times are so many seconds after 1970.
    fn row(filter: u128, item: &str, unix_s: Option<i64>) -> NewRow {
        let time = unix_s.map(|s| Timestamp::from_second(s).unwrap());
        NewRow {
            filter: FilterId(Uuid::from_u128(filter)),
            item: item.as_bytes().into(),
            canonical: item.as_bytes().into(),
            profile_version: 1,
            terms: Terms {
                expires_at: time,
                revoke_issued_until: time,
            },
        }
    }

    #[test]
    fn of_the_same_item_the_later_times_stay_and_none_beats_any() {
        for (one, other, both) in [(Some(5), Some(9), Some(9)), (None, Some(9), None)] {
            for (one, other) in [(one, other), (other, one)] {
                let rows = [row(1, "a", one), row(1, "a", other)];
                let merged = digested(&rows);
                assert_eq!(merged.len(), 1);
                assert_eq!(merged[0].terms, row(1, "a", both).terms);
            }
        }
    }

    #[test]
    fn rows_stand_in_the_order_of_filter_and_digest_and_filters_are_named_once() {
        let rows = [row(2, "a", None), row(1, "b", None), row(2, "c", None)];
        let merged = digested(&rows);
        assert_eq!(merged.len(), 3);
        assert!(merged.is_sorted_by(|one, next| key_order(one, next) == Ordering::Less));
        assert_eq!(
            filters_named(&merged),
            [1, 2].map(|id| FilterId(Uuid::from_u128(id)))
        );
    }

    #[test]
    fn a_time_between_two_microseconds_goes_to_the_later_one() {
        let between = Timestamp::from_nanosecond(1_001).unwrap();
        assert_eq!(unix_us_rounded_up(between), 2);
        let before_1970 = Timestamp::from_nanosecond(-1_001).unwrap();
        assert_eq!(unix_us_rounded_up(before_1970), -1);
        let exact = Timestamp::from_microsecond(7).unwrap();
        assert_eq!(unix_us_rounded_up(exact), 7);
    }
}
