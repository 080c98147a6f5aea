//! The store on SQLite, in the file `bloomgate.sqlite` of the data directory.
//!
//! Invariants: an add is one transaction, flushed to the disk before it is answered; a load
//! reads one cut while adds go on (write-ahead log).
//!
//! That no other process writes to the file is the business of the data directory's lock.
//! SQLite's own exclusive locking mode would allow but one connection, and every add would wait
//! for a load's end.

mod add;
mod filters;
mod follow;
mod forget;
mod load;
mod look_up;
mod writer;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use sqlx::migrate::MigrateError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard, Notify};
use uuid::Uuid;

use self::writer::Writer;
use super::record::{FilterRecord, Settling, migration_refusal};
use super::rows::{digest, digested};
use crate::service::cursor::{Cursor, Timeline};
use crate::service::declaration::{Declaration, DeclaredBy, FilterName};
use crate::service::ports::{
    AddReceipt, ChangeSink, FilterId, LookUp, NewRow, Polled, Pruned, Removal, Replica, RowSink,
    Store, StoreError, StoreIdentity, StoredFilter,
};

/// The name of the file within the data directory.
const FILE_NAME: &str = "bloomgate.sqlite";

/// Pages of 4 KiB in the log before it is brought into the file, 64 MiB. Digests fall on pages all
/// over the file, and a page that several adds have touched is then written but once.
const LOG_PAGES: &str = "16384";

/// Page cache of a connection: 16 MiB, said as a negative number of KiB.
const CACHE_KIB: &str = "-16384";

/// How long a statement waits for another connection's lock, such as a backup's.
const BUSY_LIMIT: Duration = Duration::from_secs(5);

/// The store on SQLite.
pub struct SqliteStore {
    path: PathBuf,
    what: String,
    open: Mutex<Option<Open>>,
    /// Told after each commit of ours.
    written: Notify,
}

/// What stands between open and close.
struct Open {
    writer: Writer,
    /// The store's identity: places count within the store for good.
    timeline: Timeline,
    /// Of this opening.
    segment: u64,
    /// Device and inode: the file that the writer has, wherever its name points to later.
    file: (u64, u64),
    /// Changes with every commit of another connection, and no connection of ours but the writer
    /// ever writes.
    data_version: i64,
}

impl SqliteStore {
    /// The store in `data_dir`, which must be there and be locked by the caller. It opens
    /// nothing.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        let path = data_dir.join(FILE_NAME);
        Self {
            what: format!("the SQLite store {}", path.display()),
            path,
            open: Mutex::new(None),
            written: Notify::new(),
        }
    }

    fn options(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .journal_mode(SqliteJournalMode::Wal)
            // Every commit reaches the disk, on a Mac through the disk's own cache too.
            .synchronous(SqliteSynchronous::Full)
            .pragma("fullfsync", "1")
            .pragma("wal_autocheckpoint", LOG_PAGES)
            .pragma("cache_size", CACHE_KIB)
            .busy_timeout(BUSY_LIMIT)
            .disable_statement_logging()
    }

    async fn connect(
        &self,
        options: &SqliteConnectOptions,
    ) -> Result<SqliteConnection, StoreError> {
        options.connect().await.map_err(|error| self.error(&error))
    }

    /// The writer, for one statement or transaction.
    async fn writer(&self) -> Result<MappedMutexGuard<'_, Writer>, StoreError> {
        let open = self.opened().await?;
        let mut writer = MappedMutexGuard::map(open, |open| &mut open.writer);
        writer.roll_back().await;
        Ok(writer)
    }

    async fn opened(&self) -> Result<MappedMutexGuard<'_, Open>, StoreError> {
        let open = self.open.lock().await;
        MutexGuard::try_map(open, Option::as_mut).map_err(|_closed| self.void("it is not open"))
    }

    fn void(&self, detail: &str) -> StoreError {
        StoreError::CursorVoid {
            what: self.what.clone(),
            detail: detail.to_owned(),
        }
    }

    fn refused(&self, detail: String) -> StoreError {
        StoreError::Refused {
            what: self.what.clone(),
            detail,
        }
    }

    /// Sorts a failure of sqlx. SQLite's own messages name tables and columns, never values; an
    /// error of another origin is not quoted.
    fn error(&self, error: &sqlx::Error) -> StoreError {
        let what = self.what.clone();
        let sqlx::Error::Database(error) = error else {
            let detail = "its answer could not be read".to_owned();
            return StoreError::Failed { what, detail };
        };
        let code = error.code().and_then(|code| code.parse::<i32>().ok());
        let detail = format!("{} (SQLite code {})", error.message(), code.unwrap_or(-1));
        // The low byte is the primary code; the rest says more of the same.
        match code.map(|code| code & 0xff) {
            // READONLY, CANTOPEN, PERM
            Some(8 | 14 | 3) => self.refused(format!(
                "{detail}; check that data_dir is there and may be written by this user"
            )),
            // CORRUPT, NOTADB
            Some(11 | 26) => self.refused(format!(
                "{detail}; put a backup in its place, or move the file away to start empty"
            )),
            // FULL
            Some(13) => StoreError::Failed {
                what,
                detail: format!("{detail}; free space on the disk"),
            },
            _ => StoreError::Failed { what, detail },
        }
    }

    async fn migrate(&self, writer: &mut SqliteConnection) -> Result<(), StoreError> {
        let mut migrator = sqlx::migrate!("migrations/sqlite");
        migrator.dangerous_set_table_name("migration");
        migrator
            .run_direct(None, writer, false)
            .await
            .map_err(|error| {
                if let MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) =
                    error
                {
                    self.error(&error)
                } else {
                    self.refused(migration_refusal(&error))
                }
            })
    }

    /// Source: SQLite documentation, "PRAGMA data_version".
    async fn data_version(&self, writer: &mut SqliteConnection) -> Result<i64, StoreError> {
        sqlx::query_scalar("PRAGMA data_version")
            .fetch_one(writer)
            .await
            .map_err(|error| self.error(&error))
    }

    /// Whether the file of that name is still the writer's.
    async fn own_file(&self) -> Result<(), StoreError> {
        let now = self.file().await?;
        let open = self.open.lock().await;
        let open = open.as_ref().ok_or_else(|| self.void("it is not open"))?;
        if open.file == now {
            Ok(())
        } else {
            Err(self.void("another file has taken the place of its own"))
        }
    }

    /// The store, if nobody else has written to it or put another in its place.
    async fn unshared(&self) -> Result<MappedMutexGuard<'_, Open>, StoreError> {
        self.own_file().await?;
        let mut open = self.opened().await?;
        open.writer.roll_back().await;
        // The lock on the data directory keeps others out, unless its file was removed or the file
        // system knows no locks.
        if self.data_version(open.writer.connection()).await? != open.data_version {
            return Err(self.void("another process has written to it"));
        }
        Ok(open)
    }

    async fn file(&self) -> Result<(u64, u64), StoreError> {
        let metadata = tokio::fs::metadata(&self.path).await;
        metadata
            .map(|metadata| (metadata.dev(), metadata.ino()))
            .map_err(|error| self.void(&format!("its file is not there: {error}")))
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn open(&self) -> Result<StoreIdentity, StoreError> {
        self.close().await;
        let options = self.options().create_if_missing(true);
        let mut writer = self.connect(&options).await?;
        self.migrate(&mut writer).await?;
        let identity: Uuid = sqlx::query_scalar("SELECT identity FROM store")
            .fetch_one(&mut writer)
            .await
            .map_err(|error| self.error(&error))?;
        let file = self.file().await?;
        let segment = Uuid::new_v4().as_u64_pair().0;
        follow::record_opening(&mut writer, segment)
            .await
            .map_err(|error| self.error(&error))?;
        let data_version = self.data_version(&mut writer).await?;
        *self.open.lock().await = Some(Open {
            writer: Writer::new(writer),
            timeline: Timeline(*identity.as_bytes()),
            segment,
            file,
            data_version,
        });
        Ok(StoreIdentity(identity))
    }

    async fn filters(&self) -> Result<Vec<StoredFilter>, StoreError> {
        let mut writer = self.writer().await?;
        let rows = sqlx::query("SELECT * FROM filter ORDER BY name")
            .fetch_all(writer.connection())
            .await
            .map_err(|error| self.error(&error))?;
        let filters = rows.iter().map(|row| {
            let record = filters::record(row).map_err(|error| self.error(&error))?;
            record.into_filter().map_err(|detail| self.refused(detail))
        });
        filters.collect()
    }

    async fn declare(
        &self,
        name: &FilterName,
        declaration: &Declaration,
        declared_by: DeclaredBy,
    ) -> Result<Option<StoredFilter>, StoreError> {
        let record = FilterRecord::new(Uuid::new_v4(), name, declaration, declared_by);
        let mut writer = self.writer().await?;
        let declared = filters::declare(&mut writer, record)
            .await
            .map_err(|error| self.error(&error))?;
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
        let mut writer = self.writer().await?;
        filters::delete(&mut writer, filter)
            .await
            .map_err(|error| self.error(&error))
    }

    async fn purge(&self) -> Result<bool, StoreError> {
        let mut writer = self.writer().await?;
        filters::purge(&mut writer)
            .await
            .map_err(|error| self.error(&error))
    }

    async fn add(&self, rows: &[NewRow]) -> Result<AddReceipt, StoreError> {
        let rows = digested(rows);
        let mut open = self.opened().await?;
        let opening = (open.timeline, open.segment);
        open.writer.roll_back().await;
        let receipt = add::add(&mut open.writer, opening, &rows)
            .await
            .map_err(|error| self.error(&error))?;
        self.written.notify_one();
        Ok(receipt)
    }

    async fn remove(
        &self,
        filter: FilterId,
        canonical: &[u8],
    ) -> Result<Option<Removal>, StoreError> {
        let mut open = self.opened().await?;
        let timeline = open.timeline;
        let removal = forget::remove(&mut open.writer, timeline, filter, &digest(canonical)).await;
        let removal = removal.map_err(|error| self.error(&error))?;
        self.written.notify_one();
        Ok(removal)
    }

    async fn prune(&self, leeway: SignedDuration) -> Result<Pruned, StoreError> {
        let mut writer = self.writer().await?;
        let pruned = forget::prune(&mut writer, leeway).await;
        pruned.map_err(|error| self.error(&error))
    }

    async fn look_up(
        &self,
        filter: FilterId,
        declaration: &Declaration,
        canonical: &[u8],
        leeway: SignedDuration,
    ) -> Result<LookUp, StoreError> {
        let (settling, digest) = (Settling::of(declaration), digest(canonical));
        let mut open = self.unshared().await?;
        let (timeline, segment) = (open.timeline, open.segment);
        let connection = open.writer.connection();
        let found = look_up::look_up(connection, filter, &settling, &digest, leeway).await;
        let (presence, last_commit) = found.map_err(|error| self.error(&error))?;
        Ok(LookUp {
            presence,
            as_of: follow::cursor_at(timeline, segment, last_commit),
        })
    }

    async fn load(
        &self,
        filter: FilterId,
        since: Option<&Cursor>,
        sink: &mut dyn RowSink,
    ) -> Result<Cursor, StoreError> {
        let (timeline, segment) = {
            let mut open = self.opened().await?;
            open.writer.roll_back().await;
            if let Some(since) = since {
                let holds = follow::holds(open.writer.connection(), since)
                    .await
                    .map_err(|error| self.error(&error))?;
                if since.timeline != open.timeline || !holds {
                    return Err(self.void("it was put back to an earlier state, or is another one"));
                }
            }
            (open.timeline, open.segment)
        };
        let options = self.options().pragma("query_only", "1");
        // The reader opens the file by its name, and what stands there may be another one.
        self.own_file().await?;
        let mut reader = self.connect(&options).await?;
        let first = since.map_or(0, |since| since.next.0.cast_signed());
        let (last_commit, expected, found) = load::load(&mut reader, filter, first, sink)
            .await
            .map_err(|error| self.error(&error))?;
        self.own_file().await?;
        let _ = reader.close().await;
        if found != expected {
            return Err(StoreError::Incomplete {
                what: self.what.clone(),
                expected,
                found,
            });
        }
        Ok(follow::cursor_at(timeline, segment, last_commit))
    }

    async fn poll(
        &self,
        after: Option<&Cursor>,
        sink: &mut dyn ChangeSink,
    ) -> Result<Polled, StoreError> {
        let mut open = self.unshared().await?;
        if after.is_some_and(|after| after.segment != open.segment) {
            return Err(self.void("it was opened anew since"));
        }
        let (timeline, segment) = (open.timeline, open.segment);
        follow::poll(open.writer.connection(), timeline, segment, after, sink)
            .await
            .map_err(|error| self.error(&error))
    }

    async fn hint(&self) {
        self.written.notified().await;
    }

    /// The lock on the data directory leaves room for none.
    async fn replicas(&self) -> Result<Vec<Replica>, StoreError> {
        Ok(Vec::new())
    }

    async fn forget_replica(&self, _replica: Uuid) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) {
        if let Some(open) = self.open.lock().await.take() {
            // The last connection brings the log into the file; what fails of that is done at
            // the next open.
            let _ = open.writer.into_connection().close().await;
        }
    }
}

#[cfg(test)]
mod tests;
