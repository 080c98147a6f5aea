//! A cursor: how far a store or a source was followed.
//!
//! A place alone cannot say it: whoever takes place 100 may commit after whoever takes place 101.
//! So a cursor is the picture of one moment: every place below [`Cursor::next`] is seen, except
//! those that were still in progress then. PostgreSQL gives it as `pg_current_snapshot()`; a store
//! with one writer has nothing in progress.
//!
//! Invariant: what a cursor reaches was committed before the moment that it stands for.
//! This module must not know which database is followed.

use super::ports::Place;

/// Within what places count: those of another timeline say nothing here.
///
/// It changes whenever a database may hand out places again that it had handed out before: after a
/// crash, a failover, or a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timeline(pub [u8; 16]);

/// How far a store or a source was followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// What its places count within.
    pub timeline: Timeline,
    /// The stretch of the timeline that it was taken in, for a store that can be put back to an
    /// earlier state; 0 where there is no such thing.
    pub segment: u64,
    /// Every place at or above this was still to come.
    pub next: Place,
    /// Places below `next` that were not committed yet, in rising order.
    pub in_progress: Box<[Place]>,
}

impl Cursor {
    /// The most places in progress that are read back: more than PostgreSQL has sessions.
    const MAX_IN_PROGRESS: usize = 1 << 18;
    const FIXED_BYTES: usize = 16 + 8 + 8;

    /// Whether what was committed at `place` is seen.
    ///
    /// Logarithmic in the number of places in progress.
    #[must_use]
    pub fn reaches(&self, timeline: Timeline, place: Place) -> bool {
        self.timeline == timeline
            && place < self.next
            && self.in_progress.binary_search(&place).is_err()
    }

    /// The bytes that [`Cursor::decode`] reads: timeline, segment, `next`, then each place in
    /// progress, numbers big-endian.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::FIXED_BYTES + 8 * self.in_progress.len());
        bytes.extend_from_slice(&self.timeline.0);
        bytes.extend_from_slice(&self.segment.to_be_bytes());
        bytes.extend_from_slice(&self.next.0.to_be_bytes());
        for place in &self.in_progress {
            bytes.extend_from_slice(&place.0.to_be_bytes());
        }
        bytes
    }

    /// Reads a cursor; none when the bytes are none that [`Cursor::encode`] gives.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (timeline, rest) = bytes.split_first_chunk::<16>()?;
        let (segment, rest) = rest.split_first_chunk::<8>()?;
        let (next, rest) = rest.split_first_chunk::<8>()?;
        let (places, left_over) = rest.as_chunks::<8>();
        if !left_over.is_empty() || places.len() > Self::MAX_IN_PROGRESS {
            return None;
        }
        let next = Place(u64::from_be_bytes(*next));
        let in_progress: Box<[Place]> = places
            .iter()
            .map(|place| Place(u64::from_be_bytes(*place)))
            .collect();
        let in_order = in_progress.is_sorted_by(|one, other| one < other)
            && in_progress.last().is_none_or(|last| *last < next);
        in_order.then_some(Self {
            timeline: Timeline(*timeline),
            segment: u64::from_be_bytes(*segment),
            next,
            in_progress,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Timeline = Timeline([1; 16]);
    const ELSEWHERE: Timeline = Timeline([2; 16]);

    fn cursor(next: u64, in_progress: &[u64]) -> Cursor {
        Cursor {
            timeline: HERE,
            segment: 7,
            next: Place(next),
            in_progress: in_progress.iter().copied().map(Place).collect(),
        }
    }

    #[test]
    fn what_was_in_progress_or_still_to_come_is_not_reached() {
        let cursor = cursor(104, &[100, 102]);
        let reached: Vec<_> = (98..106)
            .filter(|place| cursor.reaches(HERE, Place(*place)))
            .collect();
        assert_eq!(reached, [98, 99, 101, 103]);
    }

    #[test]
    fn a_place_of_another_timeline_is_never_reached() {
        assert!(!cursor(104, &[]).reaches(ELSEWHERE, Place(1)));
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        for cursor in [cursor(0, &[]), cursor(u64::MAX, &[3, 9]), cursor(1, &[0])] {
            assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor));
        }
    }

    #[test]
    fn what_no_cursor_encodes_to_is_not_read() {
        let bytes = cursor(104, &[100, 102]).encode();
        for end in 0..bytes.len() {
            let is_whole =
                (end >= Cursor::FIXED_BYTES) && (end - Cursor::FIXED_BYTES).is_multiple_of(8);
            assert_eq!(Cursor::decode(&bytes[..end]).is_some(), is_whole, "{end}");
        }
        assert_eq!(Cursor::decode(&cursor(104, &[102, 100]).encode()), None);
        assert_eq!(Cursor::decode(&cursor(104, &[100, 100]).encode()), None);
        assert_eq!(Cursor::decode(&cursor(104, &[104]).encode()), None);
    }
}
