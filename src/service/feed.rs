//! What feeds a generation: its store, or one of its sources.
//!
//! Invariant: a feed is complete only after a load that brought its whole cut, and its age runs from
//! the moment when that, or the latest question that was answered, was asked.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::answers::{Progress, SourceDescription, State};
use super::askable::Askable;
use super::freshness::Followed;
use super::ports::Moment;

/// Rows that a feed brought, as they are taken.
#[derive(Debug, Default)]
pub struct RowCounts {
    /// Rows that the cut holds.
    pub expected: AtomicU64,
    /// Rows taken, of whatever kind.
    pub done: AtomicU64,
    /// NULL and blank rows among them.
    pub blank: AtomicU64,
    /// Rows that took a fallback.
    pub odd: AtomicU64,
    /// Rows past their expiry and the leeway.
    pub expired: AtomicU64,
}

/// What feeds a generation: its store, or one of its sources.
pub struct Feed {
    /// `store`, or the source's name.
    pub name: String,
    /// The age past which the feed counts as not followed, in milliseconds.
    max_staleness_ms: AtomicU64,
    /// The moment up to which it is followed.
    pub followed: Followed,
    /// The rows of the load under way, or of the last one.
    pub rows: RowCounts,
    /// Whether it can be asked for one item; of a source.
    pub askable: Askable,
    loading: AtomicBool,
    complete: AtomicBool,
    /// Whether it may have lost what it had brought, so that it has to be loaded again.
    void: AtomicBool,
    /// Rows past their expiry in the first complete load.
    expired_at_first: AtomicU64,
    last_load: Mutex<LastLoad>,
}

#[derive(Debug, Default, Clone)]
struct LastLoad {
    rows: u64,
    blank: u64,
    odd: u64,
    expired: u64,
    seconds: f64,
    error: Option<String>,
}

impl Feed {
    /// A feed that was not loaded yet.
    #[must_use]
    pub fn new(name: String, max_staleness_ms: u64) -> Self {
        Self {
            name,
            max_staleness_ms: AtomicU64::new(max_staleness_ms),
            followed: Followed::never(),
            rows: RowCounts::default(),
            askable: Askable::default(),
            loading: AtomicBool::new(false),
            complete: AtomicBool::new(false),
            void: AtomicBool::new(false),
            expired_at_first: AtomicU64::new(0),
            last_load: Mutex::default(),
        }
    }

    /// Sets the age past which it counts as not followed: a source that is followed is held to less
    /// than one that is read at intervals.
    pub fn set_max_staleness(&self, bound: Duration) {
        let bound_ms = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
        self.max_staleness_ms.store(bound_ms, Ordering::Relaxed);
    }

    /// Records that a load begins.
    pub fn load_begins(&self) {
        for counter in [
            &self.rows.expected,
            &self.rows.done,
            &self.rows.blank,
            &self.rows.odd,
            &self.rows.expired,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        self.loading.store(true, Ordering::Relaxed);
    }

    /// Records that the load brought its whole cut, and stands for the moment when it was asked.
    pub fn load_succeeded(&self, asked: Moment, seconds: f64) {
        *self.last_load() = LastLoad {
            rows: self.rows.done.load(Ordering::Relaxed),
            blank: self.rows.blank.load(Ordering::Relaxed),
            odd: self.rows.odd.load(Ordering::Relaxed),
            expired: self.rows.expired.load(Ordering::Relaxed),
            seconds,
            error: None,
        };
        self.loading.store(false, Ordering::Relaxed);
        if !self.is_complete() {
            let expired = self.rows.expired.load(Ordering::Relaxed);
            self.expired_at_first.store(expired, Ordering::Relaxed);
        }
        self.askable.took_all();
        self.followed.set(asked);
        self.void.store(false, Ordering::Release);
        // Release: whoever sees `complete` sees every bit that the load set.
        self.complete.store(true, Ordering::Release);
    }

    /// Records that the load failed; what it set stays set and is never taken for the whole.
    pub fn load_failed(&self, error: String) {
        self.last_load().error = Some(error);
        self.loading.store(false, Ordering::Relaxed);
    }

    /// Records that it may have lost what it had brought: until it was loaded again it counts as not
    /// followed, however young it is.
    pub fn becomes_void(&self) {
        self.void.store(true, Ordering::Release);
    }

    /// Takes it for loaded by an earlier process: complete, and not followed until it is loaded or
    /// caught up in this one.
    pub fn was_restored(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Rows that have expired since it was first loaded, as of the last complete load.
    #[must_use]
    pub fn expired_since(&self) -> u64 {
        let at_first = self.expired_at_first.load(Ordering::Relaxed);
        self.last_load().expired.saturating_sub(at_first)
    }

    /// Whether it was loaded in full once.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Whether it was loaded, holds what it had brought, and is within its bound at `now`.
    #[must_use]
    pub fn state(&self, now: Moment) -> State {
        if !self.is_complete() {
            State::Loading
        } else if !self.void.load(Ordering::Acquire)
            && self
                .followed
                .is_within(self.max_staleness_ms.load(Ordering::Relaxed), now)
        {
            State::Live
        } else {
            State::Stale
        }
    }

    /// The load under way, if there is one; `phase` names it.
    #[must_use]
    pub fn progress(&self, phase: String) -> Option<Progress> {
        self.loading.load(Ordering::Relaxed).then(|| Progress {
            rows_done: self.rows.done.load(Ordering::Relaxed),
            rows_expected: self.rows.expected.load(Ordering::Relaxed),
            phase,
        })
    }

    /// What is known of it as a source.
    #[must_use]
    pub fn describe(&self, now: Moment) -> SourceDescription {
        let last_load = self.last_load().clone();
        SourceDescription {
            name: self.name.clone(),
            state: self.state(now),
            rows_loaded: last_load.rows,
            rows_blank: last_load.blank,
            rows_odd: last_load.odd,
            rows_expired: last_load.expired,
            load_seconds: last_load.seconds,
            as_of: self.followed.as_of(),
            error: last_load.error.or_else(|| self.askable.problem()),
        }
    }

    fn last_load(&self) -> std::sync::MutexGuard<'_, LastLoad> {
        // A reporter that panicked leaves a report that is at worst out of date.
        self.last_load
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
