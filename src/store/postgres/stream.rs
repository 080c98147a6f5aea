//! The rows of a query, streamed as of one cut: counted and copied in one transaction.
//!
//! Invariants: constant memory; every row of the cut or an error; the transaction only reads;
//! a server that falls silent ends the load.

use std::time::Duration;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::errors::{Fault, classify, within};
use super::session::{self, STEP_LIMIT, Scope, Settings};
use super::time::PgTime;
use crate::service::ports::{RowSink, StoreError};
use crate::store::copy_binary::{CopyError, CopyParser};

/// Longest silence: a query may sort before it gives its first row, or search long between two, and
/// the server sends rows only as its buffer fills.
const SILENCE_LIMIT: Duration = Duration::from_secs(600);

const SETTINGS: Settings = &[
    // Hidden rows become an error: without them the set would be short.
    ("row_security", "off"),
    // A load takes as long as it takes, whatever the database has for others.
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("transaction_timeout", "0"),
    // sqlx logs what the server notes, and a note can quote a row.
    ("client_min_messages", "error"),
];

/// How the item of a row comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemFormat {
    /// Its own bytes, as those of `text` or `bytea`.
    Bytes,
    /// A `uuid`'s sixteen bytes, which stand for its text: the server would take longer to write it
    /// and to send it.
    Uuid,
}

/// A transaction that reads one cut.
///
/// # Errors
/// When the server does not answer or refuses.
pub(crate) async fn begin<'c>(
    connection: &'c mut PgConnection,
    what: &str,
) -> Result<Transaction<'c, Postgres>, StoreError> {
    begin_with(connection, what, SETTINGS).await
}

/// The same with other settings.
///
/// # Errors
/// As [`begin`].
pub(crate) async fn begin_with<'c>(
    connection: &'c mut PgConnection,
    what: &str,
    settings: Settings,
) -> Result<Transaction<'c, Postgres>, StoreError> {
    let begin = connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    let mut transaction = within(STEP_LIMIT, what, begin).await?;
    session::set(&mut transaction, what, settings, Scope::Transaction).await?;
    // Such a database knows no encoding: asked for UTF-8 it would refuse the rows that are none,
    // as it is asked for nothing it hands over the bytes as they lie.
    let raw = sqlx::query(
        "SELECT pg_catalog.set_config('client_encoding', 'SQL_ASCII', true)
          WHERE pg_catalog.current_setting('server_encoding') = 'SQL_ASCII'",
    )
    .persistent(false);
    within(STEP_LIMIT, what, raw.execute(&mut *transaction)).await?;
    Ok(transaction)
}

/// Ends such a transaction, so that a pooler can hand the session on: one whose client leaves in the middle
/// of a transaction it has to close.
///
/// # Errors
/// When the server does not answer.
pub(crate) async fn end(
    transaction: Transaction<'_, Postgres>,
    what: &str,
) -> Result<(), StoreError> {
    within(STEP_LIMIT, what, transaction.rollback()).await
}

/// Streams `rows`, a query of two columns: the item in its format, its expiry as `timestamptz`.
/// `transaction` must come from [`begin`]; after an error it is of no use.
///
/// # Errors
/// [`StoreError::Incomplete`] when other rows came than were counted; else when the server
/// fails, refuses or falls silent.
pub(crate) async fn stream(
    transaction: &mut PgConnection,
    what: &str,
    rows: &str,
    item_format: ItemFormat,
    sink: &mut dyn RowSink,
) -> Result<(), StoreError> {
    let expected = count(transaction, what, rows, sink).await?;
    let copy = format!("COPY ({rows}) TO STDOUT (FORMAT binary)");
    let chunks = within(SILENCE_LIMIT, what, transaction.copy_out_raw(&copy)).await?;
    match item_format {
        ItemFormat::Bytes => receive(chunks, what, expected, SILENCE_LIMIT, sink).await,
        ItemFormat::Uuid => {
            let mut sink = UuidsAsText { sink, odd: 0 };
            receive(chunks, what, expected, SILENCE_LIMIT, &mut sink).await?;
            sink.finish(what)
        }
    }
}

/// Writes items that come as the bytes of a `uuid` as the server does.
struct UuidsAsText<'a> {
    sink: &'a mut dyn RowSink,
    /// Items that were no sixteen bytes.
    odd: u64,
}

impl UuidsAsText<'_> {
    fn finish(&self, what: &str) -> Result<(), StoreError> {
        match self.odd {
            0 => Ok(()),
            odd => {
                let detail = format!("expected 16 bytes in its column of uuids, {odd} had others");
                Err(Fault::Failed(detail).of(what))
            }
        }
    }
}

impl RowSink for UuidsAsText<'_> {
    fn begin(&mut self, rows_expected: u64, database_now: Timestamp) {
        self.sink.begin(rows_expected, database_now);
    }

    fn row(&mut self, item: Option<&[u8]>, expires_at: Option<Timestamp>) {
        let Some(item) = item else {
            return self.sink.row(None, expires_at);
        };
        let Ok(uuid) = Uuid::from_slice(item) else {
            self.odd += 1;
            return;
        };
        let mut text = Uuid::encode_buffer();
        let text = uuid.hyphenated().encode_lower(&mut text);
        self.sink.row(Some(text.as_bytes()), expires_at);
    }
}

/// Streams `rows` as [`stream`] does, of which there must be as many as `expected`: whoever calls
/// has counted them in the same transaction and begun the sink. A server that is silent for longer
/// than `patience` ends it.
///
/// # Errors
/// As [`stream`].
pub(crate) async fn copy(
    transaction: &mut PgConnection,
    what: &str,
    rows: &str,
    expected: u64,
    patience: Duration,
    sink: &mut dyn RowSink,
) -> Result<(), StoreError> {
    let copy = format!("COPY ({rows}) TO STDOUT (FORMAT binary)");
    let chunks = within(patience, what, transaction.copy_out_raw(&copy)).await?;
    receive(chunks, what, expected, patience, sink).await
}

async fn count(
    transaction: &mut PgConnection,
    what: &str,
    rows: &str,
    sink: &mut dyn RowSink,
) -> Result<u64, StoreError> {
    // The extended protocol takes one statement only: this also proves that `rows` is a query
    // and no list of them.
    let question = format!(
        "SELECT pg_catalog.count(*), pg_catalog.transaction_timestamp() FROM ({rows}) AS counted"
    );
    let question = sqlx::query_as(AssertSqlSafe(question)).persistent(false);
    let answer = within(SILENCE_LIMIT, what, question.fetch_one(transaction));
    let (expected, now): (i64, PgTime) = answer.await?;
    let failed = |detail: &str| Fault::Failed(detail.to_owned()).of(what);
    let expected = u64::try_from(expected).map_err(|_| failed("it counted fewer than no rows"))?;
    let now = now
        .moment()
        .ok_or_else(|| failed("its clock is past the year 9999"))?;
    sink.begin(expected, now);
    Ok(expected)
}

/// Parses the stream to its end, which must have as many rows as expected.
async fn receive(
    mut chunks: impl Stream<Item = Result<bytes::Bytes, sqlx::Error>> + Unpin,
    what: &str,
    expected: u64,
    patience: Duration,
    sink: &mut dyn RowSink,
) -> Result<(), StoreError> {
    let mut parser = CopyParser::<2>::new();
    let mut is_expiry_odd = false;
    while let Some(chunk) = next(&mut chunks, what, patience).await? {
        parser
            .push(&chunk, |[item, expires_at]| {
                let expires_at = expires_at.map(<[u8; 8]>::try_from);
                match expires_at {
                    None => sink.row(item, None),
                    Some(Ok(us)) => sink.row(item, PgTime(i64::from_be_bytes(us)).moment()),
                    Some(Err(_)) => is_expiry_odd = true,
                }
            })
            .map_err(|error| Fault::Failed(error.to_string()).of(what))?;
        if is_expiry_odd {
            let detail = "expected 8 bytes in the column of expiries, found others".to_owned();
            return Err(Fault::Failed(detail).of(what));
        }
    }
    let rows = parser.rows();
    match parser.finish() {
        Ok(rows) if rows == expected => Ok(()),
        Ok(rows) => Err(incomplete(what, expected, rows)),
        Err(CopyError::Truncated { .. }) if rows != expected => {
            Err(incomplete(what, expected, rows))
        }
        Err(error) => Err(Fault::Failed(error.to_string()).of(what)),
    }
}

/// The next chunk; none at the end.
async fn next(
    chunks: &mut (impl Stream<Item = Result<bytes::Bytes, sqlx::Error>> + Unpin),
    what: &str,
    patience: Duration,
) -> Result<Option<bytes::Bytes>, StoreError> {
    // Most chunks lie in the buffer already, and a timer for each would cost more than they do.
    let chunk = match chunks.next().now_or_never() {
        Some(chunk) => chunk,
        None => match tokio::time::timeout(patience, chunks.next()).await {
            Ok(chunk) => chunk,
            Err(_elapsed) => {
                let detail = format!("the load came to a halt: no rows within {patience:?}");
                return Err(Fault::Unreachable(detail).of(what));
            }
        },
    };
    chunk.transpose().map_err(|error| classify(&error).of(what))
}

fn incomplete(what: &str, expected: u64, found: u64) -> StoreError {
    StoreError::Incomplete {
        what: what.to_owned(),
        expected,
        found,
    }
}
