//! The hold on a store: that this process alone writes to it.
//!
//! Two things together make it. A session-level advisory lock keeps a second process from
//! starting; it goes with its session, so a process that died holds nothing. And an epoch in the
//! table `store`, drawn anew by each holder and compared by every write in its own statement: a
//! process whose session broke without its notice writes nothing once another has taken over.
//!
//! Setting the epoch waits for the writes that are under way, for they hold the row. So whatever
//! a predecessor has acknowledged, or yet will, is visible to every load of its successor.

use std::time::Duration;

use sqlx::PgConnection;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::SESSION_SETTINGS;
use super::errors::{Fault, classify, within};
use super::migrate::migrate;
use super::session::{self, STEP_LIMIT, Scope};
use super::url::Target;
use crate::service::ports::{StoreError, StoreIdentity};

/// The bytes are "bloomgat".
const LOCK_KEY: i64 = 0x626c_6f6f_6d67_6174;

/// How long a predecessor's session may linger: a killed process' one ends with its last
/// statement.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

const LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// Time for a predecessor's writes to end; a deletion may take longer, and the next try waits again.
const TAKE_LIMIT: Duration = Duration::from_secs(60);

/// First server with `xid8` and `pg_current_snapshot`.
const OLDEST_SERVER: i32 = 13_00_00;

/// The hold, from [`Hold::take`] until its session ends.
pub(super) struct Hold {
    /// The store that is held.
    pub(super) identity: StoreIdentity,
    /// What every write must find in the table `store`.
    pub(super) epoch: i64,
    /// The session that has the lock; none once it broke.
    session: Mutex<Option<PgConnection>>,
}

impl Hold {
    /// Connects, migrates and takes the store.
    ///
    /// # Errors
    /// As [`Store::open`](crate::service::ports::Store::open).
    pub(super) async fn take(target: &Target) -> Result<Self, StoreError> {
        let what = &target.what;
        let mut session = target.connect().await?;
        session::set(&mut session, what, SESSION_SETTINGS, Scope::Session).await?;
        refuse_unfit_server(&mut session, what).await?;
        lock(&mut session, what).await?;
        migrate(&mut session, what).await?;
        let epoch = random_epoch(what)?;
        let take =
            sqlx::query_scalar("UPDATE bloomgate.store SET holder_epoch = $1 RETURNING identity")
                .bind(epoch);
        // It waits for what a predecessor has under way.
        unlimited(&mut session, what).await?;
        let identity: Uuid = within(TAKE_LIMIT, what, take.fetch_one(&mut session)).await?;
        session::set(&mut session, what, SESSION_SETTINGS, Scope::Session).await?;
        Ok(Self {
            identity: StoreIdentity(identity),
            epoch,
            session: Mutex::new(Some(session)),
        })
    }

    /// Asks over the session that has the lock, which proves that it lives, whether the store is
    /// still ours.
    ///
    /// # Errors
    /// [`StoreError::HoldLost`] when it is not, or when the session broke or does not answer
    /// within `limit`; [`StoreError::Refused`] when the server has become a standby.
    pub(super) async fn check(&self, what: &str, limit: Duration) -> Result<(), StoreError> {
        let mut guard = self.session.lock().await;
        let session = guard
            .as_mut()
            .ok_or_else(|| lost(what, "its session broke"))?;
        let question = sqlx::query_as(
            "SELECT pg_is_in_recovery(), (SELECT holder_epoch FROM bloomgate.store)",
        );
        let answer = match tokio::time::timeout(limit, question.fetch_one(session)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => match classify(&error) {
                Fault::Unreachable(detail) => {
                    *guard = None;
                    return Err(lost(what, &format!("its session broke: {detail}")));
                }
                fault @ (Fault::Refused(_) | Fault::Failed(_)) => return Err(fault.of(what)),
            },
            Err(_elapsed) => {
                *guard = None;
                let detail = format!("its session gave no answer within {limit:?}");
                return Err(lost(what, &detail));
            }
        };
        let (is_standby, epoch): (bool, Option<i64>) = answer;
        if is_standby {
            return Err(standby(what));
        }
        if epoch != Some(self.epoch) {
            *guard = None;
            return Err(lost(what, "another process has taken it"));
        }
        Ok(())
    }

    /// Lets go.
    pub(super) async fn release(&self) {
        if let Some(session) = self.session.lock().await.take() {
            session::close(session).await;
        }
    }
}

/// No counter: after a failover that lost the last step, two processes would count to the same.
fn random_epoch(what: &str) -> Result<i64, StoreError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Fault::Failed(format!("no random bytes are to be had here: {error}")).of(what)
    })?;
    Ok(i64::from_ne_bytes(bytes))
}

/// That the hold is gone.
pub(super) fn lost(what: &str, detail: &str) -> StoreError {
    StoreError::HoldLost {
        what: what.to_owned(),
        detail: detail.to_owned(),
    }
}

fn standby(what: &str) -> StoreError {
    let detail = "it is a standby, which takes no writes; give the address of the primary";
    Fault::Refused(detail.to_owned()).of(what)
}

/// Lifts the time limit of statements; ours, on this side, stays.
async fn unlimited(session: &mut PgConnection, what: &str) -> Result<(), StoreError> {
    session::set(session, what, &[("statement_timeout", "0")], Scope::Session).await
}

/// Refuses a server that is too old, or a standby.
///
/// # Errors
/// [`StoreError::Refused`]; else when it does not answer.
pub(super) async fn refuse_unfit_server(
    session: &mut PgConnection,
    what: &str,
) -> Result<(), StoreError> {
    let question =
        sqlx::query_as("SELECT current_setting('server_version_num')::int, pg_is_in_recovery()");
    let (version, is_standby): (i32, bool) =
        within(STEP_LIMIT, what, question.fetch_one(session)).await?;
    if version < OLDEST_SERVER {
        let detail = format!(
            "expected PostgreSQL 13 or newer, found {}; use a newer server",
            version / 10_000
        );
        return Err(Fault::Refused(detail).of(what));
    }
    if is_standby {
        return Err(standby(what));
    }
    Ok(())
}

/// Takes the advisory lock, waiting a little for a predecessor that is on its way out.
async fn lock(session: &mut PgConnection, what: &str) -> Result<(), StoreError> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        let attempt = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(LOCK_KEY);
        if within(STEP_LIMIT, what, attempt.fetch_one(&mut *session)).await? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(StoreError::HeldElsewhere {
                what: what.to_owned(),
                detail: describe_holder(session, what).await,
            });
        }
        sleep(LOCK_INTERVAL).await;
    }
}

type Holder = (i32, Option<String>, Option<String>, Option<String>);

/// What the server tells of the session that has the lock. Of another role's sessions it tells
/// the process id alone.
async fn describe_holder(session: &mut PgConnection, what: &str) -> String {
    let question = sqlx::query_as::<_, Holder>(
        "SELECT lock.pid, holder.application_name, host(holder.client_addr),
                to_char(holder.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')
           FROM pg_locks AS lock LEFT JOIN pg_stat_activity AS holder ON holder.pid = lock.pid
          WHERE lock.locktype = 'advisory' AND lock.granted AND lock.objsubid = 1
            AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (lock.classid::bigint << 32) | lock.objid::bigint = $1",
    )
    .bind(LOCK_KEY);
    let holder = within(STEP_LIMIT, what, question.fetch_optional(session)).await;
    let known = match holder {
        Ok(Some((pid, name, address, since))) => {
            let name = name.unwrap_or_default().escape_debug().to_string();
            let address = address.unwrap_or_else(|| "a local socket or hidden".to_owned());
            let since = since.unwrap_or_else(|| "unknown".to_owned());
            format!(
                " (application_name \"{name}\", client address {address}, server process {pid}, \
                 connected since {since})"
            )
        }
        Ok(None) | Err(_) => String::new(),
    };
    format!(
        "{known}: stop that process, or give this one another database; if it is dead, its \
         session ends by itself or by pg_terminate_backend"
    )
}
