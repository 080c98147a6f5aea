//! What the tests of followed tables share: the SQL as the program prints it, run as a DBA would.

use bloomgate::service::cursor::Cursor;
use bloomgate::service::ports::{Source, StoreError};
use bloomgate::store::PostgresSource;
use sqlx::{AssertSqlSafe, PgPool};

use super::rows::Rows;
use super::source::source;
use crate::support::{Database, Finished, Launch};

/// What `follow-sql` says for the filter `revoked`, whose only source `tokens` is at `url`.
pub(super) async fn follow_sql(url: &str, arguments: &[&str]) -> Finished {
    let launch = Launch::new();
    let config = launch.folder().join("bloomgate.toml");
    let text = format!(
        "[filters.revoked]\nprofile = \"text\"\ncapacity = 1000\nfalse_positive_rate = 0.01\n\
         [[filters.revoked.sources]]\nname = \"tokens\"\nquery = \"SELECT 1\"\n\
         database_url = \"{url}\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap().to_owned();
    let command = ["follow-sql", "revoked", "--config", &config];
    launch.run(&[&command, arguments].concat()).await
}

/// The SQL that it prints.
pub(super) async fn printed_sql(url: &str, arguments: &[&str]) -> String {
    let finished = follow_sql(url, arguments).await;
    assert_eq!(finished.exit_code, Some(0), "{finished:?}");
    finished.stdout
}

pub(super) async fn try_sql(pool: &PgPool, sql: &str) -> Result<(), sqlx::Error> {
    let mut connection = pool.acquire().await?;
    let outcome = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(&mut *connection)
        .await;
    // What failed has left its transaction open.
    sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await?;
    outcome.map(drop)
}

/// A source that was loaded, and how far it was followed.
pub(super) struct Followed {
    pub(super) source: PostgresSource,
    pub(super) cursor: Cursor,
}

impl Followed {
    /// Loads a query on tables whose triggers are there.
    pub(super) async fn load(url: &str, query: &str) -> Self {
        let source = source(url, query);
        let cursor = load(&source).await.expect("it is followed");
        Self { source, cursor }
    }

    /// The items that were changed since the last call, in order.
    pub(super) async fn news(&mut self) -> Vec<String> {
        self.rows().await.items()
    }

    pub(super) async fn rows(&mut self) -> Rows {
        let mut rows = Rows::default();
        self.cursor = self.source.poll(&self.cursor, &mut rows).await.unwrap();
        assert_eq!(rows.expected, rows.found.len() as u64 + rows.null_rows);
        assert!(rows.database_now.is_some());
        rows
    }

    /// Why the cursor is void. No row may have been given by then.
    pub(super) async fn void(&self) -> String {
        let mut rows = Rows::default();
        let error = self.source.poll(&self.cursor, &mut rows).await.unwrap_err();
        assert!(matches!(error, StoreError::CursorVoid { .. }), "{error}");
        assert!(rows.found.is_empty() && rows.database_now.is_none());
        error.to_string()
    }

    /// Loads again, as one does after a cursor was void.
    pub(super) async fn load_again(&mut self) {
        self.cursor = load(&self.source).await.expect("it is followed");
        assert_eq!(self.news().await, Vec::<String>::new());
    }
}

pub(super) async fn load(source: &PostgresSource) -> Option<Cursor> {
    source.load(&mut Rows::default()).await.unwrap()
}

/// A table `t (item text, expires_at timestamptz, live boolean)`, followed on its column `item`.
pub(super) async fn followed_table(database: &Database) -> Followed {
    database
        .execute("CREATE TABLE t (item text UNIQUE, expires_at timestamptz, live boolean)")
        .await;
    follow(database, &["--table", "public.t", "--item", "item"]).await;
    Followed::load(database.url(), "SELECT item FROM t").await
}

/// Runs what is printed, as a superuser.
pub(super) async fn follow(database: &Database, arguments: &[&str]) {
    let sql = printed_sql(database.url(), arguments).await;
    try_sql(database.pool(), &sql).await.unwrap();
}
