//! The rows of a filter, as of one cut.

use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Row as _};

use crate::service::ports::{FilterId, RowSink};

/// Streams the rows of a filter from commit `first` on. Gives the last commit of the cut, the rows
/// that it holds and the rows that came.
pub(super) async fn load(
    reader: &mut SqliteConnection,
    filter: FilterId,
    first: i64,
    sink: &mut dyn RowSink,
) -> Result<(i64, u64, u64), sqlx::Error> {
    // Of many rows the index of commits leads to few, and of all of them the filter's own order is
    // the fast one.
    let which = if first > 0 {
        "filter_id = ?1 AND commit_number >= ?2"
    } else {
        "filter_id = ?1 AND +commit_number >= ?2"
    };
    // The first statement takes the cut, the others see the same.
    let mut transaction = reader.begin().await?;
    let question =
        format!("SELECT last_commit, (SELECT count(*) FROM item WHERE {which}) FROM store");
    let (last_commit, expected): (i64, i64) = sqlx::query_as(sqlx::AssertSqlSafe(question))
        .bind(filter.0)
        .bind(first)
        .fetch_one(&mut *transaction)
        .await?;
    let expected = expected.cast_unsigned();
    // The database's clock is this machine's.
    sink.begin(expected, Timestamp::now());
    let mut found = 0;
    let question = format!("SELECT item, expires_at FROM item WHERE {which}");
    let mut rows = sqlx::query(sqlx::AssertSqlSafe(question))
        .bind(filter.0)
        .bind(first)
        .fetch(&mut *transaction);
    while let Some(row) = rows.try_next().await? {
        let expires_us: Option<i64> = row.try_get(1)?;
        // A moment that no Timestamp knows was never written; never is the safe reading.
        let expires_at = expires_us.and_then(|us| Timestamp::from_microsecond(us).ok());
        sink.row(Some(row.try_get(0)?), expires_at);
        found += 1;
    }
    Ok((last_commit, expected, found))
}
