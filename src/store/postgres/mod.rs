//! The store on PostgreSQL, in the schema `bloomgate`.
//!
//! Invariants: one process at a time holds it ([`hold`]), an add is one statement ([`add`]), a
//! load is one cut ([`stream`]). Nothing is connected before [`Store::open`].

mod add;
mod connections;
pub(super) mod errors;
mod hold;
mod migrate;
pub(super) mod session;
pub(super) mod stream;
mod time;
pub(super) mod url;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use secrecy::SecretString;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use self::connections::Connections;
use self::errors::{Fault, within};
use self::hold::{Hold, lost};
use self::session::{STEP_LIMIT, Scope, Settings};
use self::url::Target;
use super::record::FilterRecord;
use super::rows::digested;
use crate::filter::profile::EmailOptions;
use crate::service::declaration::{Declaration, DeclaredBy, FilterName};
use crate::service::ports::{
    AddReceipt, FilterId, NewRow, Place, RowSink, Store, StoreError, StoreIdentity, StoredFilter,
};

/// Time for a write; `statement_timeout` below says the same to the server.
const WRITE_LIMIT: Duration = Duration::from_secs(20);

/// Rows of a deleted filter that go at once: a few milliseconds.
const PURGE_ROWS: i64 = 5_000;

/// A poll that takes longer than this has lost the hold, however generous the bound.
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
    // The session that has the lock lies idle between two polls.
    ("idle_session_timeout", "0"),
    ("transaction_timeout", "0"),
    // So that the server ends the session of a machine that is gone, and with it the lock.
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
    /// A poll that takes as long has failed, a little before the filters are stale.
    pub max_staleness: Duration,
    /// Sessions for writes at most; beside them one has the lock, and each load has its own.
    pub max_connections: usize,
}

/// The store on PostgreSQL 13 or newer.
pub struct PostgresStore {
    target: Arc<Target>,
    poll_limit: Duration,
    connections: Connections,
    hold: ArcSwapOption<Hold>,
}

impl PostgresStore {
    /// Takes the options; it connects to nothing.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the URL is malformed.
    pub fn new(options: &PostgresStoreOptions) -> Result<Self, StoreError> {
        let target = Arc::new(Target::parse("the Postgres store", &options.url)?);
        Ok(Self {
            poll_limit: (options.max_staleness * 4 / 5).min(LONGEST_POLL),
            connections: Connections::new(target.clone(), options.max_connections.max(1)),
            target,
            hold: ArcSwapOption::empty(),
        })
    }

    /// Brings the schema up to date and takes nothing.
    ///
    /// # Errors
    /// As [`Store::open`], but for [`StoreError::HeldElsewhere`].
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let mut session = self.target.connect().await?;
        session::set(&mut session, self.what(), SESSION_SETTINGS, Scope::Session).await?;
        migrate::migrate(&mut session, self.what()).await?;
        session::close(session).await;
        Ok(())
    }

    fn what(&self) -> &str {
        &self.target.what
    }

    fn held(&self) -> Result<Arc<Hold>, StoreError> {
        self.hold
            .load_full()
            .ok_or_else(|| lost(self.what(), "it is not open"))
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn open(&self) -> Result<StoreIdentity, StoreError> {
        // Its session may still have the lock.
        self.close().await;
        let hold = Hold::take(&self.target).await?;
        let identity = hold.identity;
        self.hold.store(Some(Arc::new(hold)));
        Ok(identity)
    }

    async fn filters(&self) -> Result<Vec<StoredFilter>, StoreError> {
        let mut session = self.connections.checkout().await?;
        let question = sqlx::query(
            "SELECT id, name, profile, profile_version, gmail_dots, googlemail, plus_tags,
                    capacity, false_positive_rate, sources, declared_by
               FROM bloomgate.filter ORDER BY name",
        );
        let answer = question.fetch_all(&mut session.connection);
        let rows = within(STEP_LIMIT, self.what(), answer).await?;
        session.give_back();
        let filters = rows.iter().map(|row| {
            let record = record(row).map_err(|error| errors::classify(&error))?;
            record.into_filter().map_err(Fault::Refused)
        });
        filters
            .collect::<Result<_, Fault>>()
            .map_err(|fault| fault.of(self.what()))
    }

    async fn declare(
        &self,
        name: &FilterName,
        declaration: &Declaration,
        declared_by: DeclaredBy,
    ) -> Result<StoredFilter, StoreError> {
        let hold = self.held()?;
        let record = FilterRecord::new(Uuid::new_v4(), name, declaration, declared_by);
        let mut session = self.connections.checkout().await?;
        let id = declare(&mut session.connection, self.what(), hold.epoch, record).await?;
        session.give_back();
        let id = id.ok_or_else(|| lost(self.what(), "another process has taken it"))?;
        Ok(StoredFilter {
            id: FilterId(id),
            name: name.clone(),
            declaration: declaration.clone(),
            declared_by,
        })
    }

    async fn delete(&self, filter: FilterId) -> Result<bool, StoreError> {
        let hold = self.held()?;
        let mut session = self.connections.checkout().await?;
        let delete = delete(&mut session.connection, hold.epoch, filter);
        let deleted = within(WRITE_LIMIT, self.what(), delete).await?;
        session.give_back();
        deleted.ok_or_else(|| lost(self.what(), "another process has taken it"))
    }

    async fn purge(&self) -> Result<bool, StoreError> {
        let mut session = self.connections.checkout().await?;
        let purge = purge(&mut session.connection);
        let more = within(WRITE_LIMIT, self.what(), purge).await?;
        session.give_back();
        Ok(more)
    }

    async fn add(&self, rows: &[NewRow]) -> Result<AddReceipt, StoreError> {
        let hold = self.held()?;
        let rows = digested(rows);
        let mut session = self.connections.checkout().await?;
        let receipt = add::add(&mut session.connection, self.what(), &hold, &rows).await?;
        session.give_back();
        Ok(receipt)
    }

    async fn load(&self, filter: FilterId, sink: &mut dyn RowSink) -> Result<Place, StoreError> {
        let what = self.what();
        let hold = self.held()?;
        // A session of its own: a stream that breaks leaves none to be used again.
        let mut session = self.target.connect().await?;
        session::set(&mut session, what, SESSION_SETTINGS, Scope::Session).await?;
        let mut transaction = stream::begin(&mut session, what).await?;
        // Whatever is acknowledged by now has an id below xmax and is in the cut. What is under
        // way may have one too and is not: its bits are set by whoever sends it.
        let question = sqlx::query_as(
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text,
                    (SELECT holder_epoch FROM bloomgate.store)",
        );
        let (xmax, epoch): (String, Option<i64>) =
            within(STEP_LIMIT, what, question.fetch_one(&mut *transaction)).await?;
        // A cut without our epoch is that of another server, which lags behind, or of a store that
        // another process has taken: it may lack what was acknowledged before our hold. What was
        // acknowledged within it is set.
        if epoch != Some(hold.epoch) {
            return Err(lost(what, "the load has met another holder's state of it"));
        }
        let Place(xmax) = add::place_of(&xmax, what)?;
        let rows = format!(
            "SELECT item, expires_at FROM bloomgate.item WHERE filter_id = '{}'",
            filter.0.hyphenated()
        );
        stream::stream(&mut transaction, what, &rows, sink).await?;
        drop(transaction);
        session::close(session).await;
        Ok(Place(xmax.saturating_sub(1)))
    }

    async fn poll(&self) -> Result<(), StoreError> {
        let hold = self.held()?;
        let checked = hold.check(self.what(), self.poll_limit).await;
        if matches!(checked, Err(StoreError::HoldLost { .. })) {
            // Unless it was taken anew meanwhile.
            drop(self.hold.compare_and_swap(&hold, None));
            self.connections.close_idle().await;
        }
        checked
    }

    async fn close(&self) {
        if let Some(hold) = self.hold.swap(None) {
            hold.release().await;
        }
        self.connections.close_idle().await;
    }
}

fn record(row: &sqlx::postgres::PgRow) -> Result<FilterRecord, sqlx::Error> {
    Ok(FilterRecord {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        profile: row.try_get("profile")?,
        profile_version: row.try_get("profile_version")?,
        options: EmailOptions {
            gmail_dots: row.try_get("gmail_dots")?,
            googlemail: row.try_get("googlemail")?,
            plus_tags: row.try_get("plus_tags")?,
        },
        capacity: row.try_get("capacity")?,
        false_positive_rate: row.try_get("false_positive_rate")?,
        sources: row.try_get("sources")?,
        declared_by: row.try_get("declared_by")?,
    })
}

/// Writes a declaration and gives the id of its filter; none when the store is held by another.
async fn declare(
    connection: &mut PgConnection,
    what: &str,
    epoch: i64,
    record: FilterRecord,
) -> Result<Option<Uuid>, StoreError> {
    let statement = sqlx::query_scalar(
        "WITH fence AS MATERIALIZED (
             SELECT holder_epoch FROM bloomgate.store WHERE holder_epoch = $1 FOR SHARE
         )
         INSERT INTO bloomgate.filter
                (id, name, profile, profile_version, gmail_dots, googlemail, plus_tags,
                 capacity, false_positive_rate, sources, declared_by)
         SELECT $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12 FROM fence
         ON CONFLICT (name) DO UPDATE
            SET profile = excluded.profile, profile_version = excluded.profile_version,
                gmail_dots = excluded.gmail_dots, googlemail = excluded.googlemail,
                plus_tags = excluded.plus_tags, capacity = excluded.capacity,
                false_positive_rate = excluded.false_positive_rate, sources = excluded.sources,
                declared_by = excluded.declared_by
         RETURNING id",
    )
    .bind(epoch)
    .bind(record.id)
    .bind(record.name)
    .bind(record.profile)
    .bind(record.profile_version)
    .bind(record.options.gmail_dots)
    .bind(record.options.googlemail)
    .bind(record.options.plus_tags)
    .bind(record.capacity)
    .bind(record.false_positive_rate)
    .bind(record.sources)
    .bind(record.declared_by);
    within(WRITE_LIMIT, what, statement.fetch_optional(connection)).await
}

/// Deletes a filter; none when the store is held by another.
///
/// It waits for the adds that hold the filter's row, and later ones find it gone: so whoever purges
/// afterwards sees every row that the filter ever gets.
async fn delete(
    connection: &mut PgConnection,
    epoch: i64,
    filter: FilterId,
) -> Result<Option<bool>, sqlx::Error> {
    let (is_held, was_there): (bool, bool) = sqlx::query_as(
        "WITH fence AS MATERIALIZED (
             SELECT holder_epoch FROM bloomgate.store WHERE holder_epoch = $1 FOR SHARE
         ), gone AS (
             DELETE FROM bloomgate.filter WHERE id = $2 AND EXISTS (SELECT FROM fence)
             RETURNING id
         ), noted AS (
             INSERT INTO bloomgate.deleted_filter (id) SELECT id FROM gone
         )
         SELECT EXISTS (SELECT FROM fence), EXISTS (SELECT FROM gone)",
    )
    .bind(epoch)
    .bind(filter.0)
    .fetch_one(connection)
    .await?;
    Ok(is_held.then_some(was_there))
}

/// Deletes some rows of a deleted filter, or the note of one that has none left; false when no
/// filter is noted. It needs no fence: an identity never comes again.
async fn purge(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let (filter, rows): (Option<Uuid>, i64) = sqlx::query_as(
        "WITH one AS MATERIALIZED (
             SELECT id FROM bloomgate.deleted_filter LIMIT 1
         ), part AS MATERIALIZED (
             SELECT filter_id, item_digest FROM bloomgate.item
              WHERE filter_id = (SELECT id FROM one) LIMIT $1
         ), gone AS (
             DELETE FROM bloomgate.item USING part
              WHERE item.filter_id = part.filter_id AND item.item_digest = part.item_digest
             RETURNING 1
         )
         SELECT (SELECT id FROM one), (SELECT count(*) FROM gone)",
    )
    .bind(PURGE_ROWS)
    .fetch_one(&mut *connection)
    .await?;
    if rows == 0 {
        sqlx::query("DELETE FROM bloomgate.deleted_filter WHERE id = $1")
            .bind(filter)
            .execute(connection)
            .await?;
    }
    Ok(filter.is_some())
}
