//! Notices: a connection that listens for the adds of other processes.
//!
//! Invariants: a notice is a hint, and whatever becomes of this connection, polls go on at their
//! interval; behind a pooler, where no notice would ever arrive, nothing listens.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPool, PgPoolOptions};
use tokio::sync::Mutex;

use super::session::proves;
use super::url::Target;

/// What adds notify.
const CHANNEL: &str = "bloomgate";

/// Time to connect and to begin listening.
const LISTEN_LIMIT: Duration = Duration::from_secs(10);

/// How long to leave a server alone that does not let us listen.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The connection that listens. Connects to nothing before [`Notices::next`].
pub(super) struct Notices {
    target: Arc<Target>,
    pool: PgPool,
    listener: Mutex<Option<PgListener>>,
}

impl Notices {
    /// Notices of the server that this leads to.
    pub(super) fn new(target: Arc<Target>) -> Self {
        let (options, proof) = target.asking_for_proof();
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(LISTEN_LIMIT)
            // The connection lies idle for as long as nothing is added.
            .idle_timeout(None)
            .max_lifetime(None)
            .after_connect(move |connection, _| {
                let proof = proof.clone();
                Box::pin(async move {
                    // What listens would stay behind on a pooler's session.
                    if proves(connection, &proof).await? {
                        Ok(())
                    } else {
                        Err(sqlx::Error::Configuration(
                            "a pooler delivers no notices".into(),
                        ))
                    }
                })
            })
            .connect_lazy_with(options);
        Self {
            target,
            pool,
            listener: Mutex::new(None),
        }
    }

    /// Waits for a notice, or until the connection was lost: then something may have been missed.
    /// Notices that came together count as one.
    pub(super) async fn next(&self) {
        let mut place = self.listener.lock().await;
        if self.target.is_pooled() {
            return std::future::pending().await;
        }
        if place.is_none() {
            match tokio::time::timeout(LISTEN_LIMIT, self.listen()).await {
                Ok(Ok(listener)) => *place = Some(listener),
                // The poll says what is wrong with the server.
                Ok(Err(_)) | Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
            // What came before it listened was not noticed.
            return;
        }
        let Some(listener) = place.as_mut() else {
            return;
        };
        match listener.try_recv().await {
            Ok(Some(_)) => while listener.next_buffered().is_some() {},
            // It has lost its connection and takes another by itself.
            Ok(None) => {}
            Err(_) => {
                *place = None;
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }

    async fn listen(&self) -> Result<PgListener, sqlx::Error> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen(CHANNEL).await?;
        Ok(listener)
    }
}
