//! A second server that follows a cluster.

use std::time::Duration;

use sqlx::{Connection, PgConnection};

use super::{Backup, Cluster, eventually};

/// How long a standby may take to catch up or to become a primary.
const STANDBY_DEADLINE: Duration = Duration::from_secs(60);

/// A streaming standby of a [`Cluster`], asynchronous as PostgreSQL's default is. It takes
/// connections for reading. Ended and removed on drop.
pub(crate) struct Standby {
    cluster: Cluster,
}

impl Standby {
    /// Starts a standby that follows `primary`, with its settings and on a port of its own.
    pub(crate) async fn start(primary: &Cluster) -> Self {
        let backup = Backup::take(primary, &["--write-recovery-conf"]).await;
        let settings = primary.settings().to_vec();
        Self {
            cluster: Cluster::start_in(backup.into_folder(), settings).await,
        }
    }

    /// The URL of a database in it, for a superuser.
    pub(crate) fn url_of(&self, database: &str) -> String {
        self.cluster.url_of(database)
    }

    /// Its port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.cluster.port()
    }

    /// Waits until it shows all that the primary has committed up to now.
    pub(crate) async fn wait_replayed(&self, primary: &Cluster) {
        let mut connection = PgConnection::connect(&primary.url()).await.unwrap();
        let written: String = sqlx::query_scalar("SELECT pg_current_wal_lsn()::text")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        let replayed = "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn";
        self.wait_true(replayed, Some(&written)).await;
    }

    /// Makes it a primary. What the old primary had committed and not yet sent is lost.
    pub(crate) async fn promote(self) -> Cluster {
        self.wait_true("SELECT pg_promote()", None).await;
        self.cluster
    }

    async fn wait_true(&self, question: &'static str, value: Option<&str>) {
        let mut connection = PgConnection::connect(&self.cluster.url()).await.unwrap();
        eventually(question, STANDBY_DEADLINE, async || {
            let mut query = sqlx::query_scalar::<_, bool>(question);
            if let Some(value) = value {
                query = query.bind(value);
            }
            let answer = query.fetch_one(&mut connection).await.unwrap();
            answer.then_some(())
        })
        .await;
    }
}
