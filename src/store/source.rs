//! A query on the user's own PostgreSQL database, as a source of rows.
//!
//! Invariants: the query runs in a transaction that only reads; its columns are of types whose
//! text is the item as its owner knows it, anything else is refused by name.

mod columns;

use async_trait::async_trait;
use secrecy::SecretString;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, SqlSafeStr as _, Statement as _};

use self::columns::{Column, refuse_unfit};
use super::postgres::errors::{Fault, within};
use super::postgres::session::{STEP_LIMIT, close};
use super::postgres::stream;
use super::postgres::url::Target;
use crate::service::ports::{RowSink, Source, StoreError};

/// Which query, on which database.
#[derive(Debug, Clone)]
pub struct PostgresSourceOptions {
    /// Its name, for messages.
    pub name: String,
    /// `postgres://user:password@host:port/database`, with the parameters of libpq that sqlx
    /// knows, such as `sslmode` and `sslrootcert`.
    pub url: SecretString,
    /// One SELECT. Its first column is the item; a second one, if there, its expiry.
    pub query: String,
}

/// A query on PostgreSQL.
pub struct PostgresSource {
    target: Target,
    query: String,
}

impl PostgresSource {
    /// Takes the options; it connects to nothing.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the URL is malformed or the query empty.
    pub fn new(options: &PostgresSourceOptions) -> Result<Self, StoreError> {
        let label = format!("the source {}", options.name);
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
        drop(transaction);
        close(session).await;
        Ok(())
    }

    async fn load(&self, sink: &mut dyn RowSink) -> Result<(), StoreError> {
        let what = &self.target.what;
        let mut session = self.target.connect().await?;
        let mut transaction = stream::begin(&mut session, what).await?;
        // Looked at anew: the table may have changed since it was examined.
        let columns = self.columns(&mut transaction).await?;
        let rows = rows(&self.query, columns.len() > 1);
        stream::stream(&mut transaction, what, &rows, sink).await?;
        drop(transaction);
        close(session).await;
        Ok(())
    }
}

/// The query as item and expiry. As text, a char(n) is without its blanks.
fn rows(query: &str, has_expiry: bool) -> String {
    if has_expiry {
        format!(
            "SELECT source.item::pg_catalog.text, source.expiry::pg_catalog.timestamptz \
             FROM ({query}\n) AS source (item, expiry)"
        )
    } else {
        format!(
            "SELECT source.item::pg_catalog.text, NULL::pg_catalog.timestamptz \
             FROM ({query}\n) AS source (item)"
        )
    }
}
