//! Takes the rows of a load into the generations of a filter.
//!
//! While nobody can be answered from the filter yet, rows are handed on in batches to threads of their own, so
//! that whoever receives them from the database waits for no hashing. Later loads take their time, and leave
//! the cores to the checks.
//!
//! Invariants: a row is passed over only for being NULL, blank or past its expiry and the leeway by
//! the database's own clock, and each of these is counted. No other row is, however odd it looks.
//! A filling has ended only when every batch is in the bits.

use std::num::NonZero;
use std::ops::AddAssign;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use jiff::{SignedDuration, Timestamp};
use rayon::{ThreadPool, ThreadPoolBuilder};
use rustix::process::setpriority_process;
use tokio::sync::mpsc;

use super::feed::Feed;
use super::generation::Generation;
use super::ports::RowSink;
use crate::filter::bloom::Group;

/// Rows that are handed on together: few enough for their bytes to lie in a core's second cache.
const ROWS_A_BATCH: usize = 1_024;

/// Bytes with which a batch is handed on, however few its rows are. A batch of one row can be
/// longer, and is then taken by whoever received it: what is on its way stays bounded.
const BYTES_A_BATCH: usize = 256 * 1024;

/// Batches on their way. Past them whoever receives the rows takes its own.
const BATCHES_AT_ONCE: usize = 16;

/// How much the threads that set rows give way, as `nice(1)` counts: a check that comes while a core is
/// taken by one of them gets the core at once.
const NICENESS: i32 = 10;

/// The threads that set rows, one core left to everything else. None where the system gives none: then
/// whoever receives the rows sets them.
static SETTERS: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, NonZero::get);
    let setters = ThreadPoolBuilder::new()
        .num_threads(cores.saturating_sub(1).max(1))
        .thread_name(|number| format!("setter-{number}"))
        // Of the calling thread alone, on Linux. Where it is refused, they are as all the others.
        .start_handler(|_| {
            let _refused = setpriority_process(None, NICENESS);
        });
    setters.build().ok()
});

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

/// Rows that came one after the other: their items end to end, and where each ends.
#[derive(Default)]
struct Batch {
    items: Vec<u8>,
    rows: Vec<(usize, Option<Timestamp>)>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_A_BATCH || self.items.len() >= BYTES_A_BATCH
    }
}

/// Rows that were passed over, and rows that took a fallback.
#[derive(Default, Clone, Copy)]
struct Counts {
    blank: u64,
    odd: u64,
    expired: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.blank += other.blank;
        self.odd += other.odd;
        self.expired += other.expired;
    }
}

/// Where the rows of one load go.
struct Destination {
    /// All of one filter.
    generations: Vec<Arc<Generation>>,
    feed: FeedOf,
}

impl Destination {
    /// Sets the items of a batch, save for those that expire before `forget_before`.
    fn take(&self, batch: &Batch, forget_before: Timestamp) -> Counts {
        let mut counts = Counts::default();
        // A filter has one profile while the process runs.
        let Some(first) = self.generations.first() else {
            return counts;
        };
        let profile = first.declaration.profile;
        let mut groups: Vec<_> = self
            .generations
            .iter()
            .map(|generation| (generation, self.feed.of(generation), Group::default()))
            .collect();
        let mut begin = 0;
        for &(end, expires_at) in &batch.rows {
            let item = &batch.items[begin..end];
            begin = end;
            let Some(canonical) = profile.canonicalize(item) else {
                counts.blank += 1;
                continue;
            };
            if expires_at.is_some_and(|expires_at| expires_at < forget_before) {
                counts.expired += 1;
                continue;
            }
            counts.odd += u64::from(canonical.odd);
            for (generation, feed, group) in &mut groups {
                if matches!(self.feed, FeedOf::Source(_)) {
                    feed.askable.took(item, &canonical.bytes);
                }
                generation.bloom.add_to_group(&canonical.bytes, group);
            }
        }
        for (generation, _, mut group) in groups {
            generation.bloom.end_group(&mut group);
        }
        counts
    }
}

/// Sets the rows of one load.
pub struct Filling {
    destination: Arc<Destination>,
    leeway: SignedDuration,
    /// Rows that expire before this are forgotten.
    forget_before: Timestamp,
    batch: Batch,
    done: u64,
    counts: Counts,
    /// Whether batches are handed on.
    is_urgent: bool,
    /// Batches that were handed on and not heard of since.
    on_their_way: usize,
    taken: mpsc::Receiver<Counts>,
    take: mpsc::Sender<Counts>,
}

impl Filling {
    /// For the load of one feed of these generations, all of one filter; `is_urgent` where no
    /// generation of the filter answers meanwhile. Nothing is forgotten until the cut has told its time.
    #[must_use]
    pub fn new(
        generations: Vec<Arc<Generation>>,
        feed: FeedOf,
        leeway: SignedDuration,
        is_urgent: bool,
    ) -> Self {
        for generation in &generations {
            feed.of(generation).load_begins();
        }
        // As many as can be on their way, so that no core waits to tell of one.
        let (take, taken) = mpsc::channel(BATCHES_AT_ONCE);
        Self {
            destination: Arc::new(Destination { generations, feed }),
            leeway,
            forget_before: Timestamp::MIN,
            batch: Batch::default(),
            done: 0,
            counts: Counts::default(),
            is_urgent,
            on_their_way: 0,
            taken,
            take,
        }
    }

    /// Ends the filling, and gives the generations that were filled and the rows that came. Only
    /// now is every row in their bits.
    pub async fn finish(mut self) -> (Vec<Arc<Generation>>, u64) {
        self.counts += self.destination.take(&self.batch, self.forget_before);
        while self.on_their_way > 0 {
            let counts = self.taken.recv().await;
            self.was_taken(counts.expect("this filling holds a sender itself"));
        }
        self.report();
        (self.destination.generations.clone(), self.done)
    }

    /// Hands the batch on.
    fn hand_on(&mut self) {
        while let Ok(counts) = self.taken.try_recv() {
            self.was_taken(counts);
        }
        let batch = std::mem::take(&mut self.batch);
        let forget_before = self.forget_before;
        let is_room = self.on_their_way < BATCHES_AT_ONCE && batch.items.len() < 2 * BYTES_A_BATCH;
        let is_handed_on = self.is_urgent && is_room;
        match SETTERS.as_ref().filter(|_| is_handed_on) {
            Some(setters) => {
                self.on_their_way += 1;
                let (destination, take) = (Arc::clone(&self.destination), self.take.clone());
                // A panic there ends the process: no batch is lost without a word.
                setters.spawn(move || {
                    let counts = destination.take(&batch, forget_before);
                    // Nobody listens any more where the load was given up.
                    let _ = take.try_send(counts);
                });
            }
            None => self.counts += self.destination.take(&batch, forget_before),
        }
        self.report();
    }

    fn was_taken(&mut self, counts: Counts) {
        self.on_their_way -= 1;
        self.counts += counts;
    }

    fn report(&self) {
        for generation in &self.destination.generations {
            let rows = &self.destination.feed.of(generation).rows;
            rows.done.store(self.done, Ordering::Relaxed);
            rows.blank.store(self.counts.blank, Ordering::Relaxed);
            rows.odd.store(self.counts.odd, Ordering::Relaxed);
            rows.expired.store(self.counts.expired, Ordering::Relaxed);
        }
    }
}

impl RowSink for Filling {
    fn begin(&mut self, rows_expected: u64, database_now: Timestamp) {
        for generation in &self.destination.generations {
            let rows = &self.destination.feed.of(generation).rows;
            rows.expected.store(rows_expected, Ordering::Relaxed);
        }
        self.forget_before = database_now
            .checked_sub(self.leeway)
            .unwrap_or(Timestamp::MIN);
    }

    fn row(&mut self, item: Option<&[u8]>, expires_at: Option<Timestamp>) {
        self.done += 1;
        let Some(item) = item else {
            self.counts.blank += 1;
            return;
        };
        self.batch.items.extend_from_slice(item);
        self.batch.rows.push((self.batch.items.len(), expires_at));
        if self.batch.is_full() {
            self.hand_on();
        }
    }
}

#[cfg(test)]
mod tests;
