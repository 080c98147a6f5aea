//! The loads of one feed of one generation.
//!
//! Invariant: a load that fails is begun again from its start, and a partial one is never taken
//! for the whole.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::Semaphore;

use super::Service;
use super::feed::Feed;
use super::filling::Filling;
use super::generation::Generation;
use super::ports::{Moment, Place, StoreError};
use super::registry::Hosted;
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

/// Which feed of a generation a load is for.
#[derive(Clone, Copy)]
pub enum FeedOf {
    /// The store.
    Store,
    /// The source at this index.
    Source(usize),
}

/// The loads of one feed of one generation.
pub struct Load {
    /// Whose store and clock are used.
    pub service: Arc<Service>,
    /// The filter.
    pub hosted: Arc<Hosted>,
    /// The generation that is filled.
    pub generation: Arc<Generation>,
    /// What it is filled from.
    pub feed: FeedOf,
    /// Where the load waits for its turn.
    pub at_once: Arc<Semaphore>,
}

/// A load that took its whole cut.
struct Loaded {
    /// How far the cut reaches in the store; none for a source.
    reached: Option<Place>,
    /// When the cut was asked for.
    asked: Moment,
    seconds: f64,
}

impl Load {
    /// Loads the store's rows once, within one hold.
    pub async fn load_store(self, hold: u64) {
        let loaded = self.until_loaded().await;
        self.generation.store_loaded(
            hold,
            loaded.reached.unwrap_or(Place(0)),
            loaded.asked,
            loaded.seconds,
        );
    }

    /// Loads a source, and again after each of its refresh intervals.
    pub async fn keep_reading(self) {
        loop {
            let loaded = self.until_loaded().await;
            self.feed().load_succeeded(loaded.asked, loaded.seconds);
            let refresh_interval = match self.feed {
                FeedOf::Store => return,
                FeedOf::Source(index) => self.hosted.sources[index].refresh_interval,
            };
            tokio::time::sleep(refresh_interval).await;
        }
    }

    fn feed(&self) -> &Feed {
        match self.feed {
            FeedOf::Store => &self.generation.store,
            FeedOf::Source(index) => &self.generation.sources[index],
        }
    }

    async fn until_loaded(&self) -> Loaded {
        let (filter, feed) = (&self.hosted.name, self.feed());
        let mut waits = retry_waits();
        loop {
            let turn = self.at_once.acquire().await;
            let asked = self.service.clock.now();
            let begun = Instant::now();
            let outcome = self.attempt().await;
            drop(turn);
            let seconds = begun.elapsed().as_secs_f64();
            match outcome {
                Ok(reached) => {
                    let rows = feed.rows.done.load(Ordering::Relaxed);
                    crate::telemetry::record_load(filter.as_str(), &feed.name, rows, seconds);
                    tracing::info!(%filter, feed = feed.name, rows, seconds, "loaded");
                    return Loaded {
                        reached,
                        asked,
                        seconds,
                    };
                }
                Err(error) => {
                    tracing::warn!(%filter, feed = feed.name, %error, "load failed; trying again");
                    crate::telemetry::record_store_error();
                    feed.load_failed(error.to_string());
                }
            }
            tokio::time::sleep(waits.next().unwrap_or(RETRY_LONGEST)).await;
        }
    }

    async fn attempt(&self) -> Result<Option<Place>, StoreError> {
        let leeway = self.service.settings.expiry_leeway;
        let mut filling = Filling::new(&self.generation, self.feed(), leeway);
        match self.feed {
            FeedOf::Store => {
                let store = &self.service.store;
                let reached = store.load(self.generation.filter, &mut filling).await?;
                Ok(Some(reached))
            }
            FeedOf::Source(index) => {
                let source = &self.hosted.sources[index];
                source.adapter.load(&mut filling).await?;
                Ok(None)
            }
        }
    }
}
