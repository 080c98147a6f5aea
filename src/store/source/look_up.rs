//! Asking a source for one item, by its `confirm_query`.
//!
//! Invariants: it runs in a transaction that only reads, `$1` is the item as text and nothing else;
//! rows, their length and the time are bounded; whatever meets a bound, lags, or cannot be told as
//! text is said to be no whole answer. What is given is compared by whoever asked, not by SQL.
//!
//! One transaction asks for all spellings. Nothing of it stays on the server's session, which may be
//! a pooler's. Sessions are kept between two questions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::TryStreamExt as _;
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, Postgres, Row as _,
    SqlSafeStr as _, Statement as _, Type,
};

use super::columns::{Column, refuse_unfit};
use crate::service::ports::{Candidate, Candidates, StoreError};
use crate::store::postgres::errors::{Fault, classify, within};
use crate::store::postgres::session::{STEP_LIMIT, Settings};
use crate::store::postgres::stream;
use crate::store::postgres::time::PgTime;
use crate::store::postgres::url::Target;

/// Rows that one spelling may bring.
const MOST_ROWS: usize = 1_000;

/// Bytes that the rows of one spelling may bring.
const MOST_BYTES: usize = 1 << 20;

/// The longest item that is taken over; a longer one is no whole answer.
const LONGEST_ITEM_BYTES: usize = 8_192;

/// Rows of a sample.
const SAMPLE_ROWS: usize = 10;

/// Sessions that are kept.
const MOST_IDLE: usize = 4;

/// A server that nobody waits for any more gives up by itself.
const SETTINGS: Settings = &[
    // Hidden rows become an error: without them an item would not be found.
    ("row_security", "off"),
    ("statement_timeout", "2s"),
    ("lock_timeout", "2s"),
    ("idle_in_transaction_session_timeout", "10s"),
    // sqlx logs what the server notes, and a note can quote a row.
    ("client_min_messages", "error"),
];

/// A sample of a query that sorts takes as long as the sorting.
const SAMPLE_SETTINGS: Settings = &[
    ("row_security", "off"),
    ("statement_timeout", "30s"),
    ("client_min_messages", "error"),
];

/// A `confirm_query`, and the sessions that ask it.
pub(super) struct LookUps {
    query: String,
    idle: Mutex<Vec<Asker>>,
}

/// A session that knows how to ask.
struct Asker {
    session: PgConnection,
    question: Arc<str>,
}

impl LookUps {
    /// Takes a query; it connects to nothing.
    pub(super) fn new(query: &str) -> Self {
        Self {
            query: query.to_owned(),
            idle: Mutex::default(),
        }
    }

    /// Looks at the query's columns without reading rows, and gives the question that it makes.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when they are not an item and perhaps an expiry.
    pub(super) async fn examine(
        &self,
        transaction: &mut PgConnection,
        what: &str,
    ) -> Result<Arc<str>, StoreError> {
        let wrapped = format!("SELECT * FROM ({}\n) AS source", self.query);
        let text = [<str as Type<Postgres>>::type_info()];
        let prepare = transaction.prepare_with(AssertSqlSafe(wrapped).into_sql_str(), &text);
        let statement = within(STEP_LIMIT, what, prepare).await?;
        let mut columns = Vec::new();
        for column in statement.columns() {
            columns.push(Column::look_up(transaction, what, column).await?);
        }
        // What was prepared has a name, which would be in the way of the next one on a pooler's session.
        let forget = transaction.clear_cached_statements();
        within(STEP_LIMIT, what, forget).await?;
        refuse_unfit(&columns)
            .map_err(|detail| Fault::Refused(format!("confirm_query: {detail}")).of(what))?;
        Ok(question_of(&self.query, columns.len() > 1).into())
    }

    /// Asks for each of the spellings.
    ///
    /// # Errors
    /// When the source does not answer, in time or at all.
    pub(super) async fn ask(
        &self,
        target: &Target,
        spellings: &[String],
    ) -> Result<Vec<Candidates>, StoreError> {
        let kept = self.idle().pop();
        if let Some(mut asker) = kept {
            match ask(&mut asker, &target.what, spellings).await {
                Ok(found) => {
                    self.keep(asker);
                    return Ok(found);
                }
                // The server may have been started anew since, or the table changed.
                Err(StoreError::Unreachable { .. } | StoreError::Refused { .. }) => {
                    self.idle().clear();
                }
                Err(error) => return Err(error),
            }
        }
        let mut session = target.connect().await?;
        let mut transaction = stream::begin_with(&mut session, &target.what, SETTINGS).await?;
        let question = self.examine(&mut transaction, &target.what).await?;
        within(STEP_LIMIT, &target.what, transaction.rollback()).await?;
        let mut asker = Asker { session, question };
        let found = ask(&mut asker, &target.what, spellings).await?;
        self.keep(asker);
        Ok(found)
    }

    fn keep(&self, asker: Asker) {
        let mut idle = self.idle();
        if idle.len() < MOST_IDLE {
            idle.push(asker);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Asker>> {
        // Nothing in here can leave the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A row of the moment, and the rows that were found beside it. In a database that knows no encoding
/// the item that is asked for is UTF-8 and a row may be anything.
fn question_of(query: &str, has_expiry: bool) -> String {
    let (columns, expiry) = if has_expiry {
        ("item, expiry", "source.expiry::pg_catalog.timestamptz")
    } else {
        ("item", "NULL::pg_catalog.timestamptz")
    };
    format!(
        "SELECT NOT pg_catalog.pg_is_in_recovery()
                AND pg_catalog.current_setting('server_encoding') <> 'SQL_ASCII',
                pg_catalog.transaction_timestamp(), found.item_bytes,
                CASE WHEN found.item_bytes <= {LONGEST_ITEM_BYTES} THEN found.item END, found.expiry
           FROM (SELECT 1) AS one
           LEFT JOIN (SELECT source.item::pg_catalog.text AS item, {expiry} AS expiry,
                             coalesce(pg_catalog.octet_length(source.item::pg_catalog.text), 0)
                                 AS item_bytes
                        FROM ({query}\n) AS source ({columns}) LIMIT {limit}) AS found ON true",
        limit = MOST_ROWS + 1,
    )
}

async fn ask(
    asker: &mut Asker,
    what: &str,
    spellings: &[String],
) -> Result<Vec<Candidates>, StoreError> {
    let mut transaction = stream::begin_with(&mut asker.session, what, SETTINGS).await?;
    let mut found = Vec::with_capacity(spellings.len());
    for spelling in spellings {
        let asked = one(&mut transaction, &asker.question, spelling);
        let candidates = tokio::time::timeout(STEP_LIMIT, asked).await;
        let candidates = candidates.map_err(|_elapsed| {
            Fault::Unreachable(format!("no answer within {STEP_LIMIT:?}")).of(what)
        })?;
        let candidates = candidates.map_err(|error| classify(&error).of(what))?;
        found.push(
            candidates.ok_or_else(|| {
                Fault::Failed("its clock is past the year 9999".to_owned()).of(what)
            })?,
        );
    }
    within(STEP_LIMIT, what, transaction.rollback()).await?;
    Ok(found)
}

async fn one(
    transaction: &mut PgConnection,
    question: &str,
    spelling: &str,
) -> Result<Option<Candidates>, sqlx::Error> {
    let question = sqlx::query(AssertSqlSafe(question.to_owned())).persistent(false);
    let mut rows = question.bind(spelling).fetch(transaction);
    let mut candidates = None;
    let mut bytes = 0;
    while let Some(row) = rows.try_next().await? {
        let now: PgTime = row.try_get(1)?;
        let Some(database_now) = now.moment() else {
            return Ok(None);
        };
        let is_whole: bool = row.try_get(0)?;
        let candidates = candidates.get_or_insert_with(|| Candidates {
            rows: Vec::new(),
            are_all: is_whole,
            database_now,
        });
        let item_bytes: Option<i32> = row.try_get(2)?;
        let Some(item_bytes) = item_bytes else {
            // The row of the moment alone.
            continue;
        };
        bytes += usize::try_from(item_bytes)
            .unwrap_or(usize::MAX)
            .min(MOST_BYTES);
        if candidates.rows.len() >= MOST_ROWS || bytes > MOST_BYTES {
            candidates.are_all = false;
            // The rest has to be read off; it is bounded too.
            continue;
        }
        match item(&row, 3)? {
            Some(item) => candidates.rows.push(Candidate {
                item,
                expires_at: row
                    .try_get::<Option<PgTime>, _>(4)?
                    .and_then(PgTime::moment),
            }),
            // NULL is no item.
            None => candidates.are_all &= item_bytes == 0,
        }
    }
    Ok(candidates)
}

/// The bytes of a text, whatever encoding they are in.
fn item(row: &sqlx::postgres::PgRow, column: usize) -> Result<Option<Box<[u8]>>, sqlx::Error> {
    let value = row.try_get_raw(column)?;
    if sqlx::ValueRef::is_null(&value) {
        return Ok(None);
    }
    let bytes = value.as_bytes().map_err(sqlx::Error::Decode)?;
    Ok(Some(bytes.into()))
}

/// Some rows of `rows`, a query of two columns, item and expiry.
///
/// # Errors
/// When the source does not answer.
pub(super) async fn sample(
    session: &mut PgConnection,
    what: &str,
    rows: &str,
) -> Result<Vec<Candidate>, StoreError> {
    let mut transaction = stream::begin_with(session, what, SAMPLE_SETTINGS).await?;
    let question = format!(
        "SELECT sample.item, sample.expiry FROM ({rows}) AS sample (item, expiry)
          WHERE pg_catalog.octet_length(sample.item) <= {LONGEST_ITEM_BYTES} LIMIT {SAMPLE_ROWS}"
    );
    let question = sqlx::query(AssertSqlSafe(question)).persistent(false);
    let rows = within(STEP_LIMIT * 3, what, question.fetch_all(&mut *transaction)).await?;
    within(STEP_LIMIT, what, transaction.rollback()).await?;
    let mut sampled = Vec::new();
    for row in &rows {
        let read = || {
            let expires_at: Option<PgTime> = row.try_get(1)?;
            Ok((item(row, 0)?, expires_at.and_then(PgTime::moment)))
        };
        let (item, expires_at) = read().map_err(|error: sqlx::Error| classify(&error).of(what))?;
        sampled.extend(item.map(|item| Candidate { item, expires_at }));
    }
    Ok(sampled)
}
