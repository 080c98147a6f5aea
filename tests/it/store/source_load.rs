//! That a source's load gives every row of its cut, or an error.

use std::sync::Arc;
use std::time::Duration;

use bloomgate::service::ports::{RowSink, Source, StoreError};
use jiff::Timestamp;

use super::rows::Rows;
use super::source::{items, load, source};
use crate::support::{Conduct, Database, DatabaseOptions, Proxy, eventually};

const DEADLINE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn null_and_blank_rows_are_given_like_any_other() {
    let database = Database::create().await;
    let rows = load(&database, "VALUES ('a'), (NULL), (''), ('  ')").await;
    assert_eq!(rows.expected, 4);
    assert_eq!(rows.null_rows, 1);
    assert_eq!(rows.items(), ["", "  ", "a"]);
}

#[tokio::test]
async fn the_databases_clock_comes_with_the_cut() {
    let database = Database::create().await;
    let before = Timestamp::now();
    let rows = load(&database, "VALUES ('a')").await;
    let said = rows.database_now.unwrap();
    assert!(before <= said && said <= Timestamp::now(), "{said}");
}

#[tokio::test]
async fn bytes_that_are_no_utf8_come_through_as_they_lie() {
    let database = Database::create_with(DatabaseOptions {
        encoding: Some("SQL_ASCII"),
        locale: Some("C"),
        ..DatabaseOptions::default()
    })
    .await;
    database
        .execute("CREATE TABLE t (item text); INSERT INTO t VALUES (E'\\xc1R'), ('plain')")
        .await;
    let mut rows = load(&database, "SELECT item FROM t").await;
    rows.found.sort();
    let items: Vec<_> = rows.found.iter().map(|(item, _)| &item[..]).collect();
    assert_eq!(items, [b"plain", &b"\xc1R"[..]]);
}

#[tokio::test]
async fn a_database_in_another_encoding_gives_utf8() {
    let database = Database::create_with(DatabaseOptions {
        encoding: Some("LATIN1"),
        locale: Some("C"),
        ..DatabaseOptions::default()
    })
    .await;
    database
        .execute("CREATE TABLE t (item text); INSERT INTO t VALUES ('josé')")
        .await;
    assert_eq!(items(&database, "SELECT item FROM t").await, ["josé"]);
}

#[tokio::test]
async fn rows_that_row_level_security_hides_are_an_error() {
    let database = Database::create().await;
    let role = format!("role_{}", database.name());
    database
        .execute(&format!(
            "CREATE ROLE {role} LOGIN PASSWORD 'secret';
             CREATE TABLE t (item text); INSERT INTO t VALUES ('a'), ('b');
             ALTER TABLE t ENABLE ROW LEVEL SECURITY;
             CREATE POLICY one ON t USING (item = 'a');
             CREATE VIEW v WITH (security_invoker) AS SELECT item FROM t;
             GRANT SELECT ON t, v TO {role}"
        ))
        .await;
    let url = format!(
        "postgres://{role}:secret@{}/{}",
        database.address(),
        database.name()
    );
    for relation in ["t", "v"] {
        let source = source(&url, &format!("SELECT item FROM {relation}"));
        let mut rows = Rows::default();
        let error = source.load(&mut rows).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("BYPASSRLS"), "{error}");
        assert!(rows.found.is_empty());
    }
    database
        .execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}

/// A stream of about 20 MB.
const MANY: &str = "SELECT repeat('x', 100) || n FROM generate_series(1, 200000) AS n";

#[tokio::test]
async fn a_stream_that_is_cut_is_an_error() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let source = source(&database.url_at(&proxy.address()), MANY);
    let mut rows = Rows::default();
    source.load(&mut rows).await.unwrap();
    assert_eq!(rows.found.len(), 200_000);

    proxy.switch(Conduct::TruncateAfter { bytes: 10_000_000 });
    let mut rows = Rows::default();
    let error = source.load(&mut rows).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert!(!rows.found.is_empty() && rows.found.len() < 200_000);
}

#[tokio::test]
async fn a_backend_that_is_ended_halfway_is_an_error() {
    let database = Database::create().await;
    let query = "SELECT pg_sleep(0.001)::text FROM generate_series(1, 1000000)";
    // The count would sleep as long: it is answered from a query that sleeps for none.
    let counted = format!("{query} WHERE current_query() LIKE 'COPY%' OR generate_series = 0");
    let source = source(database.url(), &counted);
    let loading = tokio::spawn(async move { source.load(&mut Rows::default()).await });
    eventually("the COPY runs", DEADLINE, async || {
        let copies: i64 = database
            .query_value(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                  WHERE datname = current_database() AND query LIKE 'COPY%'",
            )
            .await;
        (copies == 1).then_some(())
    })
    .await;
    let error = loading.await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn other_rows_than_were_counted_are_an_incomplete_set() {
    let database = Database::create().await;
    // Such a query answers the count and the copy differently; so does a server at fault.
    let query = "SELECT n::text FROM generate_series(1, 10) AS n
                  WHERE current_query() NOT LIKE 'COPY%' OR n <= 6";
    let error = source(database.url(), query)
        .load(&mut Rows::default())
        .await
        .unwrap_err();
    let is_incomplete = matches!(
        error,
        StoreError::Incomplete {
            expected: 10,
            found: 6,
            ..
        }
    );
    assert!(is_incomplete, "{error}");
}

#[tokio::test]
async fn a_statement_timeout_of_the_role_does_not_end_a_load() {
    let database = Database::create().await;
    database
        .execute(&format!(
            "ALTER DATABASE {} SET statement_timeout = '300ms'",
            database.name()
        ))
        .await;
    let query = "SELECT 'a' FROM pg_sleep(1)";
    assert_eq!(items(&database, query).await, ["a"]);
}

/// A sink that adds a row elsewhere once its load has begun.
struct Adding {
    begun: Arc<tokio::sync::Notify>,
    resume: std::sync::mpsc::Receiver<()>,
    items: Vec<Vec<u8>>,
}

impl RowSink for Adding {
    fn begin(&mut self, _rows_expected: u64, _database_now: Timestamp) {
        self.begun.notify_one();
        // Handed over first: a blocked worker would keep the sockets from being watched.
        tokio::task::block_in_place(|| self.resume.recv().unwrap());
    }

    fn row(&mut self, item: Option<&[u8]>, _expires_at: Option<Timestamp>) {
        self.items.extend(item.map(<[u8]>::to_vec));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_committed_after_the_count_is_not_in_the_cut() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE t (item text); INSERT INTO t VALUES ('a')")
        .await;
    let begun = Arc::new(tokio::sync::Notify::new());
    let (go_on, resume) = std::sync::mpsc::channel();
    let source = source(database.url(), "SELECT item FROM t");
    let mut sink = Adding {
        begun: begun.clone(),
        resume,
        items: Vec::new(),
    };
    let loading = tokio::spawn(async move {
        source.load(&mut sink).await.unwrap();
        sink.items
    });
    begun.notified().await;
    database.execute("INSERT INTO t VALUES ('b')").await;
    go_on.send(()).unwrap();
    assert_eq!(loading.await.unwrap(), [b"a"]);
    assert_eq!(items(&database, "SELECT item FROM t").await, ["a", "b"]);
}
