//! Reading a source for a generation: loaded in full, then followed where its changes are recorded, else
//! loaded again at its interval.
//!
//! Invariants:
//!
//! * whatever is read is set in every generation that the filter has by then, whichever it is read
//!   for: a generation that takes another's place lacks nothing that was read for that one;
//! * a generation is followed only from a load that it was filled by.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Service;
use super::cursor::Cursor;
use super::filling::FeedOf;
use super::generation::Generation;
use super::load::Loader;
use super::ports::{FilterId, RowSink, StoreError};
use super::registry::ConfiguredSource;
use super::retry::{RETRY_LONGEST, retry_waits};

/// How often records of changes that are past their retention are looked for.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);

/// Reads one source for one generation.
pub struct SourceReader {
    /// How it is loaded.
    pub loader: Loader,
    /// The generation that it is read for.
    pub generation: Arc<Generation>,
    /// The source.
    pub source: ConfiguredSource,
    /// Its index among the filter's sources.
    pub index: usize,
}

/// Sets what a poll brings in every generation that the filter has at that moment.
struct Changes<'a> {
    service: &'a Service,
    filter: FilterId,
    feed: FeedOf,
}

impl RowSink for Changes<'_> {
    fn begin(&mut self, _rows_expected: u64, _database_now: Timestamp) {}

    fn row(&mut self, item: Option<&[u8]>, _expires_at: Option<Timestamp>) {
        let entries = self.service.registry.all();
        let Some(hosted) = entries.of(self.filter) else {
            return;
        };
        let profile = hosted.declaration.profile;
        let Some(item) = item else { return };
        if let Some(canonical) = profile.canonicalize(item) {
            for generation in hosted.generations() {
                let askable = &self.feed.of(generation).askable;
                askable.took(item, &canonical.bytes);
                generation.bloom.add(&canonical.bytes);
            }
        }
    }
}

impl SourceReader {
    /// Reads until the generation is gone.
    pub async fn run(self) {
        let mut waits = retry_waits();
        while self.is_wanted() {
            match self.load().await {
                Ok(followed_from) => {
                    waits = retry_waits();
                    match followed_from {
                        Some(cursor) => self.follow(cursor).await,
                        None => tokio::time::sleep(self.source.refresh_interval).await,
                    }
                }
                Err(()) => tokio::time::sleep(waits.next().unwrap_or(RETRY_LONGEST)).await,
            }
        }
    }

    fn service(&self) -> &Service {
        &self.loader.service
    }

    fn feed(&self) -> FeedOf {
        FeedOf::Source(self.index)
    }

    fn is_wanted(&self) -> bool {
        let entries = self.service().registry.all();
        entries.of(self.generation.filter).is_some_and(|hosted| {
            let mut generations = hosted.generations();
            generations.any(|there| Arc::ptr_eq(there, &self.generation))
        })
    }

    /// Loads it in full. Gives the cursor of the cut where its changes are recorded; what failed is
    /// logged.
    async fn load(&self) -> Result<Option<Cursor>, ()> {
        let entries = self.service().registry.all();
        let hosted = entries.of(self.generation.filter).ok_or(())?;
        let generations: Vec<_> = hosted.generations().cloned().collect();
        drop(entries);
        let feed = self.feed();
        let mut filling = self.loader.filling(generations, feed);
        let load = self.source.adapter.load(&mut filling);
        let (outcome, took) = self.loader.timed(load).await;
        match outcome {
            Ok(followed_from) => {
                let bound = match followed_from {
                    Some(_) => self.source.followed_max_staleness,
                    None => self.source.max_staleness,
                };
                let (generations, rows) = filling.finish().await;
                self.loader
                    .log_loaded(feed, &generations, rows, took.seconds);
                let now = self.service().clock.now();
                for generation in generations {
                    let feed = feed.of(&generation);
                    feed.set_max_staleness(bound);
                    feed.load_succeeded(took.asked, took.seconds);
                    generation.note_completion(now);
                }
                self.service().snapshot_due.notify_one();
                Ok(followed_from)
            }
            Err(error) => {
                let (generations, _) = filling.finish().await;
                let feeds: Vec<_> = generations.iter().map(|of| feed.of(of)).collect();
                self.loader.log_failed(&feeds, &error);
                Err(())
            }
        }
    }

    /// Polls the source until its cursor is void or the generation is gone.
    async fn follow(&self, mut cursor: Cursor) {
        let feed = self.feed().of(&self.generation);
        let mut prune_due = Instant::now() + PRUNE_INTERVAL;
        let mut answers = true;
        while self.is_wanted() {
            tokio::time::sleep(self.service().settings.poll_interval).await;
            let asked = self.service().clock.now();
            let mut changes = Changes {
                service: self.service(),
                filter: self.generation.filter,
                feed: self.feed(),
            };
            match self.source.adapter.poll(&cursor, &mut changes).await {
                Ok(now) => {
                    cursor = now;
                    feed.followed.set(asked);
                    answers = true;
                }
                Err(error) => {
                    let is_void = matches!(error, StoreError::CursorVoid { .. });
                    if is_void {
                        feed.becomes_void();
                    }
                    if is_void || std::mem::replace(&mut answers, false) {
                        self.loader.log_failed(&[feed], &error);
                    }
                    if is_void {
                        return;
                    }
                }
            }
            if Instant::now() >= prune_due {
                prune_due = self.prune().await;
            }
        }
    }

    /// Deletes some records of changes that are past their retention, and says when to look again.
    async fn prune(&self) -> Instant {
        let retention = self.service().settings.change_retention;
        match self.source.adapter.prune(retention).await {
            Ok(true) => Instant::now(),
            Ok(false) => Instant::now() + PRUNE_INTERVAL,
            Err(error) => {
                let (filter, source) = (&self.loader.filter, &self.source.name);
                tracing::warn!(%filter, source, %error, "records of changes were not pruned");
                Instant::now() + PRUNE_INTERVAL
            }
        }
    }
}
