//! Rows into the table `item`, in one transaction.

use std::collections::HashSet;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::follow::cursor_at;
use super::writer::Writer;
use crate::service::cursor::Timeline;
use crate::service::ports::{AddReceipt, Place};
use crate::store::rows::{DigestedRow, filters_named, unix_us_rounded_up};

/// Rows a statement, from the largest to one: few texts, so that each stays prepared. A row takes
/// eight parameters, of 32,766 at most.
const ROWS_A_STATEMENT: [usize; 3] = [256, 16, 1];

/// Adds `rows`, which are merged. None of them is kept when it fails.
pub(super) async fn add(
    writer: &mut Writer,
    (timeline, segment): (Timeline, u64),
    rows: &[DigestedRow<'_>],
) -> Result<AddReceipt, sqlx::Error> {
    let transaction = writer.begin().await?;
    let commit: i64 =
        sqlx::query_scalar("UPDATE store SET last_commit = last_commit + 1 RETURNING last_commit")
            .fetch_one(&mut *transaction)
            .await?;
    let live: HashSet<Uuid> = sqlx::query_scalar("SELECT id FROM filter")
        .fetch_all(&mut *transaction)
        .await?
        .into_iter()
        .collect();
    let kept: Vec<_> = rows
        .iter()
        .filter(|row| live.contains(&row.filter.0))
        .collect();
    let mut rest = &kept[..];
    for rows_a_statement in ROWS_A_STATEMENT {
        while let Some((chunk, behind)) = rest.split_at_checked(rows_a_statement) {
            insert(transaction, commit, chunk).await?;
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
    }
    writer.commit().await?;
    Ok(AddReceipt {
        timeline,
        cursor: Some(cursor_at(timeline, segment, commit)),
        place: Place(commit.cast_unsigned()),
        deleted: filters_named(rows)
            .into_iter()
            .filter(|filter| !live.contains(&filter.0))
            .collect(),
    })
}

async fn insert(
    writer: &mut SqliteConnection,
    commit: i64,
    rows: &[&DigestedRow<'_>],
) -> Result<(), sqlx::Error> {
    let values = vec!["(?, ?, ?, ?, ?, ?, ?, ?)"; rows.len()].join(", ");
    let statement = format!(
        "INSERT INTO item (filter_id, item, item_digest, canonical_digest, profile_version,
                           expires_at, revoke_issued_until, commit_number)
         VALUES {values}
         ON CONFLICT (filter_id, item_digest) DO UPDATE
            SET expires_at = CASE WHEN item.expires_at IS NULL OR excluded.expires_at IS NULL
                                  THEN NULL ELSE max(item.expires_at, excluded.expires_at) END,
                -- Of nulls the greatest is null.
                revoke_issued_until = max(item.revoke_issued_until, excluded.revoke_issued_until),
                canonical_digest = excluded.canonical_digest,
                profile_version = excluded.profile_version,
                commit_number = excluded.commit_number"
    );
    // Nothing of a row stands in the text.
    let mut statement = sqlx::query(AssertSqlSafe(statement));
    for row in rows {
        statement = statement
            .bind(row.filter.0)
            .bind(row.item)
            .bind(&row.item_digest[..])
            .bind(&row.canonical_digest[..])
            .bind(row.profile_version)
            .bind(row.terms.expires_at.map(unix_us_rounded_up))
            .bind(row.terms.revoke_issued_until.map(unix_us_rounded_up))
            .bind(commit);
    }
    statement.execute(writer).await?;
    Ok(())
}
