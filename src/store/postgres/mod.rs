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
mod forget;
mod look_up;
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
use jiff::SignedDuration;
use secrecy::SecretString;
use tokio::sync::Mutex;
use uuid::Uuid;

use self::connections::Connections;
use self::errors::within;
use self::follow::Follower;
use self::notice::Notices;
use self::server::{SEGMENT, TIMELINE, continues, cursor, refuse_unfit, renew_marker};
use self::session::{STEP_LIMIT, Scope, Session, Settings};
use self::url::Target;
use super::record::{FilterRecord, Settling};
use super::rows::{digest, digested};
use crate::service::cursor::Cursor;
use crate::service::declaration::{Declaration, DeclaredBy, FilterName};
use crate::service::ports::{
    AddReceipt, ChangeSink, FilterId, LookUp, NewRow, Polled, Pruned, Removal, Replica, RowSink,
    Store, StoreError, StoreIdentity, StoredFilter,
};

/// Time for a write; `statement_timeout` below says the same to the server.
const WRITE_LIMIT: Duration = Duration::from_secs(20);

/// A poll that is not answered for longer than this has failed, however generous the bound.
const LONGEST_POLL: Duration = Duration::from_secs(10);

/// Sessions for look-ups at most, beside those for writes, which must not wait for them.
const LOOK_UP_SESSIONS: usize = 4;

/// What every statement of the store has, whatever the server's, the database's and the role's
/// defaults are.
const SESSION_SETTINGS: Settings = &settings("20s");

/// A poll after a long absence takes as long as it takes; silence is bounded on this side.
const POLL_SETTINGS: Settings = &settings("0");

/// What a load has beside the settings of every stream.
const LOAD_SETTINGS: Settings = &[
    ("search_path", "pg_catalog"),
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("tcp_user_timeout", "25000"),
    ("jit", "off"),
];

const fn settings(statement_timeout: &'static str) -> [(&'static str, &'static str); 14] {
    [
        // An add is acknowledged when it has reached the disk.
        ("synchronous_commit", "on"),
        // The locks of an add count on it.
        ("default_transaction_isolation", "read committed"),
        // Names are qualified; no function of the user's shadows one of the server's.
        ("search_path", "pg_catalog"),
        ("statement_timeout", statement_timeout),
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
    ]
}

/// How to reach a store on PostgreSQL.
#[derive(Debug, Clone)]
pub struct PostgresStoreOptions {
    /// `postgres://user:password@host:port/database`, with the parameters of libpq that sqlx
    /// knows, such as `sslmode` and `sslrootcert`.
    pub url: SecretString,
    /// How long this process may say `definitely-not` after a poll. A poll that takes as long has
    /// failed, a little before the filters are stale.
    pub max_staleness: Duration,
    /// Sessions for writes at most; beside them one polls, one listens, a
    /// few look items up, and each load has its own.
    pub max_connections: usize,
}

/// The store on PostgreSQL 13 or newer.
pub struct PostgresStore {
    target: Arc<Target>,
    connections: Connections,
    look_ups: Connections,
    follower: Follower,
    /// The session that polls.
    polling: Mutex<Option<Session>>,
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
            notices: Notices::new(target.clone()),
            look_ups: Connections::new(target.clone(), LOOK_UP_SESSIONS),
            connections: Connections::new(target.clone(), options.max_connections.max(1)),
            target,
        })
    }

    /// Brings the schema up to date.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.migrated().await?.close().await;
        Ok(())
    }

    fn what(&self) -> &str {
        &self.target.what
    }

    async fn migrated(&self) -> Result<Session, StoreError> {
        let what = self.what();
        let mut session = self.target.session(SESSION_SETTINGS).await?;
        let mut step = session.begin(what).await?;
        refuse_unfit(&mut step, what).await?;
        migrate::migrate(&mut step, what).await?;
        step.end(what).await?;
        Ok(session)
    }

    /// A session that may poll.
    async fn poller(&self) -> Result<Session, StoreError> {
        let what = self.what();
        let mut session = self.target.session(POLL_SETTINGS).await?;
        let mut step = session.begin(what).await?;
        refuse_unfit(&mut step, what).await?;
        renew_marker(&mut step, what).await?;
        self.follower.register(&mut step, what).await?;
        step.end(what).await?;
        Ok(session)
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn open(&self) -> Result<StoreIdentity, StoreError> {
        self.connections.close_idle().await;
        self.look_ups.close_idle().await;
        let what = self.what();
        let mut session = self.migrated().await?;
        let mut step = session.begin(what).await?;
        renew_marker(&mut step, what).await?;
        let question = sqlx::query_scalar("SELECT identity FROM bloomgate.store");
        let identity = within(STEP_LIMIT, what, question.fetch_one(&mut *step)).await?;
        step.end(what).await?;
        session.close().await;
        Ok(StoreIdentity(identity))
    }

    async fn filters(&self) -> Result<Vec<StoredFilter>, StoreError> {
        let mut session = self.connections.checkout().await?;
        let mut step = session.begin().await?;
        let filters = filters::list(&mut step, self.what()).await?;
        step.end(self.what()).await?;
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
        let mut step = session.begin().await?;
        let declare = filters::declare(&mut step, record);
        let declared = within(WRITE_LIMIT, self.what(), declare).await?;
        step.end(self.what()).await?;
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
        let mut step = session.begin().await?;
        let delete = filters::delete(&mut step, filter);
        let deleted = within(WRITE_LIMIT, self.what(), delete).await?;
        step.end(self.what()).await?;
        session.give_back();
        Ok(deleted)
    }

    async fn purge(&self) -> Result<bool, StoreError> {
        let mut session = self.connections.checkout().await?;
        let mut step = session.begin().await?;
        let purge = filters::purge(&mut step);
        let more = within(WRITE_LIMIT, self.what(), purge).await?;
        step.end(self.what()).await?;
        session.give_back();
        Ok(more)
    }

    async fn add(&self, rows: &[NewRow]) -> Result<AddReceipt, StoreError> {
        let rows = digested(rows);
        let mut session = self.connections.checkout().await?;
        let mut step = session.begin().await?;
        let receipt = add::add(&mut step, self.what(), &rows).await?;
        step.end(self.what()).await?;
        session.give_back();
        Ok(receipt)
    }

    async fn remove(
        &self,
        filter: FilterId,
        canonical: &[u8],
    ) -> Result<Option<Removal>, StoreError> {
        let mut session = self.connections.checkout().await?;
        let mut step = session.begin_together().await?;
        let digest = digest(canonical);
        let removal = forget::remove(&mut step, self.what(), filter, &digest).await?;
        step.end(self.what()).await?;
        session.give_back();
        Ok(removal)
    }

    async fn prune(&self, leeway: SignedDuration) -> Result<Pruned, StoreError> {
        let mut session = self.connections.checkout().await?;
        let mut step = session.begin_together().await?;
        let pruned = forget::prune(&mut step, self.what(), leeway).await?;
        step.end(self.what()).await?;
        session.give_back();
        Ok(pruned)
    }

    async fn look_up(
        &self,
        filter: FilterId,
        declaration: &Declaration,
        canonical: &[u8],
        leeway: SignedDuration,
    ) -> Result<LookUp, StoreError> {
        let (settling, digest) = (Settling::of(declaration), digest(canonical));
        let mut session = self.look_ups.checkout().await?;
        let mut step = session.begin().await?;
        let found = look_up::look_up(&mut step, self.what(), filter, &settling, &digest, leeway);
        let found = found.await?;
        step.end(self.what()).await?;
        session.give_back();
        Ok(found)
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
        let mut transaction = stream::begin(&mut session, what).await?;
        session::set(&mut transaction, what, LOAD_SETTINGS, Scope::Transaction).await?;
        refuse_unfit(&mut transaction, what).await?;
        let question = format!(
            "SELECT {TIMELINE}, {SEGMENT}, pg_current_snapshot()::text,
                    EXISTS (SELECT FROM bloomgate.server_start WHERE segment = $1)"
        );
        let question = sqlx::query_as(sqlx::AssertSqlSafe(question))
            .bind(since.map(|cursor| cursor.segment.cast_signed()))
            .persistent(false);
        let (timeline, segment, snapshot, is_known): (Option<String>, Option<i64>, String, bool) =
            within(STEP_LIMIT, what, question.fetch_one(&mut *transaction)).await?;
        let cut = cursor(timeline.as_deref(), segment, &snapshot, what)?;
        if let Some(since) = since {
            continues(since, is_known, &cut, what)?;
        }
        let rows = follow::rows_of(filter, since);
        stream::stream(
            &mut transaction,
            what,
            &rows,
            stream::ItemFormat::Bytes,
            sink,
        )
        .await?;
        stream::end(transaction, what).await?;
        session::close(session).await;
        Ok(cut)
    }

    async fn poll(
        &self,
        after: Option<&Cursor>,
        sink: &mut dyn ChangeSink,
    ) -> Result<Polled, StoreError> {
        let what = self.what();
        let mut polling = self.polling.lock().await;
        let mut session = match polling.take() {
            Some(session) => session,
            None => self.poller().await?,
        };
        let mut step = session.begin(what).await?;
        let polled = self.follower.poll(&mut step, what, after, sink).await?;
        // Only when it has ended is the report there for the others.
        step.end(what).await?;
        // Kept only where it ended well.
        *polling = Some(session);
        Ok(polled)
    }

    async fn hint(&self) {
        self.notices.next().await;
    }

    async fn forget_replica(&self, replica: Uuid) -> Result<(), StoreError> {
        let mut session = self.connections.checkout().await?;
        let mut step = session.begin().await?;
        let forget = follow::forget(&mut step, replica);
        within(STEP_LIMIT, self.what(), forget).await?;
        step.end(self.what()).await?;
        session.give_back();
        Ok(())
    }

    async fn replicas(&self) -> Result<Vec<Replica>, StoreError> {
        let mut session = self.connections.checkout().await?;
        let mut step = session.begin().await?;
        let question = follow::others(&mut step, self.follower.replica);
        let replicas = within(STEP_LIMIT, self.what(), question).await?;
        step.end(self.what()).await?;
        session.give_back();
        Ok(replicas)
    }

    async fn close(&self) {
        *self.polling.lock().await = None;
        // What it has reported holds until it is taken for silent: this only makes it sooner, and
        // where it fails there is nobody to tell.
        let _ = self.forget_replica(self.follower.replica).await;
        self.connections.close_idle().await;
        self.look_ups.close_idle().await;
    }
}
