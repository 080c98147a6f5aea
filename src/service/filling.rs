//! Takes the rows of a load into a generation.
//!
//! Invariant: a row is passed over only for being NULL, blank or past its expiry and the leeway by
//! the database's own clock, and each of these is counted. No other row is, however odd it looks.

use std::sync::atomic::Ordering;

use jiff::{SignedDuration, Timestamp};

use super::feed::Feed;
use super::generation::Generation;
use super::ports::RowSink;

/// Sets the rows of one load in a generation.
pub struct Filling<'a> {
    generation: &'a Generation,
    feed: &'a Feed,
    leeway: SignedDuration,
    /// Rows that expire before this are forgotten.
    forget_before: Timestamp,
}

impl<'a> Filling<'a> {
    /// For the load of `feed`, which is one of the generation's. Nothing is forgotten until the
    /// cut has told its time.
    #[must_use]
    pub fn new(generation: &'a Generation, feed: &'a Feed, leeway: SignedDuration) -> Self {
        feed.load_begins();
        Self {
            generation,
            feed,
            leeway,
            forget_before: Timestamp::MIN,
        }
    }
}

/// Each counter has this one writer; readers may see it a moment late.
fn count(counter: &std::sync::atomic::AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl RowSink for Filling<'_> {
    fn begin(&mut self, rows_expected: u64, database_now: Timestamp) {
        self.feed
            .rows
            .expected
            .store(rows_expected, Ordering::Relaxed);
        self.forget_before = database_now
            .checked_sub(self.leeway)
            .unwrap_or(Timestamp::MIN);
    }

    fn row(&mut self, item: Option<&[u8]>, expires_at: Option<Timestamp>) {
        let rows = &self.feed.rows;
        count(&rows.done);
        let Some(canonical) =
            item.and_then(|item| self.generation.declaration.profile.canonicalize(item))
        else {
            count(&rows.blank);
            return;
        };
        if expires_at.is_some_and(|expires_at| expires_at < self.forget_before) {
            count(&rows.expired);
            return;
        }
        if canonical.odd {
            count(&rows.odd);
        }
        self.generation.bloom.add(&canonical.bytes);
    }
}
