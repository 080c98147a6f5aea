//! The lifecycle: reaches the store, hosts the filters that it records, loads them, follows what
//! others write, and puts rebuilt generations in the place of old ones.
//!
//! An *epoch* is the time from one beginning of following to the moment when the store says that the
//! cursor is void. Between two epochs the store may have lost or reused places, so that each new one
//! begins with a full load of every filter, into the bits that are there.
//!
//! Invariants:
//!
//! * a generation is registered, and the epoch's first poll has been answered, before its load takes
//!   its cut. So a row that the cut does not see was written after that poll, and a later poll brings
//!   it;
//! * polls are applied one after the other, each to all generations that are registered by then; a
//!   generation that is complete has all that the last applied poll's cursor reaches;
//! * a poll that tells of other declarations counts for nothing until the filters were listed: what
//!   stands under a name here may be another filter by then;
//! * a load that fails is begun again from its start; a partial one is never taken for the whole.
//!
//! Who sets what: a feed's completeness and age are set here and in [`super::source_reader`], nowhere
//! else.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Service;
use super::cursor::Cursor;
use super::filling::FeedOf;
use super::load::{Loader, LoadsAtOnce, StoreLoaded};
use super::ports::{ChangeSink, FilterId, Moment, Polled, Store, StoreError};
use super::probe::keep_probing;
use super::registry::{Hosted, Registry};
use super::retry::{RETRY_LONGEST, retry_waits};
use super::source_reader::SourceReader;

/// The shortest time between two polls, however many hints come: 200 polls a second at most.
const SHORTEST_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How often the reports of the other processes are looked at while nobody waits for them.
const REPLICAS_INTERVAL: Duration = Duration::from_secs(5);

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
    loads: JoinSet<Option<StoreLoaded>>,
    running: HashMap<FilterId, Running>,
    loads_at_once: LoadsAtOnce,
    is_open: bool,
    /// Up to where the last poll was applied; none before the epoch's first poll.
    cursor: Option<Arc<Cursor>>,
    /// Counts from 1.
    epoch: u64,
    /// As the last poll told it.
    declarations: u64,
    reopen_waits: ExponentialBackoff,
    /// When to look at the other processes' reports.
    replicas_due: Instant,
    store_answers: bool,
}

/// The loads of one filter.
#[derive(Default)]
struct Running {
    /// By the number of the generation: the epoch of its last load, and the load.
    stores: HashMap<u64, (u64, AbortHandle)>,
    /// By the number of the generation: its readers, which end by themselves.
    sources: HashMap<u64, Vec<AbortHandle>>,
}

impl Running {
    fn abort(&self) {
        self.stores.values().for_each(|(_, load)| load.abort());
        self.sources.values().flatten().for_each(AbortHandle::abort);
    }
}

/// Sets what a poll brings in every generation that is registered at that moment.
struct Changes<'a> {
    registry: &'a Registry,
    rows: u64,
}

impl ChangeSink for Changes<'_> {
    fn change(&mut self, filter: FilterId, item: &[u8]) {
        self.rows += 1;
        // Of a filter that is not hosted yet: its load will find the row.
        let entries = self.registry.all();
        let Some(hosted) = entries.of(filter) else {
            return;
        };
        if let Some(canonical) = hosted.declaration.profile.canonicalize(item) {
            for generation in hosted.generations() {
                generation.bloom.add(&canonical.bytes);
            }
        }
    }
}

type Hint = Pin<Box<dyn Future<Output = ()> + Send>>;

fn next_hint(store: &Arc<dyn Store>) -> Hint {
    let store = Arc::clone(store);
    Box::pin(async move { store.hint().await })
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
            is_open: false,
            cursor: None,
            epoch: 0,
            declarations: 0,
            reopen_waits: retry_waits(),
            replicas_due: Instant::now(),
            store_answers: true,
        }
    }

    /// Tries to reach the store and host what it records. [`Lifecycle::run`] does it again as needed;
    /// whoever starts the process tries once before, to tell a store that refuses from one that is
    /// down.
    ///
    /// # Errors
    /// What the store said.
    pub async fn open(&mut self) -> Result<(), StoreError> {
        self.service.take_store().await?;
        self.is_open = true;
        self.store_answers = true;
        self.reopen_waits = retry_waits();
        Ok(())
    }

    /// Counts the times that following has begun, from 1; 0 before the first.
    #[cfg(test)]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Loads, follows, rebuilds and reloads until cancelled.
    ///
    /// # Errors
    /// When a load died.
    pub async fn run(mut self, cancelled: CancellationToken) -> Result<(), LifecycleError> {
        let mut hint = next_hint(&self.service.store);
        let mut due = Instant::now();
        loop {
            self.start_and_stop_loads();
            tokio::select! {
                () = cancelled.cancelled() => break,
                () = self.service.registry_changed.notified() => {}
                Some(ended) = self.loads.join_next() => match ended {
                    Err(error) if error.is_panic() => return Err(LifecycleError::LoadDied(error)),
                    Ok(Some(loaded)) => self.store_was_loaded(loaded),
                    Ok(None) | Err(_) => {}
                },
                () = &mut hint => {
                    hint = next_hint(&self.service.store);
                    due = due.min(Instant::now() + SHORTEST_POLL_INTERVAL);
                }
                () = tokio::time::sleep_until(due) => {
                    let next = tokio::select! {
                        () = cancelled.cancelled() => break,
                        next = self.tick() => next,
                    };
                    due = Instant::now() + next;
                }
            }
        }
        self.loads.shutdown().await;
        Ok(())
    }

    /// Polls the store, or opens it; gives how long to wait until the next time.
    async fn tick(&mut self) -> Duration {
        if self.is_open {
            let next = self.poll().await;
            if self.store_answers {
                let upkeep = Arc::clone(&self.service).keep_up();
                self.loads.spawn(async move {
                    upkeep.await;
                    None
                });
            }
            next
        } else {
            self.open_again().await
        }
    }

    async fn open_again(&mut self) -> Duration {
        match self.open().await {
            Ok(()) => {
                tracing::info!("the store is open");
                Duration::ZERO
            }
            Err(error) => {
                crate::telemetry::record_store_error();
                if std::mem::replace(&mut self.store_answers, false) {
                    tracing::error!(%error, "the store is not open; trying again");
                }
                self.reopen_waits.next().unwrap_or(RETRY_LONGEST)
            }
        }
    }

    pub(super) async fn poll(&mut self) -> Duration {
        let service = Arc::clone(&self.service);
        let asked = service.clock.now();
        let begun = Instant::now();
        let mut changes = Changes {
            registry: &service.registry,
            rows: 0,
        };
        let after = self.cursor.clone();
        match service.store.poll(after.as_deref(), &mut changes).await {
            Ok(polled) => {
                crate::telemetry::record_poll(begun.elapsed().as_secs_f64());
                if !std::mem::replace(&mut self.store_answers, true) {
                    tracing::info!("the store answers again");
                }
                if let Err(error) = self.apply(polled, asked).await {
                    tracing::warn!(%error, "the filters were not listed; trying again");
                    return service.settings.poll_interval;
                }
                self.look_at_replicas(begun).await;
                service.rebuild_what_is_due(asked);
                // Polled again at once, the others learn how far this one has come.
                if changes.rows > 0 {
                    SHORTEST_POLL_INTERVAL
                } else {
                    service.settings.poll_interval
                }
            }
            Err(error) => {
                crate::telemetry::record_store_error();
                if std::mem::replace(&mut self.store_answers, false) {
                    tracing::error!(%error, "the store does not answer as it should");
                }
                if matches!(error, StoreError::CursorVoid { .. }) {
                    self.cursor_is_void();
                    return Duration::ZERO;
                }
                service.settings.poll_interval
            }
        }
    }

    async fn apply(&mut self, polled: Polled, asked: Moment) -> Result<(), StoreError> {
        // First of all: a filter that was made anew under its name has got items that the generation
        // here lacks, however far that has followed the store.
        if self.declarations != polled.declarations {
            self.service.host_what_is_recorded().await?;
            self.declarations = polled.declarations;
        }
        if self.cursor.is_none() {
            self.epoch += 1;
        }
        let cursor = Arc::new(polled.cursor);
        self.service.follows(Some(cursor.timeline));
        self.cursor = Some(Arc::clone(&cursor));
        let entries = self.service.registry.all();
        for generation in entries.filters().flat_map(|hosted| hosted.generations()) {
            generation.followed(self.epoch, &cursor, asked);
        }
        self.service.put_rebuilt_in_place(asked);
        Ok(())
    }

    async fn look_at_replicas(&mut self, now: Instant) {
        if now >= self.replicas_due {
            self.replicas_due = now + REPLICAS_INTERVAL;
            self.service.observe_replicas().await;
        }
    }

    fn cursor_is_void(&mut self) {
        self.cursor = None;
        self.service.follows(None);
        self.is_open = false;
        self.service.abandon_rebuilds();
        let entries = self.service.registry.all();
        for generation in entries.filters().flat_map(|hosted| hosted.generations()) {
            generation.cursor_is_void();
        }
    }

    /// Takes a load for whole, unless the epoch that it began in is over.
    pub(super) fn store_was_loaded(&self, loaded: StoreLoaded) {
        let Some(cursor) = &self.cursor else { return };
        if loaded.epoch != self.epoch || loaded.cut.timeline != cursor.timeline {
            return;
        }
        let cut = Arc::new(loaded.cut);
        let generation = loaded.generation;
        generation.store_loaded(loaded.epoch, cut, loaded.asked, loaded.seconds);
        self.service.snapshot_due.notify_one();
    }

    /// Starts the loads that are missing and stops those of generations that are gone.
    fn start_and_stop_loads(&mut self) {
        let entries = self.service.registry.all();
        self.running.retain(|filter, running| {
            let stays = entries.of(*filter).is_some();
            if !stays {
                running.abort();
            }
            stays
        });
        if self.cursor.is_none() {
            return;
        }
        for hosted in entries.filters() {
            self.load_what_is_missing(hosted);
        }
    }

    fn load_what_is_missing(&mut self, hosted: &Arc<Hosted>) {
        let Some(filter) = hosted.generation.as_ref().map(|current| current.filter) else {
            return;
        };
        let running = self.running.entry(filter).or_default();
        running.stores.retain(|number, (_, load)| {
            let stays = hosted.generations().any(|there| there.number == *number);
            if !stays {
                load.abort();
            }
            stays
        });
        running.sources.retain(|number, sources| {
            let stays = hosted.generations().any(|there| there.number == *number);
            if !stays {
                sources.iter().for_each(AbortHandle::abort);
            }
            stays
        });
        let loader = |feed: FeedOf| Loader {
            service: Arc::clone(&self.service),
            filter: hosted.name.clone(),
            at_once: self.loads_at_once.of(feed),
        };
        for generation in hosted.generations() {
            let number = generation.number;
            if let Some((epoch, load)) = running.stores.get(&number) {
                if *epoch == self.epoch {
                    continue;
                }
                load.abort();
            }
            let epoch = self.epoch;
            let load = loader(FeedOf::Store).load_store(Arc::clone(generation), epoch);
            let load = self.loads.spawn(async move { Some(load.await) });
            running.stores.insert(number, (epoch, load));
            if running.sources.contains_key(&number) {
                continue;
            }
            let sources = hosted.sources.iter().enumerate().map(|(index, source)| {
                let reader = SourceReader {
                    loader: loader(FeedOf::Source(index)),
                    generation: Arc::clone(generation),
                    source: source.clone(),
                    index,
                };
                self.loads.spawn(async move {
                    reader.run().await;
                    None
                })
            });
            let mut reading: Vec<_> = sources.collect();
            for (index, source) in hosted.sources.iter().enumerate() {
                let (service, name) = (Arc::clone(&self.service), hosted.name.clone());
                let probing = keep_probing(service, filter, name, source.clone(), index);
                reading.push(self.loads.spawn(async move {
                    probing.await;
                    None
                }));
            }
            running.sources.insert(number, reading);
        }
    }
}
