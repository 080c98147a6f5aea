//! Following: the rows that were written since a cursor, whoever wrote them.
//!
//! Invariant: one statement, and so one snapshot, gives the rows, the new cursor, and what tells
//! whether the old one still holds. Rows are found by the transaction that wrote them last: a row is
//! new to the cursor exactly when that was in progress, or still to come, at the cursor.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::errors::{Fault, classify, within};
use super::server::{SEGMENT, TIMELINE, continues, cursor};
use super::session::STEP_LIMIT;
use crate::service::cursor::Cursor;
use crate::service::ports::{ChangeSink, FilterId, Place, Polled, Replica, StoreError};
/// The first row is of the moment, the others are changes. What this process has followed is
/// reported in the same statement: a poll that cannot report fails, so that a process which others
/// take for silent is silent. So does a poll of a process that is not on record: nobody would wait
/// for it.
fn poll_statement() -> String {
    format!(
        "WITH reported AS (
             INSERT INTO bloomgate.report (replica_id, reports, cursor)
             VALUES ($1, $2, $3)
             ON CONFLICT (replica_id) DO UPDATE
                SET reports = excluded.reports, cursor = excluded.cursor
         )
         SELECT NULL::uuid, NULL::bytea, {TIMELINE},
                pg_catalog.pg_current_snapshot()::text,
                (SELECT declarations FROM bloomgate.store),
                EXISTS (SELECT FROM bloomgate.replica WHERE id = $1), {SEGMENT},
                EXISTS (SELECT FROM bloomgate.server_start WHERE segment = $6)
         UNION ALL
         SELECT filter_id, item, NULL, NULL, NULL, NULL, NULL, NULL FROM bloomgate.item
          WHERE xid >= $4::text::xid8
         UNION ALL
         SELECT filter_id, item, NULL, NULL, NULL, NULL, NULL, NULL FROM bloomgate.item
          WHERE xid = ANY ($5::text[]::xid8[])"
    )
}

/// Who asks, and how long an answer may take to begin and to go on.
pub(super) struct Follower {
    /// Of this process.
    pub(super) replica: Uuid,
    /// Polls that it has sent.
    pub(super) reports: AtomicI64,
    /// How long this process may say `definitely-not` after a poll.
    pub(super) max_staleness: Duration,
    /// Past this the answer is not waited for.
    pub(super) limit: Duration,
}

impl Follower {
    /// Puts this process on record, so that others wait for it.
    ///
    /// # Errors
    /// When the statement fails.
    pub(super) async fn register(
        &self,
        connection: &mut PgConnection,
        what: &str,
    ) -> Result<(), StoreError> {
        let max_staleness_ms = i64::try_from(self.max_staleness.as_millis()).unwrap_or(i64::MAX);
        let register = sqlx::query(
            "INSERT INTO bloomgate.replica (id, max_staleness_ms) VALUES ($1, $2)
             ON CONFLICT DO NOTHING",
        )
        .bind(self.replica)
        .bind(max_staleness_ms);
        within(STEP_LIMIT, what, register.execute(connection)).await?;
        Ok(())
    }

    /// Gives the rows written since `after`, none without it, and the cursor of the moment.
    ///
    /// # Errors
    /// [`StoreError::CursorVoid`], or when the server fails or falls silent.
    pub(super) async fn poll(
        &self,
        connection: &mut PgConnection,
        what: &str,
        after: Option<&Cursor>,
        sink: &mut dyn ChangeSink,
    ) -> Result<Polled, StoreError> {
        let in_progress: Vec<_> = after
            .into_iter()
            .flat_map(|cursor| &cursor.in_progress)
            .map(|Place(xid)| xid.to_string())
            .collect();
        let statement = poll_statement();
        let mut rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(self.replica)
            .bind(self.reports.fetch_add(1, Ordering::Relaxed) + 1)
            .bind(after.map(Cursor::encode))
            // Compared with null no row is written since.
            .bind(after.map(|cursor| cursor.next.0.to_string()))
            .bind(in_progress)
            .bind(after.map(|cursor| cursor.segment.cast_signed()))
            .fetch(connection);
        let mut polled = None;
        loop {
            let row = match tokio::time::timeout(self.limit, rows.next()).await {
                Ok(None) => break,
                Ok(Some(row)) => row.map_err(|error| classify(&error).of(what))?,
                Err(_elapsed) => {
                    let detail = format!("no answer to a poll within {:?}", self.limit);
                    return Err(Fault::Unreachable(detail).of(what));
                }
            };
            let told = Told::read(&row).map_err(|error| classify(&error).of(what))?;
            match told {
                Told::Change(filter, item) => sink.change(FilterId(filter), item),
                Told::Moment {
                    timeline,
                    snapshot,
                    declarations,
                    is_on_record,
                    segment,
                    is_segment_known,
                } => {
                    if !is_on_record {
                        let detail = "this process is not on record any more";
                        return Err(Fault::Unreachable(detail.to_owned()).of(what));
                    }
                    let now = cursor(timeline, segment, snapshot, what)?;
                    if let Some(before) = after {
                        continues(before, is_segment_known, &now, what)?;
                    }
                    polled = Some(Polled {
                        cursor: now,
                        declarations: declarations.cast_unsigned(),
                    });
                }
            }
        }
        polled.ok_or_else(|| {
            let detail = "expected the moment of a poll, found none".to_owned();
            Fault::Failed(detail).of(what)
        })
    }
}

enum Told<'r> {
    Change(Uuid, &'r [u8]),
    Moment {
        timeline: Option<&'r str>,
        snapshot: &'r str,
        declarations: i64,
        is_on_record: bool,
        segment: Option<i64>,
        /// Whether that of the cursor before is on record.
        is_segment_known: bool,
    },
}

impl<'r> Told<'r> {
    fn read(row: &'r sqlx::postgres::PgRow) -> Result<Self, sqlx::Error> {
        Ok(match row.try_get(0)? {
            Some(filter) => Self::Change(filter, row.try_get(1)?),
            None => Self::Moment {
                timeline: row.try_get(2)?,
                snapshot: row.try_get(3)?,
                declarations: row.try_get(4)?,
                is_on_record: row.try_get(5)?,
                segment: row.try_get(6)?,
                is_segment_known: row.try_get(7)?,
            },
        })
    }
}

/// The rows of a filter as a query of two columns for a stream, item and expiry: all of them, or
/// those written since a cursor.
pub(super) fn rows_of(filter: FilterId, since: Option<&Cursor>) -> String {
    let all = format!(
        "SELECT item, expires_at FROM bloomgate.item WHERE filter_id = '{}'",
        filter.0.hyphenated()
    );
    let Some(since) = since else { return all };
    let in_progress: Vec<_> = since
        .in_progress
        .iter()
        .map(|Place(xid)| xid.to_string())
        .collect();
    format!(
        "{all} AND (xid >= '{}'::xid8 OR xid = ANY ('{{{}}}'::xid8[]))",
        since.next.0,
        in_progress.join(",")
    )
}

/// What the other processes have reported: nothing yet, or since a crash, where there is no report.
pub(super) async fn others(
    connection: &mut PgConnection,
    own: Uuid,
) -> Result<Vec<Replica>, sqlx::Error> {
    let rows: Vec<(Uuid, i64, i64, Option<Vec<u8>>)> = sqlx::query_as(
        "SELECT id, coalesce(reports, 0), max_staleness_ms, cursor
           FROM bloomgate.replica LEFT JOIN bloomgate.report ON replica_id = id
          WHERE id <> $1",
    )
    .bind(own)
    .fetch_all(connection)
    .await?;
    let replicas = rows
        .into_iter()
        .map(|(id, reports, max_staleness_ms, cursor)| Replica {
            id,
            reports,
            max_staleness: Duration::from_millis(max_staleness_ms.try_into().unwrap_or(u64::MAX)),
            // What cannot be read reaches nothing.
            cursor: cursor.and_then(|bytes| Cursor::decode(&bytes)),
        });
    Ok(replicas.collect())
}

/// Takes back what a process has reported: it is gone, or has been silent for long.
pub(super) async fn forget(
    connection: &mut PgConnection,
    replica: Uuid,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "WITH gone AS (DELETE FROM bloomgate.report WHERE replica_id = $1)
         DELETE FROM bloomgate.replica WHERE id = $1",
    )
    .bind(replica)
    .execute(connection)
    .await?;
    Ok(())
}
