//! Rows out of the table `item`: those of a removed item, and those that have expired.
//!
//! Invariant: what goes is counted into `filter.forgotten` in the same commit.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::writer::Writer;
use crate::service::cursor::Timeline;
use crate::service::ports::{FilterId, Place, Pruned, Removal};
use crate::store::rows::{Digest, leeway_us};

/// Expired rows that go in one transaction: some ten milliseconds.
const PRUNED_ROWS: i64 = 5_000;

/// The moment before which what has expired goes, in microseconds since 1970. The database's clock
/// is this machine's.
pub(super) fn forget_before_us(leeway: SignedDuration) -> i64 {
    Timestamp::now().as_microsecond() - leeway_us(leeway)
}

/// Deletes the rows of a filter with this canonical digest; none when there is no such filter.
pub(super) async fn remove(
    writer: &mut Writer,
    timeline: Timeline,
    filter: FilterId,
    canonical_digest: &Digest,
) -> Result<Option<Removal>, sqlx::Error> {
    let transaction = writer.begin().await?;
    let deleted = sqlx::query("DELETE FROM item WHERE filter_id = ? AND canonical_digest = ?")
        .bind(filter.0)
        .bind(&canonical_digest[..])
        .execute(&mut *transaction)
        .await?;
    let rows = deleted.rows_affected();
    let counted = sqlx::query("UPDATE filter SET forgotten = forgotten + ? WHERE id = ?")
        .bind(rows.cast_signed())
        .bind(filter.0)
        .execute(&mut *transaction)
        .await?;
    if counted.rows_affected() == 0 {
        // The purge takes what is left of it.
        writer.roll_back().await;
        return Ok(None);
    }
    let commit: i64 =
        sqlx::query_scalar("UPDATE store SET last_commit = last_commit + 1 RETURNING last_commit")
            .fetch_one(&mut *transaction)
            .await?;
    writer.commit().await?;
    Ok(Some(Removal {
        timeline,
        place: Place(commit.cast_unsigned()),
        rows,
    }))
}

/// Deletes some rows that have expired longer ago than `leeway`.
pub(super) async fn prune(
    writer: &mut Writer,
    leeway: SignedDuration,
) -> Result<Pruned, sqlx::Error> {
    let transaction = writer.begin().await?;
    let gone: Vec<Uuid> = sqlx::query_scalar(
        "DELETE FROM item WHERE (filter_id, item_digest) IN
                (SELECT filter_id, item_digest FROM item WHERE expires_at < ?
                  ORDER BY expires_at LIMIT ?)
         RETURNING filter_id",
    )
    .bind(forget_before_us(leeway))
    .bind(PRUNED_ROWS)
    .fetch_all(&mut *transaction)
    .await?;
    let mut lost: HashMap<Uuid, i64> = HashMap::new();
    for filter in &gone {
        *lost.entry(*filter).or_default() += 1;
    }
    for (filter, rows) in lost {
        sqlx::query("UPDATE filter SET forgotten = forgotten + ? WHERE id = ?")
            .bind(rows)
            .bind(filter)
            .execute(&mut *transaction)
            .await?;
    }
    if gone.is_empty() {
        writer.roll_back().await;
    } else {
        writer.commit().await?;
    }
    Ok(Pruned {
        rows: gone.len() as u64,
        more: i64::try_from(gone.len()) == Ok(PRUNED_ROWS),
    })
}
