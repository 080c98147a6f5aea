//! What a service is made with: its settings and its adapters.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;

use super::ports::{Clock, Store, StoreTie};
use super::snapshot_store::SnapshotStore;

/// What the service is told once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The age past which the store counts as not followed.
    pub max_staleness: Duration,
    /// How often the store is asked.
    pub poll_interval: Duration,
    /// The age at which a generation is rebuilt.
    pub rebuild_interval: Duration,
    /// How long records of a source's changes are kept.
    pub change_retention: Duration,
    /// How often generations are saved.
    pub snapshot_interval: Duration,
    /// How long an add may wait until it is effective everywhere.
    pub wait_timeout: Duration,
    /// How long an item is kept past its expiry.
    pub expiry_leeway: SignedDuration,
    /// The most items in a batch.
    pub max_batch: usize,
    /// The most look-ups that settle a `maybe`, at a time.
    pub max_confirms: usize,
    /// The most bytes that all bits may take together.
    pub memory_budget_bytes: u64,
}

/// What the service works with.
pub struct Adapters {
    /// The durable record of what was added.
    pub store: Arc<dyn Store>,
    /// What ties the store to the data directory.
    pub tie: Arc<dyn StoreTie>,
    /// Where generations are saved.
    pub snapshots: Arc<dyn SnapshotStore>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}
