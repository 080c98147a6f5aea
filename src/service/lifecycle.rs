//! The lifecycle: reaches the store, hosts the filters that it records, loads them, and keeps
//! asking the store whether it is still ours.
//!
//! A *hold* is the time from one successful [`Store::open`] to the moment when the store says that
//! the hold was lost. Between two holds another process may have written, so that each new hold
//! begins with a full load of every filter, into the bits that are there.
//!
//! Invariants:
//!
//! * a filter is registered before its load takes its cut, so that an add in between reaches both;
//! * a load that fails is begun again from its start; a partial one is never taken for the whole;
//! * a filter counts as followed only by what was asked in the hold in which it was loaded.
//!
//! Who sets what: a feed's completeness and age are set here and in [`super::load`], nowhere else.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use backon::ExponentialBackoff;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::Service;
use super::generation::Generation;
use super::load::{FeedOf, Load, LoadsAtOnce};
use super::ports::{FilterId, StoreError};
use super::registry::Hosted;
use super::retry::{RETRY_LONGEST, retry_waits};

/// Why the lifecycle ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    /// A load panicked. What it stands for can no longer be trusted.
    #[error("a load ended in a panic")]
    LoadDied(#[source] JoinError),
}

/// Runs the lifecycle of every filter of a service.
pub struct Lifecycle {
    service: Arc<Service>,
    loads: JoinSet<()>,
    running: HashMap<FilterId, Running>,
    loads_at_once: LoadsAtOnce,
    /// The number of the current hold; none while the store is not held.
    hold: Option<u64>,
    holds: u64,
    reopen_backoff: ExponentialBackoff,
    store_answers: bool,
}

struct Running {
    generation: Arc<Generation>,
    store: AbortHandle,
    loaded_in_hold: u64,
    sources: Vec<AbortHandle>,
}

impl Running {
    fn abort(&self) {
        self.store.abort();
        self.sources.iter().for_each(AbortHandle::abort);
    }
}

impl Lifecycle {
    /// The lifecycle of a service's filters. Nothing happens until [`Lifecycle::run`].
    #[must_use]
    pub fn new(service: Arc<Service>) -> Self {
        Self {
            service,
            loads: JoinSet::new(),
            running: HashMap::new(),
            loads_at_once: LoadsAtOnce::default(),
            hold: None,
            holds: 0,
            reopen_backoff: retry_waits(),
            store_answers: true,
        }
    }

    /// Tries to reach the store, take it, and host what it records. [`Lifecycle::run`] does it
    /// again as needed; whoever starts the process tries once before, to tell a store that refuses
    /// from one that is down.
    ///
    /// # Errors
    /// What the store said.
    pub async fn open(&mut self) -> Result<(), StoreError> {
        let hold = self.holds + 1;
        for hosted in self.service.registry.all().values() {
            if let Some(generation) = &hosted.generation {
                generation.hold_begins(hold);
            }
        }
        self.service.take_store().await?;
        self.holds = hold;
        self.hold = Some(hold);
        self.store_answers = true;
        self.reopen_backoff = retry_waits();
        Ok(())
    }

    /// Loads, follows and reloads until cancelled.
    ///
    /// # Errors
    /// When a load died.
    pub async fn run(mut self, cancelled: CancellationToken) -> Result<(), LifecycleError> {
        let mut ticks = tokio::time::interval(self.service.settings.poll_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.start_and_stop_loads();
            tokio::select! {
                () = cancelled.cancelled() => break,
                () = self.service.registry_changed.notified() => {}
                Some(ended) = self.loads.join_next() => match ended {
                    Err(error) if error.is_panic() => return Err(LifecycleError::LoadDied(error)),
                    Ok(()) | Err(_) => {}
                },
                _ = ticks.tick() => {
                    let tick = async {
                        match self.hold {
                            Some(hold) => self.poll(hold).await,
                            None => self.open_again().await,
                        }
                    };
                    tokio::select! {
                        () = cancelled.cancelled() => break,
                        () = tick => {}
                    }
                }
            }
        }
        self.loads.shutdown().await;
        Ok(())
    }

    async fn open_again(&mut self) {
        if let Err(error) = self.open().await {
            crate::telemetry::record_store_error();
            if std::mem::replace(&mut self.store_answers, false) {
                tracing::error!(%error, "the store is not open; trying again");
            }
            let wait = self.reopen_backoff.next().unwrap_or(RETRY_LONGEST);
            tokio::time::sleep(wait).await;
        } else {
            tracing::info!("the store is open");
        }
    }

    async fn poll(&mut self, hold: u64) {
        let asked = self.service.clock.now();
        let begun = Instant::now();
        match self.service.store.poll().await {
            Ok(()) => {
                crate::telemetry::record_poll(begun.elapsed().as_secs_f64());
                if !std::mem::replace(&mut self.store_answers, true) {
                    tracing::info!("the store answers again");
                }
                for hosted in self.service.registry.all().values() {
                    if let Some(generation) = &hosted.generation {
                        generation.store_still_held(hold, asked);
                    }
                }
                self.purge().await;
            }
            Err(error) => {
                crate::telemetry::record_store_error();
                if std::mem::replace(&mut self.store_answers, false) {
                    tracing::error!(%error, "the store does not answer as it should");
                }
                if matches!(error, StoreError::HoldLost { .. }) {
                    self.hold = None;
                }
            }
        }
    }

    /// Deletes some of the rows that deleted filters have left.
    async fn purge(&self) {
        let rows_to_purge = &self.service.rows_to_purge;
        // Taken back before the question: a filter that is deleted meanwhile sets it again.
        if !rows_to_purge.swap(false, Ordering::Relaxed) {
            return;
        }
        match self.service.store.purge().await {
            Ok(false) => {}
            Ok(true) => rows_to_purge.store(true, Ordering::Relaxed),
            Err(error) => {
                rows_to_purge.store(true, Ordering::Relaxed);
                tracing::warn!(%error, "rows of deleted filters were not purged; trying again");
            }
        }
    }

    /// Starts the loads that are missing and stops those of filters that are gone.
    fn start_and_stop_loads(&mut self) {
        let Some(hold) = self.hold else { return };
        let filters = self.service.registry.all();
        let generations: HashMap<FilterId, (&Arc<Hosted>, &Arc<Generation>)> = filters
            .values()
            .filter_map(|hosted| Some((hosted, hosted.generation.as_ref()?)))
            .map(|(hosted, generation)| (generation.filter, (hosted, generation)))
            .collect();
        self.running.retain(|filter, running| {
            let stays = generations
                .get(filter)
                .is_some_and(|(_, generation)| Arc::ptr_eq(generation, &running.generation));
            if !stays {
                running.abort();
            }
            stays
        });
        for (filter, (hosted, generation)) in generations {
            generation.hold_begins(hold);
            let loads_at_once = &self.loads_at_once;
            let service = &self.service;
            let job = |feed: FeedOf| Load {
                service: Arc::clone(service),
                hosted: Arc::clone(hosted),
                generation: Arc::clone(generation),
                feed,
                at_once: loads_at_once.of(feed),
            };
            match self.running.get_mut(&filter) {
                None => {
                    let sources = (0..hosted.sources.len())
                        .map(|index| self.loads.spawn(job(FeedOf::Source(index)).keep_reading()))
                        .collect();
                    let store = self.loads.spawn(job(FeedOf::Store).load_store(hold));
                    let running = Running {
                        generation: Arc::clone(generation),
                        store,
                        loaded_in_hold: hold,
                        sources,
                    };
                    self.running.insert(filter, running);
                }
                Some(running) if running.loaded_in_hold != hold => {
                    running.store.abort();
                    running.store = self.loads.spawn(job(FeedOf::Store).load_store(hold));
                    running.loaded_in_hold = hold;
                }
                Some(_) => {}
            }
        }
    }
}
