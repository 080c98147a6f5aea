//! A store that does in the middle of a commit what a test wants, which no real store does at will.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use uuid::Uuid;

use super::cursor::{Cursor, Timeline};
use super::declaration::{Declaration, DeclaredBy, FilterName};
use super::ingest::Writer;
use super::ports::{
    AddReceipt, ChangeSink, Clock, FilterId, LookUp, Moment, NewRow, Place, Polled, Pruned,
    Removal, Replica, RowSink, Store, StoreError, StoreIdentity, StoreTie, StoredFilter,
};
use super::snapshot_store::{SavedSnapshot, Snapshot, SnapshotError, SnapshotStore};
use super::{Adapters, Service, Settings};
use crate::filter::bloom::BloomFilter;
use crate::filter::hashing::{HashKey, MasterKey};
use crate::filter::profile::Profile;

/// The filter `f`, which it has.
pub(super) const FILTER: FilterId = FilterId(Uuid::from_u128(1));

/// Remembers the items of the commits that it took.
#[derive(Default)]
pub(super) struct StandIn {
    /// The one that fails, counted from 1; none where it is 0.
    pub(super) failing_commit: u64,
    /// Told in the middle of every commit to rebuild its filter.
    pub(super) rebuilds: OnceLock<Arc<Service>>,
    /// Commits that were sent.
    pub(super) commits: AtomicU64,
    /// What they held.
    pub(super) items: Mutex<Vec<String>>,
}

#[async_trait]
impl Store for StandIn {
    async fn open(&self) -> Result<StoreIdentity, StoreError> {
        Ok(StoreIdentity(Uuid::from_u128(2)))
    }

    async fn filters(&self) -> Result<Vec<StoredFilter>, StoreError> {
        Ok(vec![StoredFilter {
            id: FILTER,
            name: FilterName::parse("f").unwrap(),
            declaration: Declaration::new(Profile::Text, 100_000, 0.01).unwrap(),
            profile_version: Profile::Text.version(),
            declared_by: DeclaredBy::Api,
            forgotten: 0,
        }])
    }

    async fn declare(
        &self,
        _: &FilterName,
        _: &Declaration,
        _: DeclaredBy,
    ) -> Result<Option<StoredFilter>, StoreError> {
        Err(down())
    }

    async fn delete(&self, _: FilterId) -> Result<bool, StoreError> {
        Err(down())
    }

    async fn purge(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn remove(&self, _: FilterId, _: &[u8]) -> Result<Option<Removal>, StoreError> {
        Err(down())
    }

    async fn prune(&self, _: SignedDuration) -> Result<Pruned, StoreError> {
        Err(down())
    }

    async fn look_up(
        &self,
        _: FilterId,
        _: &Declaration,
        _: &[u8],
        _: SignedDuration,
    ) -> Result<LookUp, StoreError> {
        Err(down())
    }

    async fn add(&self, rows: &[NewRow]) -> Result<AddReceipt, StoreError> {
        let commit = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        if commit == self.failing_commit {
            return Err(down());
        }
        if let Some(service) = self.rebuilds.get() {
            service.rebuild("f").await.unwrap();
        }
        let items = rows
            .iter()
            .map(|row| String::from_utf8_lossy(&row.item).into());
        self.items.lock().unwrap().extend(items);
        Ok(AddReceipt {
            timeline: Timeline([0; 16]),
            place: Place(commit),
            cursor: None,
            deleted: Vec::new(),
        })
    }

    async fn load(
        &self,
        _: FilterId,
        _: Option<&Cursor>,
        _: &mut dyn RowSink,
    ) -> Result<Cursor, StoreError> {
        Err(down())
    }

    async fn poll(&self, _: Option<&Cursor>, _: &mut dyn ChangeSink) -> Result<Polled, StoreError> {
        Err(down())
    }

    async fn hint(&self) {
        std::future::pending().await
    }

    async fn replicas(&self) -> Result<Vec<Replica>, StoreError> {
        Ok(Vec::new())
    }

    async fn forget_replica(&self, _: Uuid) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) {}
}

fn down() -> StoreError {
    StoreError::Unreachable {
        what: "the store".to_owned(),
        detail: "as the test wants it".to_owned(),
    }
}

/// A world in which nothing happens.
pub(super) struct World;

impl StoreTie for World {
    fn tie(&self, _: StoreIdentity) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Keeps nothing.
impl SnapshotStore for World {
    fn save(&self, _: &Snapshot, _: &BloomFilter) -> Result<u64, SnapshotError> {
        Ok(0)
    }

    fn filters(&self) -> Result<Vec<FilterId>, SnapshotError> {
        Ok(Vec::new())
    }

    fn head(&self, filter: FilterId) -> Result<SavedSnapshot, SnapshotError> {
        Err(SnapshotError::NotThere(filter.0))
    }

    fn restore(&self, saved: &SavedSnapshot, _: HashKey) -> Result<BloomFilter, SnapshotError> {
        Err(SnapshotError::NotThere(saved.snapshot.filter.0))
    }

    fn set_aside(&self, _: FilterId, _: &str) -> Result<(), SnapshotError> {
        Ok(())
    }

    fn retain(&self, _: &[FilterId]) -> Result<(), SnapshotError> {
        Ok(())
    }
}

impl Clock for World {
    fn now(&self) -> Moment {
        Moment {
            monotonic_ms: 0,
            wall_ms: 0,
        }
    }
}

/// Settings under which nothing happens by itself.
pub(super) fn settings() -> Settings {
    Settings {
        max_staleness: Duration::from_secs(30),
        poll_interval: Duration::from_secs(1),
        rebuild_interval: Duration::from_secs(3_600),
        change_retention: Duration::from_secs(3_600),
        snapshot_interval: Duration::from_secs(3_600),
        wait_timeout: Duration::from_secs(1),
        expiry_leeway: SignedDuration::ZERO,
        max_batch: 10,
        max_confirms: 1,
        memory_budget_bytes: 1 << 24,
    }
}

/// A service on such a store, which was opened, and the writer that nobody runs yet.
pub(super) async fn service_on(store: &Arc<StandIn>) -> (Arc<Service>, Writer) {
    let adapters = Adapters {
        store: Arc::<StandIn>::clone(store),
        tie: Arc::new(World),
        snapshots: Arc::new(World),
        clock: Arc::new(World),
    };
    let master_key = MasterKey::from_bytes([7; MasterKey::BYTES]);
    let (service, writer) = Service::new(settings(), adapters, master_key, Vec::new());
    service.take_store().await.unwrap();
    (service, writer)
}
