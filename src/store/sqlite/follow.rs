//! Following a store that this process alone writes to.
//!
//! A cursor is the number of the last commit, and the segment: which opening of the store it was
//! taken in. A file that was put back to an earlier state hands out commit numbers again; a cursor
//! holds only while its opening is on record and had come as far before the next one began.

use futures_util::TryStreamExt as _;
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use crate::service::cursor::{Cursor, Timeline};
use crate::service::ports::{ChangeSink, FilterId, Place, Polled};

/// Openings that are kept on record: a snapshot that is older is loaded anew.
const OPENINGS_KEPT: i64 = 1_000;

/// Records an opening and gives its segment.
pub(super) async fn record_opening(
    connection: &mut SqliteConnection,
    segment: u64,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO opening (segment, first_commit) SELECT ?, last_commit FROM store;
         DELETE FROM opening WHERE number <= (SELECT max(number) FROM opening) - ?",
    )
    .bind(segment.cast_signed())
    .bind(OPENINGS_KEPT)
    .execute(connection)
    .await?;
    Ok(())
}

/// The cursor of a moment at which `last_commit` was the last.
pub(super) fn cursor_at(timeline: Timeline, segment: u64, last_commit: i64) -> Cursor {
    Cursor {
        timeline,
        segment,
        next: Place(last_commit.cast_unsigned() + 1),
        in_progress: Box::default(),
    }
}

/// Whether the store still has everything that a cursor of this store has seen.
pub(super) async fn holds(
    connection: &mut SqliteConnection,
    cursor: &Cursor,
) -> Result<bool, sqlx::Error> {
    let last_seen = cursor.next.0.saturating_sub(1).cast_signed();
    sqlx::query_scalar(
        "SELECT EXISTS (
             SELECT 1 FROM opening AS taken
              WHERE taken.segment = ?1 AND taken.first_commit <= ?2
                AND ?2 <= coalesce(
                    (SELECT following.first_commit FROM opening AS following
                      WHERE following.number > taken.number ORDER BY following.number LIMIT 1),
                    (SELECT last_commit FROM store)))",
    )
    .bind(cursor.segment.cast_signed())
    .bind(last_seen)
    .fetch_one(connection)
    .await
}

/// Gives the rows written since `after`, none without it, and the cursor of the moment.
pub(super) async fn poll(
    connection: &mut SqliteConnection,
    timeline: Timeline,
    segment: u64,
    after: Option<&Cursor>,
    sink: &mut dyn ChangeSink,
) -> Result<Polled, sqlx::Error> {
    let (last_commit, declarations): (i64, i64) =
        sqlx::query_as("SELECT last_commit, declarations FROM store")
            .fetch_one(&mut *connection)
            .await?;
    if let Some(after) = after {
        let mut rows = sqlx::query("SELECT filter_id, item FROM item WHERE commit_number >= ?")
            .bind(after.next.0.cast_signed())
            .fetch(connection);
        while let Some(row) = rows.try_next().await? {
            let filter: Uuid = row.try_get(0)?;
            sink.change(FilterId(filter), row.try_get(1)?);
        }
    }
    Ok(Polled {
        cursor: cursor_at(timeline, segment, last_commit),
        declarations: declarations.cast_unsigned(),
    })
}
