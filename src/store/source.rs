//! A query on the user's own PostgreSQL database, as a source of rows.
//!
//! Invariants: the query runs in a transaction that only reads; its columns are of types whose
//! text is the item as its owner knows it, anything else is refused by name.

mod columns;
mod follow;
mod follow_sql;
mod look_up;
mod sql_text;

use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, SqlSafeStr as _, Statement as _};

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use self::columns::{Column, refuse_unfit};
use self::follow::{Picture, Standing, Subject};
pub use self::follow_sql::{FollowSql, FollowSqlError, FollowedTable};
use self::look_up::LookUps;
use super::postgres::errors::{Fault, within};
use super::postgres::session::{STEP_LIMIT, close};
use super::postgres::stream::{self, ItemFormat};
use super::postgres::url::Target;
use crate::service::cursor::Cursor;
use crate::service::ports::{Candidate, Candidates, RowSink, Source, StoreError};

/// Longest time that a poll waits for an answer.
const POLL_LIMIT: Duration = Duration::from_secs(10);

/// Which query, on which database.
#[derive(Debug, Clone)]
pub struct PostgresSourceOptions {
    /// The filter that it feeds.
    pub filter: String,
    /// Its name, unique in the filter.
    pub source: String,
    /// `postgres://user:password@host:port/database`, with the parameters of libpq that sqlx
    /// knows, such as `sslmode` and `sslrootcert`.
    pub url: SecretString,
    /// One SELECT. Its first column is the item; a second one, if there, its expiry.
    pub query: String,
    /// How old what is known of it may be: a poll gets its answer sooner, or fails.
    pub max_staleness: Duration,
}

/// A query on PostgreSQL.
pub struct PostgresSource {
    target: Target,
    query: String,
    subject: Subject,
    poll_limit: Duration,
    /// Kept open between polls, unless one failed.
    session: Mutex<Option<PgConnection>>,
    /// How it is asked for one item; none where it cannot be.
    look_ups: Option<LookUps>,
}

impl PostgresSource {
    /// Takes the options; it connects to nothing.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the URL is malformed or the query empty.
    pub fn new(options: &PostgresSourceOptions) -> Result<Self, StoreError> {
        let label = format!("the source {} of {}", options.source, options.filter);
        let target = Target::parse(&label, &options.url)?;
        let query = options
            .query
            .trim_end_matches(|c: char| c == ';' || c.is_whitespace());
        if query.trim_start().is_empty() {
            let detail = "expected a query, found none; give one SELECT".to_owned();
            return Err(Fault::Refused(detail).of(&target.what));
        }
        Ok(Self {
            target,
            query: query.to_owned(),
            subject: Subject {
                filter: options.filter.clone(),
                source: options.source.clone(),
            },
            poll_limit: (options.max_staleness / 5 * 4).min(POLL_LIMIT),
            session: Mutex::new(None),
            look_ups: None,
        })
    }

    /// The same source, which can be asked for one item by this query: `$1` is the item as text, and
    /// the columns are those of the source's query. It should find an item in whatever case.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the query is empty.
    pub fn asked_by(mut self, confirm_query: &str) -> Result<Self, StoreError> {
        let query = confirm_query.trim_end_matches(|c: char| c == ';' || c.is_whitespace());
        if query.trim_start().is_empty() {
            let detail = "expected a query in confirm_query, found none; give one SELECT, or leave \
                          it out";
            return Err(Fault::Refused(detail.to_owned()).of(&self.target.what));
        }
        self.look_ups = Some(LookUps::new(query));
        Ok(self)
    }

    /// The session that was kept, or a new one. To be kept again after what ended well.
    async fn session(&self) -> Result<PgConnection, StoreError> {
        if let Some(session) = self.session.lock().await.take() {
            return Ok(session);
        }
        let mut session = self.target.connect().await?;
        // The server may have been started anew since.
        self.prepare_cursor(&mut session).await?;
        Ok(session)
    }

    /// Makes sure that a cursor can be given, as far as it can.
    async fn prepare_cursor(&self, session: &mut PgConnection) -> Result<(), StoreError> {
        let what = &self.target.what;
        let mut transaction = stream::begin(session, what).await?;
        let standing = self.subject.standing(&mut transaction, what).await?;
        stream::end(transaction, what).await?;
        match standing {
            Standing::Followed(_) => follow::renew_marker(session, what).await,
            Standing::NotFollowed(_) => Ok(()),
        }
    }

    /// The cursor of a cut, when the database records what is changed after it.
    async fn cursor(&self, transaction: &mut PgConnection) -> Result<Option<Cursor>, StoreError> {
        let (what, subject) = (&self.target.what, &self.subject);
        match subject.standing(transaction, what).await? {
            Standing::Followed(triggers) => {
                let picture = subject.picture(transaction, what, &triggers, None).await?;
                Ok(picture.map(Picture::into_cursor))
            }
            Standing::NotFollowed(_) => Ok(None),
        }
    }

    /// The picture of this moment, unless it voids the cursor.
    async fn picture_after(
        &self,
        transaction: &mut PgConnection,
        after: &Cursor,
    ) -> Result<Picture, StoreError> {
        let (what, subject) = (&self.target.what, &self.subject);
        let void = |detail: &str| StoreError::CursorVoid {
            what: what.clone(),
            detail: detail.to_owned(),
        };
        let triggers = match subject.standing(transaction, what).await? {
            Standing::Followed(triggers) => triggers,
            Standing::NotFollowed(why) => return Err(void(why)),
        };
        let picture = subject.picture(transaction, what, &triggers, Some(after));
        let picture = picture
            .await?
            .ok_or_else(|| void("the server has crashed, or was restored or promoted"))?;
        match picture.void(after) {
            Some(why) => Err(void(why)),
            None => Ok(picture),
        }
    }

    /// Has what is asked end before the poll's time is up.
    async fn before<T>(
        &self,
        deadline: Instant,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout_at(deadline, asked)
            .await
            .unwrap_or_else(|_elapsed| {
                let detail = format!("no answer within {:?}", self.poll_limit);
                Err(Fault::Unreachable(detail).of(&self.target.what))
            })
    }

    /// The query's columns, refused unless they are an item and perhaps an expiry.
    async fn columns(&self, transaction: &mut PgConnection) -> Result<Vec<Column>, StoreError> {
        let what = &self.target.what;
        // The line break ends a comment that the query may close with.
        let wrapped = format!("SELECT * FROM ({}\n) AS source", self.query);
        let prepare = (&mut *transaction).prepare(AssertSqlSafe(wrapped).into_sql_str());
        let statement = within(STEP_LIMIT, what, prepare).await?;
        let mut columns = Vec::new();
        // One more than is taken, to be refused by its number; their types need no look-up.
        for column in statement.columns() {
            columns.push(Column::look_up(transaction, what, column).await?);
        }
        // A prepared statement has a name, which would stay behind on a pooler's session and be in
        // the way of the next one's.
        let forget = sqlx::raw_sql("DEALLOCATE ALL");
        within(STEP_LIMIT, what, forget.execute(transaction)).await?;
        refuse_unfit(&columns).map_err(|detail| Fault::Refused(detail).of(what))?;
        Ok(columns)
    }
}

#[async_trait]
impl Source for PostgresSource {
    async fn examine(&self) -> Result<(), StoreError> {
        let mut session = self.target.connect().await?;
        let mut transaction = stream::begin(&mut session, &self.target.what).await?;
        self.columns(&mut transaction).await?;
        if let Some(look_ups) = &self.look_ups {
            look_ups
                .examine(&mut transaction, &self.target.what)
                .await?;
        }
        stream::end(transaction, &self.target.what).await?;
        close(session).await;
        Ok(())
    }

    async fn look_up(&self, spellings: &[String]) -> Result<Option<Vec<Candidates>>, StoreError> {
        match &self.look_ups {
            None => Ok(None),
            Some(_) if spellings.is_empty() => Ok(Some(Vec::new())),
            Some(look_ups) => look_ups.ask(&self.target, spellings).await.map(Some),
        }
    }

    async fn sample(&self) -> Result<Vec<Candidate>, StoreError> {
        let what = &self.target.what;
        let mut session = self.target.connect().await?;
        let mut transaction = stream::begin(&mut session, what).await?;
        let columns = self.columns(&mut transaction).await?;
        stream::end(transaction, what).await?;
        let rows = rows(&self.query, ItemFormat::Bytes, columns.len() > 1);
        let sample = look_up::sample(&mut session, what, &rows).await?;
        close(session).await;
        Ok(sample)
    }

    async fn load(&self, sink: &mut dyn RowSink) -> Result<Option<Cursor>, StoreError> {
        let what = &self.target.what;
        let mut session = self.target.connect().await?;
        self.prepare_cursor(&mut session).await?;
        let mut transaction = stream::begin(&mut session, what).await?;
        let cursor = self.cursor(&mut transaction).await?;
        // Looked at anew: the table may have changed since it was examined.
        let columns = self.columns(&mut transaction).await?;
        let format = columns
            .first()
            .map_or(ItemFormat::Bytes, Column::item_format);
        let rows = rows(&self.query, format, columns.len() > 1);
        stream::stream(&mut transaction, what, &rows, format, sink).await?;
        stream::end(transaction, what).await?;
        close(session).await;
        Ok(cursor)
    }

    async fn poll(&self, after: &Cursor, sink: &mut dyn RowSink) -> Result<Cursor, StoreError> {
        let what = &self.target.what;
        let deadline = Instant::now() + self.poll_limit;
        let mut session = self.before(deadline, self.session()).await?;
        let begin = stream::begin(&mut session, what);
        let mut transaction = self.before(deadline, begin).await?;
        let picture = self.picture_after(&mut transaction, after);
        let picture = self.before(deadline, picture).await?;
        sink.begin(picture.changes, picture.now);
        if picture.changes > 0 {
            // Of the same snapshot, as the transaction is.
            let changes = self.subject.changes(after);
            let (expected, patience) = (picture.changes, self.poll_limit);
            stream::copy(&mut transaction, what, &changes, expected, patience, sink).await?;
        }
        stream::end(transaction, what).await?;
        *self.session.lock().await = Some(session);
        Ok(picture.into_cursor())
    }

    async fn prune(&self, retention: Duration) -> Result<bool, StoreError> {
        let what = &self.target.what;
        let mut session = self.session().await?;
        let mut transaction = stream::begin(&mut session, what).await?;
        let standing = self.subject.standing(&mut transaction, what).await?;
        stream::end(transaction, what).await?;
        let is_part_left = match standing {
            Standing::Followed(_) => follow::prune(&mut session, what, retention).await?,
            Standing::NotFollowed(_) => false,
        };
        *self.session.lock().await = Some(session);
        Ok(is_part_left)
    }
}

/// The query as item and expiry. As text, a char(n) is without its blanks.
fn rows(query: &str, item_format: ItemFormat, has_expiry: bool) -> String {
    let item_type = match item_format {
        ItemFormat::Bytes => "text",
        ItemFormat::Uuid => "uuid",
    };
    let (expiry, columns) = if has_expiry {
        ("source.expiry", "item, expiry")
    } else {
        ("NULL", "item")
    };
    format!(
        "SELECT source.item::pg_catalog.{item_type}, {expiry}::pg_catalog.timestamptz \
         FROM ({query}\n) AS source ({columns})"
    )
}
