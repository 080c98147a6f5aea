//! A generation: one bit array with fixed parameters, and how far it has followed what feeds it.
//!
//! Invariants:
//!
//! * bits are only ever set, never cleared;
//! * [`Generation::standing`] lets `definitely-not` through only when every feed was loaded in
//!   full, is within its bound, and its cursor holds;
//! * a generation has whatever its cursor reaches.
//!
//! Who sets what: feeds, cursor and epochs are told by [`super::lifecycle`] and
//! [`super::source_reader`] alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;

use super::answers::{Progress, State};
use super::budget::Reservation;
use super::cursor::{Cursor, Timeline};
use super::declaration::Declaration;
use super::feed::Feed;
use super::ingest::Position;
use super::ports::{FilterId, Moment, Place};
use crate::filter::bloom::BloomFilter;
use crate::filter::verdict::Reason;

/// One bit array with fixed parameters, and how far it has followed its store and sources.
pub struct Generation {
    /// The filter that it is of.
    pub filter: FilterId,
    /// Counts the generations since this process started, from 1.
    pub number: u64,
    /// What the filter was declared to be when it was built. Its bits may be sized for more.
    pub declaration: Declaration,
    /// The bits.
    pub bloom: BloomFilter,
    /// The store, as a feed.
    pub store: Feed,
    /// The sources, in the order of their names.
    pub sources: Vec<Feed>,
    /// How many of the filter's rows were forgotten before it was built.
    pub forgotten_before: u64,
    cursor: ArcSwapOption<Cursor>,
    /// The epoch of following in which the store was last loaded in full; 0 before the first load.
    loaded_in_epoch: AtomicU64,
    /// Whether it may have bits of rows that the store has lost.
    keeps_unaccounted_bits: AtomicBool,
    /// Whether its cursor was void at any time.
    was_void: AtomicBool,
    /// When it was first complete, by the monotonic clock; 0 before.
    completed_ms: AtomicU64,
    deleted: AtomicBool,
    completed: Notify,
    _reservation: Reservation,
}

/// What a generation is made of.
pub struct Parts {
    /// The filter that it is of.
    pub filter: FilterId,
    /// Counts the generations since this process started, from 1.
    pub number: u64,
    /// What the filter is declared to be.
    pub declaration: Declaration,
    /// The bits, empty or restored.
    pub bloom: BloomFilter,
    /// The memory that is set aside for them.
    pub reservation: Reservation,
    /// The age past which the store counts as not followed, in milliseconds.
    pub store_max_staleness_ms: u64,
    /// The sources, in the order of their names, none of them loaded.
    pub sources: Vec<Feed>,
    /// How many of the filter's rows were forgotten so far.
    pub forgotten_before: u64,
}

impl Generation {
    /// A generation that was not loaded yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self {
            filter: parts.filter,
            number: parts.number,
            declaration: parts.declaration,
            bloom: parts.bloom,
            store: Feed::new("store".to_owned(), parts.store_max_staleness_ms),
            sources: parts.sources,
            forgotten_before: parts.forgotten_before,
            cursor: ArcSwapOption::empty(),
            loaded_in_epoch: AtomicU64::new(0),
            keeps_unaccounted_bits: AtomicBool::new(false),
            was_void: AtomicBool::new(false),
            completed_ms: AtomicU64::new(0),
            deleted: AtomicBool::new(false),
            completed: Notify::new(),
            _reservation: parts.reservation,
        }
    }

    /// A generation that an earlier process had loaded and followed up to `cursor`. Of it everything
    /// is `maybe` until it is brought up to the present.
    #[must_use]
    pub fn restored(parts: Parts, cursor: Arc<Cursor>, keeps_unaccounted_bits: bool) -> Self {
        let generation = Self::new(parts);
        generation.cursor.store(Some(cursor));
        let feeds = std::iter::once(&generation.store).chain(&generation.sources);
        feeds.for_each(Feed::was_restored);
        let unaccounted = &generation.keeps_unaccounted_bits;
        unaccounted.store(keeps_unaccounted_bits, Ordering::Relaxed);
        generation
    }

    /// Why the generation may not say `definitely-not` at `now`; none when it may.
    ///
    /// Linear in the number of sources, no locks.
    #[must_use]
    pub fn standing(&self, now: Moment) -> Option<Reason> {
        let mut reason = None;
        for feed in std::iter::once(&self.store).chain(&self.sources) {
            match feed.state(now) {
                State::Loading => return Some(Reason::Loading),
                State::Stale => reason = Some(Reason::Stale),
                State::Live => {}
            }
        }
        reason
    }

    /// The same, as a state.
    #[must_use]
    pub fn state(&self, now: Moment) -> State {
        match self.standing(now) {
            None => State::Live,
            Some(Reason::Loading) => State::Loading,
            Some(Reason::Stale | Reason::Behind | Reason::Match) => State::Stale,
        }
    }

    /// Whether every feed was loaded in full once.
    #[must_use]
    pub fn was_complete(&self) -> bool {
        self.store.is_complete() && self.sources.iter().all(Feed::is_complete)
    }

    /// Whether it has whatever was committed at `place`, and all that was visible with it.
    #[must_use]
    pub fn reaches(&self, timeline: Timeline, place: Place) -> bool {
        let cursor = self.cursor.load();
        cursor
            .as_ref()
            .is_some_and(|cursor| cursor.reaches(timeline, place))
    }

    /// A position that it has reached: the first of all while it has reached none.
    #[must_use]
    pub fn position(&self) -> Position {
        let cursor = self.cursor.load();
        let timeline = cursor
            .as_ref()
            .map_or(Timeline([0; 16]), |cursor| cursor.timeline);
        // What lies before everything in progress is reached.
        let oldest = cursor.as_ref().map_or(Place(0), |cursor| {
            *cursor.in_progress.first().unwrap_or(&cursor.next)
        });
        let place = Place(oldest.0.saturating_sub(1));
        Position { timeline, place }
    }

    /// How far it has followed the store; none before it was loaded.
    #[must_use]
    pub fn cursor(&self) -> Option<Arc<Cursor>> {
        self.cursor.load_full()
    }

    /// Records that the store was loaded in full up to `cut`, in an epoch of following that began
    /// before the cut was taken.
    pub fn store_loaded(&self, epoch: u64, cut: Arc<Cursor>, asked: Moment, seconds: f64) {
        self.cursor.store(Some(cut));
        self.loaded_in_epoch.store(epoch, Ordering::Relaxed);
        self.store.load_succeeded(asked, seconds);
        self.note_completion(asked);
        self.completed.notify_waiters();
    }

    /// Records that every change up to `cursor` is set, as asked at `asked`. It counts only for
    /// what was loaded in the same epoch of following.
    pub fn followed(&self, epoch: u64, cursor: &Arc<Cursor>, asked: Moment) {
        if self.loaded_in_epoch.load(Ordering::Relaxed) == epoch {
            // Also from one segment into another: the store has said that nothing lies between.
            self.advance_if(cursor, |own| own.timeline == cursor.timeline);
            self.store.followed.set(asked);
        }
    }

    /// Records that everything up to `cursor` is set, as far as its own cursor lies in the same
    /// segment: to be said where all that was written since the load was written by this process.
    /// A cursor never goes back.
    pub fn advance(&self, cursor: &Arc<Cursor>) {
        self.advance_if(cursor, |own| {
            (own.timeline, own.segment) == (cursor.timeline, cursor.segment)
        });
    }

    fn advance_if(&self, cursor: &Arc<Cursor>, continues: impl Fn(&Cursor) -> bool) {
        self.cursor.rcu(|own| {
            let is_later = |own: &Cursor| own.next <= cursor.next && continues(own);
            if own.as_ref().is_some_and(|own| is_later(own)) {
                Some(Arc::clone(cursor))
            } else {
                own.clone()
            }
        });
    }

    /// Records that the store may have lost or reused places: nothing is known of it until it was
    /// loaded in full again. What is set stays set, for the store may have lost rows that were
    /// acknowledged.
    pub fn cursor_is_void(&self) {
        self.was_void.store(true, Ordering::Relaxed);
        self.store.becomes_void();
        self.cursor.store(None);
        if self.store.is_complete() {
            self.keeps_unaccounted_bits.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it may have bits of rows that the store has lost: then another generation would not
    /// have whatever was acknowledged.
    #[must_use]
    pub fn keeps_unaccounted_bits(&self) -> bool {
        self.keeps_unaccounted_bits.load(Ordering::Relaxed)
    }

    /// Whether whatever was acknowledged while it was there is in the store, or was removed or has
    /// expired: then what the store does not have is not in the set.
    #[must_use]
    pub fn store_has_all(&self) -> bool {
        !self.keeps_unaccounted_bits() && !self.was_void.load(Ordering::Relaxed)
    }

    /// Records when it was complete for the first time, if it is.
    pub fn note_completion(&self, now: Moment) {
        if self.was_complete() {
            let now_ms = now.monotonic_ms.max(1);
            // Only the first counts; whoever comes later finds another value than 0.
            let _ =
                self.completed_ms
                    .compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// How long ago it was complete for the first time; none before.
    #[must_use]
    pub fn age(&self, now: Moment) -> Option<Duration> {
        let completed_ms = self.completed_ms.load(Ordering::Relaxed);
        (completed_ms > 0)
            .then(|| Duration::from_millis(now.monotonic_ms.saturating_sub(completed_ms)))
    }

    /// Records that the store has no such filter any more.
    pub fn filter_was_deleted(&self) {
        self.deleted.store(true, Ordering::Relaxed);
    }

    /// Whether the store was found to have no such filter any more.
    #[must_use]
    pub fn is_of_deleted_filter(&self) -> bool {
        self.deleted.load(Ordering::Relaxed)
    }

    /// Waits until the store was loaded in full once.
    pub async fn store_was_loaded(&self) {
        let mut completed = std::pin::pin!(self.completed.notified());
        // Register before looking, or a load that ends in between goes unseen.
        completed.as_mut().enable();
        if !self.store.is_complete() {
            completed.await;
        }
    }

    /// How long ago the store was followed, in seconds; none before the first time.
    #[must_use]
    pub fn staleness_seconds(&self, now: Moment) -> Option<f64> {
        let age_ms = self.store.followed.age_ms(now)?;
        Some(Duration::from_millis(age_ms).as_secs_f64())
    }

    /// A load under way, if any.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        self.store.progress("store".to_owned()).or_else(|| {
            self.sources
                .iter()
                .find_map(|feed| feed.progress(format!("source {}", feed.name)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::hashing::MasterKey;
    use crate::filter::profile::Profile;
    use crate::service::budget::MemoryBudget;

    const HERE: Timeline = Timeline([1; 16]);

    const ASKED: Moment = Moment {
        monotonic_ms: 1_000,
        wall_ms: 1_000,
    };
    const LATER: Moment = Moment {
        monotonic_ms: 2_000,
        wall_ms: 2_000,
    };

    fn generation() -> Generation {
        let id = uuid::Uuid::from_u128(1);
        let key = MasterKey::from_bytes([7; MasterKey::BYTES]).filter_key(id.as_bytes());
        let declaration = Declaration::new(Profile::Text, 100, 0.01).unwrap();
        Generation::new(Parts {
            filter: FilterId(id),
            number: 1,
            bloom: BloomFilter::new(declaration.sizing, key).unwrap(),
            declaration,
            reservation: MemoryBudget::new(1 << 20).reserve(1 << 10).unwrap(),
            store_max_staleness_ms: 500,
            sources: Vec::new(),
            forgotten_before: 0,
        })
    }

    fn cursor(next: u64) -> Arc<Cursor> {
        Arc::new(Cursor {
            timeline: HERE,
            segment: 0,
            next: Place(next),
            in_progress: Box::default(),
        })
    }

    #[test]
    fn before_its_first_load_it_has_reached_nothing() {
        let generation = generation();
        generation.followed(1, &cursor(9), ASKED);
        assert!(!generation.reaches(HERE, Place(1)));
        assert_eq!(generation.standing(ASKED), Some(Reason::Loading));
    }

    #[test]
    fn a_load_and_then_each_poll_of_its_epoch_carry_it_on() {
        let generation = generation();
        generation.store_loaded(1, cursor(10), ASKED, 0.1);
        assert!(generation.reaches(HERE, Place(9)));
        assert!(!generation.reaches(HERE, Place(10)));
        assert_eq!(generation.standing(ASKED), None);
        assert_eq!(generation.standing(LATER), Some(Reason::Stale));
        generation.followed(1, &cursor(12), LATER);
        assert!(generation.reaches(HERE, Place(11)));
        assert_eq!(generation.standing(LATER), None);
    }

    #[test]
    fn what_was_loaded_before_the_cursor_was_void_is_stale_until_it_is_loaded_again() {
        let generation = generation();
        generation.store_loaded(1, cursor(10), ASKED, 0.1);
        assert!(!generation.keeps_unaccounted_bits());
        generation.cursor_is_void();
        assert_eq!(generation.standing(ASKED), Some(Reason::Stale));
        assert!(!generation.reaches(HERE, Place(1)));
        // A poll of the next epoch says nothing of what was loaded in the one before.
        generation.followed(2, &cursor(12), LATER);
        assert_eq!(generation.standing(LATER), Some(Reason::Stale));
        generation.store_loaded(2, cursor(12), LATER, 0.1);
        assert_eq!(generation.standing(LATER), None);
        assert!(generation.keeps_unaccounted_bits());
    }

    #[test]
    fn what_was_acknowledged_before_the_cursor_was_void_may_be_lost_also_before_the_first_load() {
        let generation = generation();
        assert!(generation.store_has_all());
        generation.cursor_is_void();
        generation.store_loaded(2, cursor(12), LATER, 0.1);
        assert!(!generation.store_has_all());
    }

    #[test]
    fn its_age_counts_from_its_first_completion() {
        let generation = generation();
        assert_eq!(generation.age(ASKED), None);
        generation.store_loaded(1, cursor(10), ASKED, 0.1);
        generation.store_loaded(2, cursor(10), LATER, 0.1);
        assert_eq!(generation.age(LATER), Some(Duration::from_secs(1)));
    }
}
