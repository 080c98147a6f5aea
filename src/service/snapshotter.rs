//! Snapshots: when generations are saved, and which are taken back at the start.
//!
//! A snapshot spares the load of what it holds, and nothing rests on it: one that is missing or does
//! not fit is loaded from the store and the sources instead. What was restored answers `maybe` until
//! the lifecycle has brought it up to the store's present, and every source was read in this process.
//!
//! Invariants: the cursor of a snapshot is taken before its bits, so that the bits have whatever the
//! cursor reaches; what was restored is registered before anything is loaded into it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::Service;
use super::cursor::Timeline;
use super::declaration::{Declaration, DeclaredBy};
use super::generation::Generation;
use super::ports::{FilterId, StoreIdentity, StoredFilter};
use super::registry::{ConfiguredSource, Hosted};
use super::snapshot_store::{SavedSnapshot, Snapshot, SnapshotSource};

/// How long to wait after a load, for others are likely to end as well.
const AFTER_A_LOAD: Duration = Duration::from_secs(1);

/// What was saved last, by filter: the number of the generation, its ones, and the timeline of its
/// cursor, without which it would be loaded in full again.
pub(super) type Saved = Mutex<HashMap<FilterId, (u64, u64, Timeline)>>;

impl Service {
    /// Hosts what snapshots there are, before the store has told its filters: a filter that was made
    /// anew meanwhile is replaced when it has.
    ///
    /// Blocks for as long as the disk takes.
    pub fn restore_snapshots(&self) {
        let filters = match self.snapshots.filters() {
            Ok(filters) => filters,
            Err(error) => {
                tracing::warn!(%error, "snapshots were not read; everything is loaded instead");
                return;
            }
        };
        let mut found: Vec<_> = filters
            .into_iter()
            .filter_map(|filter| match self.snapshots.head(filter) {
                Ok(saved) => Some(saved),
                Err(error) => {
                    tracing::warn!(%error, "a snapshot was not taken; its filter is loaded instead");
                    None
                }
            })
            .collect();
        // Of a name that was declared again there may be two: the last one stays in the registry.
        found.sort_by_key(|saved| saved.snapshot.taken_at);
        for saved in found {
            let (filter, name) = (saved.snapshot.filter, saved.snapshot.name.clone());
            match self.restored(&saved) {
                Ok(hosted) => {
                    tracing::info!(filter = %name, taken_at = %saved.snapshot.taken_at, "restored");
                    self.registry.put(&[Arc::new(hosted)]);
                }
                Err(why) => {
                    tracing::warn!(filter = %name, why, "a snapshot was not taken; its filter is loaded instead");
                    if let Err(error) = self.snapshots.set_aside(filter, &why) {
                        tracing::warn!(%error, "a snapshot that does not fit is still in its place");
                    }
                }
            }
        }
    }

    /// The filter of a snapshot, or why it does not fit.
    fn restored(&self, saved: &SavedSnapshot) -> Result<Hosted, String> {
        let snapshot = &saved.snapshot;
        let configured = self
            .configured
            .iter()
            .find(|configured| configured.name == snapshot.name);
        let (declaration, sources, declared_by): (_, Arc<[ConfiguredSource]>, _) = match configured
        {
            Some(configured) => (
                configured.declaration.clone(),
                Arc::clone(&configured.sources),
                DeclaredBy::Config,
            ),
            None if snapshot.sources.is_empty() => {
                let declaration = Declaration {
                    profile: snapshot.profile,
                    sizing: snapshot.declared,
                    sources: Vec::new(),
                };
                (declaration, Arc::from([]), DeclaredBy::Api)
            }
            None => return Err("the configuration declares no such filter any more".to_owned()),
        };
        if snapshot.profile != declaration.profile {
            return Err("it is of another profile, or of other options".to_owned());
        }
        if snapshot.declared != declaration.sizing {
            return Err("the filter is declared with another capacity or rate now".to_owned());
        }
        let key = self.master_key.filter_key(snapshot.filter.0.as_bytes());
        if saved.key_id != key.id() {
            return Err("it is under another hash key".to_owned());
        }
        let stored = StoredFilter {
            id: snapshot.filter,
            name: snapshot.name.clone(),
            profile_version: declaration.profile.version(),
            declaration,
            declared_by,
            forgotten: snapshot.forgotten,
        };
        let room = self.budget.reserve(saved.sizing.memory_bytes());
        let room = room.map_err(|error| error.to_string())?;
        let bloom = self.snapshots.restore(saved, key);
        let bloom = bloom.map_err(|error| error.to_string())?;
        let parts = self.parts(&stored, &sources, 1, bloom, room);
        let cursor = Arc::new(snapshot.cursor.clone());
        let generation = Generation::restored(parts, cursor, snapshot.keeps_unaccounted_bits);
        Ok(Hosted::new(stored, sources, Some(Arc::new(generation))))
    }

    /// Saves every generation that has changed since it was saved last, each on a thread where
    /// blocking is allowed, and removes what there is of filters that the store has no more.
    ///
    /// # Errors
    /// When a saving panicked.
    pub async fn save_snapshots(self: &Arc<Self>) -> Result<(), JoinError> {
        let service = Arc::clone(self);
        tokio::task::spawn_blocking(move || service.forget_snapshots()).await?;
        for hosted in self.registry.all().filters() {
            let (service, hosted) = (Arc::clone(self), Arc::clone(hosted));
            tokio::task::spawn_blocking(move || service.save_snapshot(&hosted)).await?;
        }
        Ok(())
    }

    fn save_snapshot(&self, hosted: &Hosted) {
        let Some(generation) = hosted.generation.as_ref().filter(|of| of.was_complete()) else {
            return;
        };
        let Some(store) = self.identity.get() else {
            return;
        };
        let ones = generation.bloom.statistics().ones;
        let now_ms = self.clock.now().wall_ms;
        let taken_at = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        let Some(snapshot) = snapshot_of(hosted, generation, *store, taken_at) else {
            return;
        };
        let state = (generation.number, ones, snapshot.cursor.timeline);
        if self.saved().get(&generation.filter) == Some(&state) {
            return;
        }
        match self.snapshots.save(&snapshot, &generation.bloom) {
            Ok(snapshot_bytes) => {
                self.saved().insert(generation.filter, state);
                tracing::debug!(filter = %hosted.name, snapshot_bytes, "saved");
            }
            Err(error) => {
                tracing::warn!(filter = %hosted.name, %error, "a snapshot was not saved");
            }
        }
    }

    /// Removes the snapshots of filters that the store did not have when it was last asked.
    fn forget_snapshots(&self) {
        let recorded = self.recorded.load_full();
        let Some(recorded) = recorded else { return };
        self.saved().retain(|filter, _| recorded.contains(filter));
        if let Err(error) = self.snapshots.retain(&recorded) {
            tracing::warn!(%error, "snapshots of filters that are gone are still there");
        }
    }

    fn saved(&self) -> std::sync::MutexGuard<'_, HashMap<FilterId, (u64, u64, Timeline)>> {
        // Nothing in here can leave the map half changed.
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves at every `snapshot_interval` and after loads, until cancelled.
    ///
    /// # Errors
    /// When a saving panicked.
    pub async fn keep_saving(
        self: Arc<Self>,
        cancelled: CancellationToken,
    ) -> Result<(), JoinError> {
        loop {
            let due = async {
                tokio::select! {
                    () = tokio::time::sleep(self.settings.snapshot_interval) => {}
                    () = self.snapshot_due.notified() => tokio::time::sleep(AFTER_A_LOAD).await,
                }
            };
            tokio::select! {
                () = cancelled.cancelled() => return Ok(()),
                () = due => self.save_snapshots().await?,
            }
        }
    }
}

/// What to save of a generation; none while its cursor does not hold.
fn snapshot_of(
    hosted: &Hosted,
    generation: &Generation,
    store: StoreIdentity,
    taken_at: Timestamp,
) -> Option<Snapshot> {
    Some(Snapshot {
        filter: generation.filter,
        name: hosted.name.clone(),
        profile: generation.declaration.profile,
        declared: generation.declaration.sizing,
        store,
        cursor: generation.cursor()?.as_ref().clone(),
        sources: generation
            .sources
            .iter()
            .map(|feed| SnapshotSource {
                name: feed.name.clone(),
                cursor: None,
            })
            .collect(),
        keeps_unaccounted_bits: generation.keeps_unaccounted_bits(),
        taken_at,
        forgotten: generation.forgotten_before,
    })
}
