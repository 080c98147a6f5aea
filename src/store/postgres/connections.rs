//! Sessions for statements that touch the store, kept open between them.
//!
//! Invariant: a session comes back only after a statement that ended well. One that was given
//! up, timed out or broke is dropped with its statement, and the server rolls back. (sqlx's own
//! pool asks the server once more after every statement, and keeps a half-open session's place.)

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::errors::{Fault, within};
use super::server::{refuse_unfit, renew_marker};
use super::session::{STEP_LIMIT, Session, Step};
use super::url::Target;
use super::{SESSION_SETTINGS, WRITE_LIMIT};
use crate::service::ports::StoreError;

/// A session that has lain idle for longer is asked before it is used: the server may have been
/// started anew.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// Time to answer that question.
const PING_LIMIT: Duration = Duration::from_secs(2);

struct Idle {
    session: Session,
    since: Instant,
}

/// At most `limit` sessions at once.
pub(super) struct Connections {
    target: Arc<Target>,
    permits: Semaphore,
    idle: Mutex<Vec<Idle>>,
}

impl Connections {
    /// Opens nothing yet.
    pub(super) fn new(target: Arc<Target>, limit: usize) -> Self {
        Self {
            target,
            permits: Semaphore::new(limit),
            idle: Mutex::new(Vec::new()),
        }
    }

    /// A session, when one is free: an idle one or a new one.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] when none is free in time; else as connecting does.
    pub(super) async fn checkout(&self) -> Result<Checkout<'_>, StoreError> {
        let what = &self.target.what;
        let permit = match tokio::time::timeout(WRITE_LIMIT, self.permits.acquire()).await {
            Ok(Ok(permit)) => permit,
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => {
                let detail = format!("no session was free within {WRITE_LIMIT:?}");
                return Err(Fault::Unreachable(detail).of(what));
            }
        };
        let session = match self.working_idle().await {
            Some(session) => session,
            None => {
                let mut session = self.target.session(SESSION_SETTINGS).await?;
                let mut step = session.begin(what).await?;
                // The name may lead to another server than it did before.
                refuse_unfit(&mut step, what).await?;
                // What took the marker away has ended every session of the server, so that each new
                // one looks. (One with a pooler stays: there an add or a poll finds it gone.)
                renew_marker(&mut step, what).await?;
                step.end(what).await?;
                session
            }
        };
        Ok(Checkout {
            session,
            _permit: permit,
            home: self,
        })
    }

    async fn working_idle(&self) -> Option<Session> {
        let mut idle = self.lock().pop()?;
        if idle.since.elapsed() < TRUSTED_IDLE {
            return Some(idle.session);
        }
        let ping = within(PING_LIMIT, &self.target.what, idle.session.ping()).await;
        if ping.is_err() {
            // What broke this one has broken the others.
            self.lock().clear();
            return None;
        }
        Some(idle.session)
    }

    /// Ends the sessions that nobody uses.
    pub(super) async fn close_idle(&self) {
        let idle = std::mem::take(&mut *self.lock());
        let closing = idle.into_iter().map(|idle| idle.session.close());
        let all = futures_util::future::join_all(closing);
        let _ = tokio::time::timeout(STEP_LIMIT, all).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        // Nothing in here can leave the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session in use. Dropped, it ends; [`give_back`](Self::give_back) keeps it.
pub(super) struct Checkout<'a> {
    session: Session,
    _permit: SemaphorePermit<'a>,
    home: &'a Connections,
}

impl Checkout<'_> {
    /// Begins a step.
    ///
    /// # Errors
    /// As [`Session::begin`].
    pub(super) async fn begin(&mut self) -> Result<Step<'_>, StoreError> {
        self.session.begin(&self.home.target.what).await
    }

    /// Begins a step whose statements commit together.
    ///
    /// # Errors
    /// As [`Session::begin`].
    pub(super) async fn begin_together(&mut self) -> Result<Step<'_>, StoreError> {
        self.session.begin_together(&self.home.target.what).await
    }

    /// Keeps the session for the next step. To be called after one that ended well.
    pub(super) fn give_back(self) {
        let since = Instant::now();
        self.home.lock().push(Idle {
            session: self.session,
            since,
        });
    }
}
