//! The store on PostgreSQL, in the schema `bloomgate`.
//!
//! Invariants: an add is one statement ([`add`]), a load is one cut ([`stream`]), a poll is one
//! snapshot ([`follow`]). Nothing is connected before [`Store::open`]. Any number of processes may
//! share it.

mod add;
mod connections;
pub(super) mod errors;
mod filters;
mod follow;
mod migrate;
mod notice;
mod server;
pub(super) mod session;
pub(super) mod stream;
pub(super) mod time;
pub(super) mod url;

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use sqlx::PgConnection;
use tokio::sync::Mutex;
use uuid::Uuid;

use self::connections::Connections;
use self::errors::within;
use self::follow::Follower;
use self::notice::Notices;
use self::server::{TIMELINE, continues, cursor, refuse_unfit, renew_marker};
use self::session::{STEP_LIMIT, Scope, Settings};
use self::url::Target;
use super::record::FilterRecord;
use super::rows::digested;
use crate::service::cursor::Cursor;
use crate::service::declaration::{Declaration, DeclaredBy, FilterName};
use crate::service::ports::{
    AddReceipt, ChangeSink, FilterId, NewRow, Polled, Replica, RowSink, Store, StoreError,
    StoreIdentity, StoredFilter,
};

/// Time for a write; `statement_timeout` below says the same to the server.
const WRITE_LIMIT: Duration = Duration::from_secs(20);

/// A poll that is not answered for longer than this has failed, however generous the bound.
const LONGEST_POLL: Duration = Duration::from_secs(10);

/// What every session of the store has, whatever the server's, the database's and the role's
/// defaults are.
const SESSION_SETTINGS: Settings = &[
    // An add is acknowledged when it has reached the disk.
    ("synchronous_commit", "on"),
    // The locks of an add count on it.
    ("default_transaction_isolation", "read committed"),
    // Names are qualified; no function of the user's shadows one of the server's.
    ("search_path", "pg_catalog"),
    ("statement_timeout", "20s"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "60s"),
    ("idle_session_timeout", "0"),
    ("transaction_timeout", "0"),
    // So that the server ends the session of a machine that is gone.
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "25000"),
    // sqlx logs what the server notes.
    ("client_min_messages", "error"),
    ("jit", "off"),
];

/// How to reach a store on PostgreSQL.
#[derive(Debug, Clone)]
pub struct PostgresStoreOptions {
    /// `postgres://user:password@host:port/database`, with the parameters of libpq that sqlx
    /// knows, such as `sslmode` and `sslrootcert`.
    pub url: SecretString,
    /// How long this process may say `definitely-not` after a poll. A poll that takes as long has
    /// failed, a little before the filters are stale.
    pub max_staleness: Duration,
    /// Sessions for writes at most; beside them one polls, one listens, and each load has its own.
    pub max_connections: usize,
}

/// The store on PostgreSQL 13 or newer.
pub struct PostgresStore {
    target: Arc<Target>,
    connections: Connections,
    follower: Follower,
    /// The session that polls.
    polling: Mutex<Option<PgConnection>>,
    notices: Notices,
}

impl PostgresStore {
    /// Takes the options; it connects to nothing.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the URL is malformed.
    pub fn new(options: &PostgresStoreOptions) -> Result<Self, StoreError> {
        let target = Arc::new(Target::parse("the Postgres store", &options.url)?);
        Ok(Self {
            follower: Follower {
                replica: Uuid::new_v4(),
                reports: AtomicI64::new(0),
                max_staleness: options.max_staleness,
                limit: (options.max_staleness * 4 / 5).min(LONGEST_POLL),
            },
            polling: Mutex::new(None),
            notices: Notices::new(&target.options),
            connections: Connections::new(target.clone(), options.max_connections.max(1)),
            target,
        })
    }

    /// Brings the schema up to date.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let session = self.migrated().await?;
        session::close(session).await;
        Ok(())
    }

    fn what(&self) -> &str {
        &self.target.what
    }

    async fn migrated(&self) -> Result<PgConnection, StoreError> {
        let what = self.what();
        let mut session = self.target.connect().await?;
        session::set(&mut session, what, SESSION_SETTINGS, Scope::Session).await?;
        refuse_unfit(&mut session, what).await?;
        migrate::migrate(&mut session, what).await?;
        Ok(session)
    }

    /// A session that may poll.
    async fn poller(&self) -> Result<PgConnection, StoreError> {
        let what = self.what();
        let mut session = self.target.connect().await?;
        session::set(&mut session, what, SESSION_SETTINGS, Scope::Session).await?;
        // A poll after a long absence takes as long as it takes; silence is bounded on this side.
        let unlimited = &[("statement_timeout", "0")];
        session::set(&mut session, what, unlimited, Scope::Session).await?;
        refuse_unfit(&mut session, what).await?;
        renew_marker(&mut session, what).await?;
        self.follower.register(&mut session, what).await?;
        Ok(session)
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn open(&self) -> Result<StoreIdentity, StoreError> {
        self.connections.close_idle().await;
        let mut session = self.migrated().await?;
        renew_marker(&mut session, self.what()).await?;
        let question = sqlx::query_scalar("SELECT identity FROM bloomgate.store");
        let identity = within(STEP_LIMIT, self.what(), question.fetch_one(&mut session)).await?;
        session::close(session).await;
        Ok(StoreIdentity(identity))
    }

    async fn filters(&self) -> Result<Vec<StoredFilter>, StoreError> {
        let mut session = self.connections.checkout().await?;
        let filters = filters::list(&mut session.connection, self.what()).await?;
        session.give_back();
        Ok(filters)
    }

    async fn declare(
        &self,
        name: &FilterName,
        declaration: &Declaration,
        declared_by: DeclaredBy,
    ) -> Result<Option<StoredFilter>, StoreError> {
        let record = FilterRecord::new(Uuid::new_v4(), name, declaration, declared_by);
        let mut session = self.connections.checkout().await?;
        let declare = filters::declare(&mut session.connection, record);
        let declared = within(WRITE_LIMIT, self.what(), declare).await?;
        session.give_back();
        Ok(declared.map(|(id, forgotten)| StoredFilter {
            id: FilterId(id),
            name: name.clone(),
            declaration: declaration.clone(),
            profile_version: declaration.profile.version(),
            declared_by,
            forgotten: forgotten.cast_unsigned(),
        }))
    }

    async fn delete(&self, filter: FilterId) -> Result<bool, StoreError> {
        let mut session = self.connections.checkout().await?;
        let delete = filters::delete(&mut session.connection, filter);
        let deleted = within(WRITE_LIMIT, self.what(), delete).await?;
        session.give_back();
        Ok(deleted)
    }

    async fn purge(&self) -> Result<bool, StoreError> {
        let mut session = self.connections.checkout().await?;
        let purge = filters::purge(&mut session.connection);
        let more = within(WRITE_LIMIT, self.what(), purge).await?;
        session.give_back();
        Ok(more)
    }

    async fn add(&self, rows: &[NewRow]) -> Result<AddReceipt, StoreError> {
        let rows = digested(rows);
        let mut session = self.connections.checkout().await?;
        let receipt = add::add(&mut session.connection, self.what(), &rows).await?;
        session.give_back();
        Ok(receipt)
    }

    async fn load(
        &self,
        filter: FilterId,
        since: Option<&Cursor>,
        sink: &mut dyn RowSink,
    ) -> Result<Cursor, StoreError> {
        let what = self.what();
        // A session of its own: a stream that breaks leaves none to be used again.
        let mut session = self.target.connect().await?;
        session::set(&mut session, what, SESSION_SETTINGS, Scope::Session).await?;
        refuse_unfit(&mut session, what).await?;
        let mut transaction = stream::begin(&mut session, what).await?;
        let question = format!("SELECT {TIMELINE}, pg_current_snapshot()::text");
        let question = sqlx::query_as(sqlx::AssertSqlSafe(question));
        let (timeline, snapshot): (Option<String>, String) =
            within(STEP_LIMIT, what, question.fetch_one(&mut *transaction)).await?;
        let cut = cursor(timeline.as_deref(), &snapshot, what)?;
        if let Some(since) = since {
            continues(since, &cut, what)?;
        }
        let rows = follow::rows_of(filter, since);
        stream::stream(&mut transaction, what, &rows, sink).await?;
        drop(transaction);
        session::close(session).await;
        Ok(cut)
    }

    async fn poll(
        &self,
        after: Option<&Cursor>,
        sink: &mut dyn ChangeSink,
    ) -> Result<Polled, StoreError> {
        let mut polling = self.polling.lock().await;
        let mut session = match polling.take() {
            Some(session) => session,
            None => self.poller().await?,
        };
        let follower = &self.follower;
        let polled = follower
            .poll(&mut session, self.what(), after, sink)
            .await?;
        // Kept only where it ended well.
        *polling = Some(session);
        Ok(polled)
    }

    async fn hint(&self) {
        self.notices.next().await;
    }

    async fn forget_replica(&self, replica: Uuid) -> Result<(), StoreError> {
        let mut session = self.connections.checkout().await?;
        let forget = follow::forget(&mut session.connection, replica);
        within(STEP_LIMIT, self.what(), forget).await?;
        session.give_back();
        Ok(())
    }

    async fn replicas(&self) -> Result<Vec<Replica>, StoreError> {
        let mut session = self.connections.checkout().await?;
        let question = follow::others(&mut session.connection, self.follower.replica);
        let replicas = within(STEP_LIMIT, self.what(), question).await?;
        session.give_back();
        Ok(replicas)
    }

    async fn close(&self) {
        *self.polling.lock().await = None;
        // What it has reported holds until it is taken for silent: this only makes it sooner.
        if let Ok(mut session) = self.connections.checkout().await {
            let gone = follow::forget(&mut session.connection, self.follower.replica);
            if within(STEP_LIMIT, self.what(), gone).await.is_ok() {
                session.give_back();
            }
        }
        self.connections.close_idle().await;
    }
}
