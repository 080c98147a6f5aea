//! Takes the rows of a load into the generations of a filter.
//!
//! Invariant: a row is passed over only for being NULL, blank or past its expiry and the leeway by
//! the database's own clock, and each of these is counted. No other row is, however odd it looks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::{SignedDuration, Timestamp};

use super::feed::Feed;
use super::generation::Generation;
use super::ports::RowSink;
use crate::filter::bloom::Group;

/// Rows between two reports of how far the load has come.
const ROWS_A_REPORT: u64 = 1_024;

/// Which feed of a generation a load is for.
#[derive(Debug, Clone, Copy)]
pub enum FeedOf {
    /// The store.
    Store,
    /// The source at this index.
    Source(usize),
}

impl FeedOf {
    /// The feed.
    #[must_use]
    pub fn of(self, generation: &Generation) -> &Feed {
        match self {
            Self::Store => &generation.store,
            Self::Source(index) => &generation.sources[index],
        }
    }
}

/// Sets the rows of one load.
pub struct Filling {
    /// Each with the rows that are on their way into it.
    generations: Vec<(Arc<Generation>, Group)>,
    feed: FeedOf,
    leeway: SignedDuration,
    /// Rows that expire before this are forgotten.
    forget_before: Timestamp,
    done: u64,
    blank: u64,
    odd: u64,
    expired: u64,
}

impl Filling {
    /// For the load of one feed of these generations, all of one filter. Nothing is forgotten until
    /// the cut has told its time.
    #[must_use]
    pub fn new(generations: Vec<Arc<Generation>>, feed: FeedOf, leeway: SignedDuration) -> Self {
        for generation in &generations {
            feed.of(generation).load_begins();
        }
        Self {
            generations: generations
                .into_iter()
                .map(|generation| (generation, Group::default()))
                .collect(),
            feed,
            leeway,
            forget_before: Timestamp::MIN,
            done: 0,
            blank: 0,
            odd: 0,
            expired: 0,
        }
    }

    /// Ends the filling, and gives the generations that were filled and the rows that came. Only
    /// now is every row in their bits.
    #[must_use]
    pub fn finish(self) -> (Vec<Arc<Generation>>, u64) {
        self.report();
        let filled = self.generations.into_iter().map(|(generation, mut group)| {
            generation.bloom.end_group(&mut group);
            generation
        });
        (filled.collect(), self.done)
    }

    fn report(&self) {
        for (generation, _) in &self.generations {
            let rows = &self.feed.of(generation).rows;
            rows.done.store(self.done, Ordering::Relaxed);
            rows.blank.store(self.blank, Ordering::Relaxed);
            rows.odd.store(self.odd, Ordering::Relaxed);
            rows.expired.store(self.expired, Ordering::Relaxed);
        }
    }
}

impl RowSink for Filling {
    fn begin(&mut self, rows_expected: u64, database_now: Timestamp) {
        for (generation, _) in &self.generations {
            let rows = &self.feed.of(generation).rows;
            rows.expected.store(rows_expected, Ordering::Relaxed);
        }
        self.forget_before = database_now
            .checked_sub(self.leeway)
            .unwrap_or(Timestamp::MIN);
    }

    fn row(&mut self, item: Option<&[u8]>, expires_at: Option<Timestamp>) {
        self.done += 1;
        if self.done.is_multiple_of(ROWS_A_REPORT) {
            self.report();
        }
        // All of them are of one filter, and a filter has one profile while the process runs.
        let Some((first, _)) = self.generations.first() else {
            return;
        };
        let Some(canonical) = item.and_then(|item| first.declaration.profile.canonicalize(item))
        else {
            self.blank += 1;
            return;
        };
        if expires_at.is_some_and(|expires_at| expires_at < self.forget_before) {
            self.expired += 1;
            return;
        }
        self.odd += u64::from(canonical.odd);
        for (generation, group) in &mut self.generations {
            if matches!(self.feed, FeedOf::Source(_)) {
                let askable = &self.feed.of(generation).askable;
                askable.took(item.unwrap_or_default(), &canonical.bytes);
            }
            generation.bloom.add_to_group(&canonical.bytes, group);
        }
    }
}
