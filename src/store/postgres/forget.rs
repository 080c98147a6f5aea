//! Rows out of the table `item`: those of a removed item, and those that have expired.
//!
//! Invariants: what goes is counted into `filter.forgotten` in the same commit; a row that is added
//! again meanwhile, or whose expiry is put off, stays; no two writers ever deadlock.
//!
//! Each runs in a transaction that its caller begins and ends. The filter's row is locked before its
//! items, as every writer does, and items in the order of their key. The lock is one that adds do not
//! wait for. Who deletes what has expired waits for nobody: filters and rows that somebody else has
//! locked are left to the next time.

use jiff::SignedDuration;
use sqlx::PgConnection;
use uuid::Uuid;

use super::WRITE_LIMIT;
use super::add::place_of;
use super::errors::within;
use super::server::{TIMELINE, timeline, void};
use super::session::STEP_LIMIT;
use crate::service::ports::{FilterId, Pruned, Removal, StoreError};
use crate::store::rows::{Digest, leeway_us};

/// Expired rows that go at once: some ten milliseconds.
const PRUNED_ROWS: i64 = 5_000;

/// Deletes the rows of a filter with this canonical digest; none when there is no such filter.
///
/// # Errors
/// When a statement fails; nothing was acknowledged then.
pub(super) async fn remove(
    transaction: &mut PgConnection,
    what: &str,
    filter: FilterId,
    canonical_digest: &Digest,
) -> Result<Option<Removal>, StoreError> {
    let lock =
        sqlx::query_scalar("SELECT id FROM bloomgate.filter WHERE id = $1 FOR NO KEY UPDATE")
            .bind(filter.0);
    let live: Option<Uuid> =
        within(WRITE_LIMIT, what, lock.fetch_optional(&mut *transaction)).await?;
    if live.is_none() {
        return Ok(None);
    }
    // A statement of its own, so that it sees what was committed while the lock was waited for.
    let statement = format!(
        "WITH part AS MATERIALIZED (
             SELECT item_digest FROM bloomgate.item
              WHERE filter_id = $1 AND canonical_digest = $2 ORDER BY item_digest FOR UPDATE
         ), gone AS (
             DELETE FROM bloomgate.item USING part
              WHERE item.filter_id = $1 AND item.item_digest = part.item_digest
             RETURNING 1
         ), counted AS (
             UPDATE bloomgate.filter
                SET forgotten = forgotten + (SELECT pg_catalog.count(*) FROM gone) WHERE id = $1
         )
         SELECT pg_catalog.pg_current_xact_id()::text, (SELECT pg_catalog.count(*) FROM gone),
                {TIMELINE}"
    );
    let delete = sqlx::query_as(sqlx::AssertSqlSafe(statement))
        .bind(filter.0)
        .bind(&canonical_digest[..]);
    let (place, rows, told): (String, i64, Option<String>) =
        within(WRITE_LIMIT, what, delete.fetch_one(&mut *transaction)).await?;
    let told = told.ok_or_else(|| void(what, "its marker is gone"))?;
    Ok(Some(Removal {
        timeline: timeline(&told),
        place: place_of(&place, what)?,
        rows: rows.cast_unsigned(),
    }))
}

/// Deletes some rows that have expired longer ago than `leeway`. Those of filters that are gone go
/// with them, uncounted.
///
/// # Errors
/// When a statement fails; nothing was deleted then.
pub(super) async fn prune(
    transaction: &mut PgConnection,
    what: &str,
    leeway: SignedDuration,
) -> Result<Pruned, StoreError> {
    let leeway_us = leeway_us(leeway);
    // Asked first, so that where nothing has expired nothing is written.
    let question = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM bloomgate.item
          WHERE expires_at < statement_timestamp() - $1::bigint * interval '1 microsecond')",
    )
    .bind(leeway_us);
    if !within(WRITE_LIMIT, what, question.fetch_one(&mut *transaction)).await? {
        return Ok(Pruned {
            rows: 0,
            more: false,
        });
    }
    let lock = sqlx::query_scalar(
        "SELECT id FROM bloomgate.filter ORDER BY id FOR NO KEY UPDATE SKIP LOCKED",
    );
    let locked: Vec<Uuid> = within(STEP_LIMIT, what, lock.fetch_all(&mut *transaction)).await?;
    let others = sqlx::query_scalar("SELECT id FROM bloomgate.filter WHERE id <> ALL ($1)");
    let others = others.bind(&locked);
    let others: Vec<Uuid> = within(STEP_LIMIT, what, others.fetch_all(&mut *transaction)).await?;
    // A row that was changed since the snapshot is looked at anew as it is locked; from then on
    // nobody else changes it.
    let delete = sqlx::query_as(
        "WITH part AS MATERIALIZED (
             SELECT filter_id, item_digest FROM bloomgate.item
              WHERE expires_at < statement_timestamp() - $1::bigint * interval '1 microsecond'
                AND filter_id <> ALL ($2)
              ORDER BY expires_at LIMIT $3 FOR UPDATE SKIP LOCKED
         ), gone AS (
             DELETE FROM bloomgate.item USING part
              WHERE item.filter_id = part.filter_id AND item.item_digest = part.item_digest
                AND item.expires_at < statement_timestamp() - $1::bigint * interval '1 microsecond'
             RETURNING item.filter_id
         ), counted AS (
             UPDATE bloomgate.filter SET forgotten = forgotten + lost.rows
               FROM (SELECT filter_id, count(*) AS rows FROM gone GROUP BY filter_id) AS lost
              WHERE filter.id = lost.filter_id AND filter.id = ANY ($4)
         )
         SELECT (SELECT count(*) FROM part), (SELECT count(*) FROM gone)",
    )
    .bind(leeway_us)
    .bind(&others)
    .bind(PRUNED_ROWS)
    .bind(&locked);
    let (tried, rows): (i64, i64) =
        within(WRITE_LIMIT, what, delete.fetch_one(&mut *transaction)).await?;
    Ok(Pruned {
        rows: rows.cast_unsigned(),
        more: tried == PRUNED_ROWS,
    })
}
