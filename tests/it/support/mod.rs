//! What the tests share: servers of their own to run, ask and break.
//!
//! - [`Database`]: a fresh database for each test, in the cluster that `tests/run` has started.
//! - [`Cluster`]: a PostgreSQL server of one's own, to stop, kill and start again.
//! - [`Standby`]: a second server that follows a cluster, to fail over to; [`Backup`]: a copy of
//!   a cluster's data folder, to go back to.
//! - [`PgBouncer`]: a pool in transaction mode in front of a database.
//! - [`Proxy`]: a network between the program and its database that can fail in every way.
//! - [`Bloomgate`]: the real program, as a process of its own.
//! - [`Random`]: random numbers that a printed seed gives again.
//! - [`Roads`]: the program with a filter for each road that an item can come by.
//!
//! Nothing here sleeps for luck: whatever takes time is polled with a deadline ([`eventually`]).

// Each topic uses its part; what no test uses at the moment is still checked by `tests` below.
#![allow(dead_code)]

mod answer;
mod backup;
mod bloomgate;
mod cluster;
mod database;
pub(crate) mod environment;
mod launch;
mod pgbouncer;
mod proxy;
mod random;
mod roads;
mod standby;
#[cfg(test)]
mod tests;

#[allow(unused_imports)]
pub(crate) use self::{
    answer::{Answer, Checked},
    backup::Backup,
    bloomgate::Bloomgate,
    cluster::{Cluster, free_port},
    database::{Database, DatabaseOptions},
    environment::tls_folder,
    launch::{Finished, Launch},
    pgbouncer::PgBouncer,
    proxy::{Conduct, Proxy},
    random::Random,
    roads::Roads,
    standby::Standby,
};

use std::time::{Duration, Instant};

/// How often a condition is looked at while it is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until `condition` gives something, and gives that. Panics with `what` past the deadline.
pub(crate) async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(
            started.elapsed() < deadline,
            "not within {deadline:?}: {what}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
