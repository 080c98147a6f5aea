//! What a bulk load says of itself when a commit in its middle fails, which no real store does at
//! will.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::filter::bloom::BloomFilter;
use crate::filter::hashing::{HashKey, MasterKey};
use crate::filter::profile::Profile;
use crate::service::cursor::{Cursor, Timeline};
use crate::service::declaration::{Declaration, DeclaredBy, FilterName};
use crate::service::ports::{
    AddReceipt, ChangeSink, Clock, FilterId, Moment, Place, Polled, Replica, RowSink, Store,
    StoreError, StoreIdentity, StoreTie, StoredFilter,
};
use crate::service::snapshot_store::{SavedSnapshot, Snapshot, SnapshotError, SnapshotStore};
use crate::service::{Adapters, Service, Settings};

const FILTER: FilterId = FilterId(Uuid::from_u128(1));

/// Takes every commit but one, and remembers the items of those that it took.
struct FailingOnce {
    failing_commit: u64,
    commits: AtomicU64,
    items: Mutex<Vec<String>>,
}

#[async_trait]
impl Store for FailingOnce {
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

    async fn add(&self, rows: &[NewRow]) -> Result<AddReceipt, StoreError> {
        let commit = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        if commit == self.failing_commit {
            return Err(down());
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
pub(in crate::service) struct World;

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

#[tokio::test]
async fn what_is_accepted_is_a_prefix_of_the_stream_also_when_a_commit_in_the_middle_fails() {
    for failing_commit in 1..=4 {
        let store = Arc::new(FailingOnce {
            failing_commit,
            commits: AtomicU64::new(0),
            items: Mutex::default(),
        });
        let settings = Settings {
            max_staleness: std::time::Duration::from_secs(30),
            poll_interval: std::time::Duration::from_millis(500),
            change_retention: std::time::Duration::from_secs(3_600),
            snapshot_interval: std::time::Duration::from_secs(3_600),
            rebuild_interval: std::time::Duration::from_secs(3_600),
            wait_timeout: std::time::Duration::from_secs(1),
            expiry_leeway: jiff::SignedDuration::ZERO,
            max_batch: 10,
            memory_budget_bytes: 1 << 24,
        };
        let adapters = Adapters {
            store: store.clone(),
            tie: Arc::new(World),
            snapshots: Arc::new(World),
            clock: Arc::new(World),
        };
        let master_key = MasterKey::from_bytes([7; MasterKey::BYTES]);
        let (service, writer) = Service::new(settings, adapters, master_key, Vec::new());
        service.take_store().await.unwrap();
        let stop = CancellationToken::new();
        let writing = tokio::spawn(writer.run(stop.clone()));

        let mut load = service.bulk_load("f").await.unwrap();
        let stream: Vec<String> = (0..PART_ITEMS * 7 / 2).map(|n| n.to_string()).collect();
        for item in &stream {
            if load.push(item, None).await.is_err() {
                break;
            }
        }
        let _ = load.finish().await;

        let accepted = usize::try_from(load.accepted()).unwrap();
        assert_eq!(
            accepted,
            PART_ITEMS * usize::try_from(failing_commit - 1).unwrap()
        );
        assert_eq!(*store.items.lock().unwrap(), stream[..accepted]);
        drop(load);
        stop.cancel();
        writing.await.unwrap();
    }
}
