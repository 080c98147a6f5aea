//! Upkeep of the store: what deleted filters have left goes, and what has expired; and the filters
//! are listed anew now and then, for what has been forgotten of them tells when to rebuild.
//!
//! It runs beside the polls, which wait for none of it, a bounded part at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Service;

/// How often expired rows are looked for, and the filters listed.
const INTERVAL: Duration = Duration::from_secs(60);

/// When to do what again.
#[derive(Debug)]
pub(super) struct Due {
    prune: Instant,
    listing: Instant,
}

impl Default for Due {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            prune: now,
            listing: now + INTERVAL,
        }
    }
}

impl Service {
    /// Does a part of what is due; nothing while another part is under way.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let Ok(mut due) = self.upkeep.try_lock() else {
            return;
        };
        self.purge().await;
        if Instant::now() >= due.prune {
            due.prune = self.prune().await;
        }
        let is_forgotten = self.rows_were_forgotten.swap(false, Ordering::Relaxed);
        if is_forgotten || Instant::now() >= due.listing {
            due.listing = Instant::now() + INTERVAL;
            if let Err(error) = self.host_what_is_recorded().await {
                tracing::warn!(%error, "the filters were not listed; trying again");
                self.rows_were_forgotten.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Deletes some of the rows that deleted filters have left.
    async fn purge(&self) {
        // Taken back before the question: a filter that is deleted meanwhile sets it again.
        if !self.rows_to_purge.swap(false, Ordering::Relaxed) {
            return;
        }
        match self.store.purge().await {
            Ok(false) => {}
            Ok(true) => self.rows_to_purge.store(true, Ordering::Relaxed),
            Err(error) => {
                self.rows_to_purge.store(true, Ordering::Relaxed);
                tracing::warn!(%error, "rows of deleted filters were not purged; trying again");
            }
        }
    }

    /// Deletes some of the rows that have expired, and gives when to go on.
    async fn prune(&self) -> Instant {
        let now = Instant::now();
        match self.store.prune(self.settings.expiry_leeway).await {
            Ok(pruned) => {
                if pruned.rows > 0 {
                    let rows = pruned.rows;
                    tracing::info!(rows, "expired rows were deleted");
                    self.rows_were_forgotten.store(true, Ordering::Relaxed);
                }
                if pruned.more { now } else { now + INTERVAL }
            }
            Err(error) => {
                tracing::warn!(%error, "expired rows were not deleted; trying again");
                now + INTERVAL
            }
        }
    }
}
