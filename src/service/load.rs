//! Loads: of the store into one generation, and of a source into all that its filter has.
//!
//! Invariant: a load that fails is begun again from its start, and a partial one is never taken for
//! the whole.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;

use super::Service;
use super::cursor::Cursor;
use super::declaration::FilterName;
use super::filling::{FeedOf, Filling};
use super::generation::Generation;
use super::ports::{Moment, StoreError};
use super::retry::{RETRY_LONGEST, retry_waits};

/// Loads of one kind that run side by side: each holds a connection.
const LOADS_AT_ONCE: usize = 4;

/// Bounds the loads that run side by side. Stores and sources wait apart, so that sources that
/// hang hold up no store.
pub struct LoadsAtOnce {
    stores: Arc<Semaphore>,
    sources: Arc<Semaphore>,
}

impl Default for LoadsAtOnce {
    fn default() -> Self {
        Self {
            stores: Arc::new(Semaphore::new(LOADS_AT_ONCE)),
            sources: Arc::new(Semaphore::new(LOADS_AT_ONCE)),
        }
    }
}

impl LoadsAtOnce {
    /// The room for loads of such a feed.
    #[must_use]
    pub fn of(&self, feed: FeedOf) -> Arc<Semaphore> {
        Arc::clone(match feed {
            FeedOf::Store => &self.stores,
            FeedOf::Source(_) => &self.sources,
        })
    }
}

/// A load of the store that took its whole cut.
pub struct StoreLoaded {
    /// The generation that was filled.
    pub generation: Arc<Generation>,
    /// The epoch of following in which the load began.
    pub epoch: u64,
    /// The cut.
    pub cut: Cursor,
    /// When the cut was asked for.
    pub asked: Moment,
    /// How long the load took.
    pub seconds: f64,
}

/// What every load needs.
#[derive(Clone)]
pub struct Loader {
    /// Whose store and clock are used.
    pub service: Arc<Service>,
    /// The filter, for logs and metrics.
    pub filter: FilterName,
    /// Where a load waits for its turn.
    pub at_once: Arc<Semaphore>,
}

/// When and for how long a load ran.
pub(super) struct Took {
    /// When it was asked for.
    pub(super) asked: Moment,
    /// How long it took.
    pub(super) seconds: f64,
}

impl Loader {
    /// Loads the store's rows into a generation: those written since its cursor where it has one,
    /// else all of them.
    pub async fn load_store(self, generation: Arc<Generation>, epoch: u64) -> StoreLoaded {
        let mut since = generation.cursor();
        let mut waits = retry_waits();
        loop {
            let mut filling = self.filling(vec![Arc::clone(&generation)], FeedOf::Store);
            let store = &self.service.store;
            let load = store.load(generation.filter, since.as_deref(), &mut filling);
            let (outcome, took) = self.timed(load).await;
            match outcome {
                Ok(cut) => {
                    let (generations, rows) = filling.finish().await;
                    self.log_loaded(FeedOf::Store, &generations, rows, took.seconds);
                    return StoreLoaded {
                        generation,
                        epoch,
                        cut,
                        asked: took.asked,
                        seconds: took.seconds,
                    };
                }
                Err(error) => {
                    self.log_failed(&[&generation.store], &error);
                    if matches!(error, StoreError::CursorVoid { .. }) && since.take().is_some() {
                        // What was restored may hold more than the store has; it stays.
                        generation.cursor_is_void();
                        continue;
                    }
                }
            }
            tokio::time::sleep(waits.next().unwrap_or(RETRY_LONGEST)).await;
        }
    }

    pub(super) fn filling(&self, generations: Vec<Arc<Generation>>, feed: FeedOf) -> Filling {
        let entries = self.service.registry.all();
        let answering = generations
            .first()
            .and_then(|generation| entries.of(generation.filter))
            .and_then(|hosted| hosted.generation.as_ref());
        let is_urgent = answering.is_none_or(|generation| !generation.was_complete());
        let leeway = self.service.settings.expiry_leeway;
        Filling::new(generations, feed, leeway, is_urgent)
    }

    /// Runs a load when it is its turn.
    pub(super) async fn timed<T>(&self, load: impl Future<Output = T>) -> (T, Took) {
        let turn = self.at_once.acquire().await;
        let asked = self.service.clock.now();
        let begun = Instant::now();
        let outcome = load.await;
        drop(turn);
        let seconds = begun.elapsed().as_secs_f64();
        (outcome, Took { asked, seconds })
    }

    pub(super) fn log_loaded(
        &self,
        feed: FeedOf,
        generations: &[Arc<Generation>],
        rows: u64,
        seconds: f64,
    ) {
        if let Some(generation) = generations.first() {
            let (filter, feed) = (&self.filter, &feed.of(generation).name);
            crate::telemetry::record_load(filter.as_str(), feed, rows, seconds);
            tracing::info!(%filter, feed, rows, seconds, "loaded");
        }
    }

    pub(super) fn log_failed(&self, feeds: &[&super::feed::Feed], error: &StoreError) {
        crate::telemetry::record_store_error();
        if let Some(feed) = feeds.first() {
            let (filter, feed) = (&self.filter, &feed.name);
            tracing::warn!(%filter, feed, %error, "load failed; trying again");
        }
        for feed in feeds {
            feed.load_failed(error.to_string());
        }
    }
}
