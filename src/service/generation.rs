//! A generation: one bit array with fixed parameters, and how far it has followed what feeds it.
//!
//! Invariants:
//!
//! * bits are only ever set, never cleared;
//! * [`Generation::standing`] lets `definitely-not` through only when every feed was loaded in
//!   full and is within its bound;
//! * an add counts as reached only where everything before it is set as well.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::answers::{Progress, State};
use super::budget::Reservation;
use super::declaration::Declaration;
use super::feed::Feed;
use super::ports::{FilterId, Moment, Place};
use crate::filter::bloom::{AllocationError, BloomFilter};
use crate::filter::hashing::HashKey;
use crate::filter::verdict::Reason;

/// One bit array with fixed parameters, and how far it has followed its store and sources.
pub struct Generation {
    /// The filter that it is of.
    pub filter: FilterId,
    /// Counts the generations since this process started, from 1.
    pub number: u64,
    /// What it was built for.
    pub declaration: Declaration,
    /// The bits.
    pub bloom: BloomFilter,
    /// The store, as a feed.
    pub store: Feed,
    /// The sources, in the order of their names.
    pub sources: Vec<Feed>,
    reached: AtomicU64,
    /// The hold of the store that is under way or about to begin. Holds count from 1.
    hold: AtomicU64,
    /// The hold in which the store was last loaded in full; 0 before the first load.
    loaded_in_hold: AtomicU64,
    /// The highest place of an add of this process, whatever lies before it.
    added: AtomicU64,
    retired: AtomicBool,
    deleted: AtomicBool,
    completed: Notify,
    _reservation: Reservation,
}

impl Generation {
    /// An empty generation of one filter. `reservation` is for its bits; `sources` are names and
    /// bounds on the age in milliseconds.
    ///
    /// # Errors
    /// When the bits cannot be allocated.
    pub fn new(
        filter: FilterId,
        number: u64,
        declaration: Declaration,
        key: HashKey,
        reservation: Reservation,
        store_max_staleness_ms: u64,
        sources: impl Iterator<Item = (String, u64)>,
    ) -> Result<Self, AllocationError> {
        Ok(Self {
            filter,
            number,
            bloom: BloomFilter::new(declaration.sizing, key)?,
            declaration,
            store: Feed::new("store".to_owned(), store_max_staleness_ms),
            sources: sources
                .map(|(name, max_staleness_ms)| Feed::new(name, max_staleness_ms))
                .collect(),
            reached: AtomicU64::new(0),
            hold: AtomicU64::new(0),
            loaded_in_hold: AtomicU64::new(0),
            added: AtomicU64::new(0),
            retired: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
            completed: Notify::new(),
            _reservation: reservation,
        })
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

    /// The place up to which every acknowledged add is set.
    #[must_use]
    pub fn reached(&self) -> Place {
        Place(self.reached.load(Ordering::Acquire))
    }

    /// Records that a hold of the store begins. To be said before the store takes a write in it.
    pub fn hold_begins(&self, hold: u64) {
        self.hold.fetch_max(hold, Ordering::SeqCst);
    }

    /// Records that an add of this process, at `place`, is set.
    ///
    /// That says nothing about what lies before it as long as the store was not loaded within the
    /// hold: another process may have acknowledged something in between.
    pub fn add_is_set(&self, place: Place) {
        // The add is told first and the load looked for then; `store_loaded` does it the other way
        // round. In one order of all, at least one of the two sees the other.
        self.added.fetch_max(place.0, Ordering::SeqCst);
        let loaded_in_hold = self.loaded_in_hold.load(Ordering::SeqCst);
        if loaded_in_hold > 0 && loaded_in_hold == self.hold.load(Ordering::SeqCst) {
            self.reached.fetch_max(place.0, Ordering::AcqRel);
        }
    }

    /// Records that the store was loaded in full within one hold of it. A load of an earlier hold
    /// comes too late and has no effect.
    pub fn store_loaded(&self, hold: u64, reached: Place, asked: Moment, seconds: f64) {
        if self.hold.load(Ordering::SeqCst) != hold {
            return;
        }
        self.reached.fetch_max(reached.0, Ordering::AcqRel);
        self.store.load_succeeded(asked, seconds);
        self.loaded_in_hold.fetch_max(hold, Ordering::SeqCst);
        // Behind the cut there are only adds of this process, and their bits are set; not so where
        // the next hold has begun meanwhile, whose adds tell of it before they are told here.
        let added = self.added.load(Ordering::SeqCst);
        if self.hold.load(Ordering::SeqCst) == hold {
            self.reached.fetch_max(added, Ordering::AcqRel);
        }
        self.completed.notify_waiters();
    }

    /// Records that another generation of the filter takes the place of this one. To be said before
    /// that one takes its cut.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
    }

    /// Whether another generation has taken its place. An add that finds it has not, after its
    /// commit, is in the cut of whichever follows.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
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

    /// Records that the store was still held at `asked`. It counts only for what was loaded
    /// within the same hold: between two holds another process may have written.
    pub fn store_still_held(&self, hold: u64, asked: Moment) {
        if self.loaded_in_hold.load(Ordering::Acquire) == hold {
            self.store.followed.set(asked);
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

    const ASKED: Moment = Moment {
        monotonic_ms: 1_000,
        wall_ms: 1_000,
    };

    fn generation() -> Generation {
        let id = uuid::Uuid::from_u128(1);
        let key = MasterKey::from_bytes([7; MasterKey::BYTES]).filter_key(id.as_bytes());
        let declaration = Declaration::new(Profile::Text, 100, 0.01).unwrap();
        let room = MemoryBudget::new(1 << 20).reserve(1 << 10).unwrap();
        let no_sources = std::iter::empty();
        Generation::new(FilterId(id), 1, declaration, key, room, 500, no_sources).unwrap()
    }

    #[test]
    fn an_add_before_the_first_load_says_nothing_about_what_lies_before_it() {
        let generation = generation();
        generation.add_is_set(Place(9));
        assert_eq!(generation.reached(), Place(0));
        generation.hold_begins(1);
        generation.add_is_set(Place(9));
        assert_eq!(generation.reached(), Place(0));
        generation.store_loaded(1, Place(10), ASKED, 0.1);
        assert_eq!(generation.reached(), Place(10));
        generation.add_is_set(Place(12));
        assert_eq!(generation.reached(), Place(12));
    }

    #[test]
    fn what_another_process_acknowledged_between_two_holds_is_not_reached_by_an_add_behind_it() {
        let generation = generation();
        generation.hold_begins(1);
        generation.store_loaded(1, Place(10), ASKED, 0.1);
        generation.hold_begins(2);
        // At 20 the other process, of which this one knows nothing yet; at 30 this one.
        generation.add_is_set(Place(30));
        assert_eq!(generation.reached(), Place(10));
        generation.store_loaded(2, Place(30), ASKED, 0.1);
        assert_eq!(generation.reached(), Place(30));
    }

    #[test]
    fn an_add_that_comes_while_the_store_is_loaded_is_reached_once_it_is() {
        let generation = generation();
        generation.hold_begins(1);
        generation.add_is_set(Place(12));
        generation.store_loaded(1, Place(10), ASKED, 0.1);
        assert_eq!(generation.reached(), Place(12));
    }

    #[test]
    fn a_load_of_an_earlier_hold_comes_too_late() {
        let generation = generation();
        generation.hold_begins(1);
        generation.hold_begins(2);
        generation.store_loaded(1, Place(10), ASKED, 0.1);
        assert_eq!(generation.standing(ASKED), Some(Reason::Loading));
        generation.store_loaded(2, Place(10), ASKED, 0.1);
        assert_eq!(generation.standing(ASKED), None);
    }

    #[test]
    fn that_the_store_is_still_held_counts_only_within_the_hold_of_the_load() {
        let generation = generation();
        generation.hold_begins(1);
        generation.store_loaded(1, Place(10), ASKED, 0.1);
        let later = Moment {
            monotonic_ms: 2_000,
            wall_ms: 2_000,
        };
        generation.hold_begins(2);
        generation.store_still_held(2, later);
        assert_eq!(generation.standing(later), Some(Reason::Stale));
    }
}
