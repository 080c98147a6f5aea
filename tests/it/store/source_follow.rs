//! That what is written to a followed table is told by the next poll: all of it, once it is
//! committed, and however it was written.

use std::time::{Duration, Instant};

use bloomgate::service::ports::{Source, StoreError};
use bloomgate::store::{PostgresSource, PostgresSourceOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use super::followed_tables::{
    Followed, follow, follow_sql, followed_table, load, printed_sql, try_sql,
};
use super::rows::{Rows, moment};
use super::source::source;
use crate::support::{Conduct, Database, Proxy};

const NOTHING: [&str; 0] = [];

#[tokio::test]
async fn whatever_way_a_row_is_written_the_next_poll_tells_it() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    assert_eq!(followed.news().await, NOTHING);
    for (statement, news) in [
        ("INSERT INTO t VALUES ('a')", &["a"][..]),
        ("INSERT INTO t VALUES ('b'), ('c'), ('d')", &["b", "c", "d"]),
        ("UPDATE t SET item = 'e' WHERE item = 'a'", &["e"]),
        // What the query leaves out it may take in by another column.
        ("UPDATE t SET live = true WHERE item = 'b'", &["b"]),
        (
            "INSERT INTO t VALUES ('c'), ('f') ON CONFLICT (item) DO UPDATE SET live = true",
            &["c", "f"],
        ),
        ("INSERT INTO t VALUES ('c') ON CONFLICT DO NOTHING", &[]),
        (
            "WITH new AS (INSERT INTO t VALUES ('g') RETURNING item) SELECT FROM new",
            &["g"],
        ),
        (
            "BEGIN; SAVEPOINT s; INSERT INTO t VALUES ('h'); RELEASE s; COMMIT",
            &["h"],
        ),
        (
            "BEGIN; SAVEPOINT s; INSERT INTO t VALUES ('i'); ROLLBACK TO s;
             INSERT INTO t VALUES ('j'); COMMIT",
            &["j"],
        ),
        ("BEGIN; INSERT INTO t VALUES ('k'); ROLLBACK", &[]),
        ("DELETE FROM t WHERE item = 'g'", &[]),
    ] {
        database.execute(statement).await;
        assert_eq!(followed.news().await, news, "{statement}");
        assert_eq!(followed.news().await, NOTHING, "{statement}");
    }
    let mut connection = database.pool().acquire().await.unwrap();
    let mut copy = connection
        .copy_in_raw("COPY t (item) FROM STDIN")
        .await
        .unwrap();
    copy.send(&b"x\ny\n"[..]).await.unwrap();
    copy.finish().await.unwrap();
    assert_eq!(followed.news().await, ["x", "y"]);
}

#[tokio::test]
async fn a_transaction_that_commits_after_a_later_one_is_not_passed_over() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    let mut early = PgConnection::connect(database.url()).await.unwrap();
    early
        .execute("BEGIN; INSERT INTO t VALUES ('early')")
        .await
        .unwrap();
    database.execute("INSERT INTO t VALUES ('late')").await;
    assert_eq!(followed.news().await, ["late"]);
    // The same transaction goes on, and one that is prepared has no session.
    early
        .execute("INSERT INTO t VALUES ('early, too')")
        .await
        .unwrap();
    assert_eq!(followed.news().await, NOTHING);
    early.execute("COMMIT").await.unwrap();
    assert_eq!(followed.news().await, ["early", "early, too"]);
    assert_eq!(followed.news().await, NOTHING);
}

#[tokio::test]
async fn what_is_committed_after_the_cut_of_a_load_is_told_by_the_first_poll() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    let mut open = PgConnection::connect(database.url()).await.unwrap();
    open.execute("BEGIN; INSERT INTO t VALUES ('open')")
        .await
        .unwrap();
    followed.load_again().await;
    open.execute("COMMIT").await.unwrap();
    assert_eq!(followed.news().await, ["open"]);
}

#[tokio::test]
async fn what_the_condition_leaves_out_is_not_recorded_and_expiries_are() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE t (item text, expires_at timestamptz, live boolean)")
        .await;
    let arguments = ["--table", "public.t", "--item", "item"];
    let more = ["--expires", "expires_at", "--when", "NEW.live"];
    follow(&database, &[&arguments[..], &more].concat()).await;
    let mut followed = Followed::load(database.url(), "SELECT item FROM t").await;
    database
        .execute(
            "INSERT INTO t VALUES ('dead', NULL, false), ('unknown', NULL, NULL),
                 ('dated', to_timestamp(1900000000), true), ('never', NULL, true),
                 ('infinite', 'infinity', true), (NULL, NULL, true)",
        )
        .await;
    let rows = followed.rows().await;
    assert_eq!(rows.items(), ["dated", "infinite", "never"]);
    assert_eq!(rows.null_rows, 1);
    assert_eq!(rows.expiries()["dated"], Some(moment(1_900_000_000)));
    assert_eq!(rows.expiries()["infinite"], None);
    // The condition comes true later.
    database
        .execute("UPDATE t SET live = true WHERE item = 'dead'")
        .await;
    assert_eq!(followed.news().await, ["dead"]);
}

#[tokio::test]
async fn the_item_and_the_expiry_may_be_expressions_over_the_row() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE t (claims jsonb, \"o'clock\" bigint)")
        .await;
    let item = "coalesce(NEW.claims->>'jti', '$bloomgate$')";
    let expires = "to_timestamp(NEW.\"o'clock\")";
    let arguments = ["--table", "public.t", "--item", item, "--expires", expires];
    follow(&database, &arguments).await;
    let mut followed = Followed::load(database.url(), "SELECT claims->>'jti' FROM t").await;
    database
        .execute("INSERT INTO t VALUES ('{\"jti\": \"7f0c\"}', 1900000000), ('{}', NULL)")
        .await;
    let rows = followed.rows().await;
    assert_eq!(rows.items(), ["$bloomgate$", "7f0c"]);
    assert_eq!(rows.expiries()["7f0c"], Some(moment(1_900_000_000)));
}

#[tokio::test]
async fn names_are_taken_as_they_are_whatever_they_hold() {
    let database = Database::create().await;
    let role = format!("Ro'le\" {}", database.name());
    let quoted_role = role.replace('"', "\"\"");
    database
        .execute(&format!(
            "CREATE SCHEMA \"Auth \"\"Data\"\"\";
             CREATE TABLE \"Auth \"\"Data\"\"\".\"to.ken'; --\"
                 (\"Token \"\"Id\"\"\" text, \"Upper\" timestamptz);
             CREATE ROLE \"{quoted_role}\""
        ))
        .await;
    let table = "\"Auth \"\"Data\"\"\".\"to.ken'; --\"";
    let item = "\"Token \"\"Id\"\"\"";
    let arguments = [
        "--table",
        table,
        "--item",
        item,
        "--expires",
        "Upper",
        "--role",
        &role,
    ];
    follow(&database, &arguments).await;
    let query = format!("SELECT {item} FROM {table}");
    let mut followed = Followed::load(database.url(), &query).await;
    database
        .execute(&format!("INSERT INTO {table} VALUES ('it''s', now())"))
        .await;
    assert_eq!(followed.news().await, ["it's"]);
    database
        .execute(&format!(
            "DROP OWNED BY \"{quoted_role}\"; DROP ROLE \"{quoted_role}\""
        ))
        .await;
}

#[tokio::test]
async fn a_partitioned_table_is_followed_in_all_of_its_partitions() {
    let database = Database::create().await;
    database
        .execute(
            "CREATE TABLE t (spare int, item text, day int) PARTITION BY RANGE (day);
             CREATE TABLE t1 (day int, item text, spare int);
             ALTER TABLE t ATTACH PARTITION t1 FOR VALUES FROM (0) TO (10)",
        )
        .await;
    follow(&database, &["--table", "public.t", "--item", "item"]).await;
    let mut followed = Followed::load(database.url(), "SELECT item FROM t").await;
    database
        .execute("INSERT INTO t (item, day) VALUES ('by the parent', 1)")
        .await;
    database
        .execute("INSERT INTO t1 (item, day) VALUES ('directly', 2)")
        .await;
    assert_eq!(followed.news().await, ["by the parent", "directly"]);
    // One that is made later brings its trigger along; one that had rows brings them unseen.
    for statement in [
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE t3 (spare int, item text, day int);
         INSERT INTO t3 (item, day) VALUES ('unseen', 25);
         ALTER TABLE t ATTACH PARTITION t3 FOR VALUES FROM (20) TO (30)",
    ] {
        database.execute(statement).await;
        followed.void().await;
        followed.load_again().await;
    }
    database
        .execute(
            "SET session_replication_role = replica;
             INSERT INTO t (item, day) VALUES ('b', 12), ('c', 22);
             RESET session_replication_role",
        )
        .await;
    assert_eq!(followed.news().await, ["b", "c"]);
}

#[tokio::test]
async fn rows_that_a_replication_applies_are_followed() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    database
        .execute(
            "SET session_replication_role = replica; INSERT INTO t VALUES ('applied');
             RESET session_replication_role",
        )
        .await;
    assert_eq!(followed.news().await, ["applied"]);
}

#[tokio::test]
async fn a_source_hears_nothing_of_another() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    database
        .execute(
            "INSERT INTO bloomgate_follow.change (filter, source, item)
             VALUES ('revoked', 'others', 'a'), ('others', 'tokens', 'b')",
        )
        .await;
    assert_eq!(followed.news().await, NOTHING);
}

#[tokio::test]
async fn the_printed_sql_runs_twice_and_grants_all_that_a_role_needs() {
    let database = Database::create().await;
    let role = format!("role_{}", database.name());
    database
        .execute(&format!(
            "CREATE ROLE {role} LOGIN PASSWORD 'secret';
             CREATE TABLE t (item text);
             GRANT SELECT ON t TO {role};
             CREATE ROLE writer_{role}; GRANT INSERT ON t TO writer_{role}"
        ))
        .await;
    let url = format!(
        "postgres://{role}:secret@{}/{}",
        database.address(),
        database.name()
    );
    let sql = printed_sql(&url, &["--table", "public.t", "--item", "item"]).await;
    for _ in 0..2 {
        try_sql(database.pool(), &sql).await.unwrap();
    }
    let mut followed = Followed::load(&url, "SELECT item FROM t").await;
    // Who writes to the table has no rights on the changes.
    database
        .execute(&format!(
            "SET ROLE writer_{role}; INSERT INTO t VALUES ('a'); RESET ROLE"
        ))
        .await;
    assert_eq!(followed.news().await, ["a"]);
    followed
        .source
        .prune(Duration::from_secs(60))
        .await
        .unwrap();
    followed.load_again().await;
    let mut session = PgConnection::connect(&url).await.unwrap();
    for statement in [
        "DELETE FROM bloomgate_follow.change",
        "INSERT INTO bloomgate_follow.change (filter, source) VALUES ('revoked', 'tokens')",
        "UPDATE bloomgate_follow.horizon SET xid = '0'",
        "DELETE FROM bloomgate_follow.marker",
    ] {
        assert!(session.execute(statement).await.is_err(), "{statement}");
    }
    session.close().await.unwrap();
    database
        .execute(&format!(
            "DROP OWNED BY {role}, writer_{role}; DROP ROLE {role}, writer_{role}"
        ))
        .await;
}

#[tokio::test]
async fn what_would_make_a_write_fail_later_makes_the_printed_sql_fail() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE t (item text, raw bytea, at timestamp, expires_at timestamptz)")
        .await;
    for arguments in [
        &["--item", "missing"][..],
        &["--item", "raw"],
        // The trigger knows no column without its row.
        &["--item", "lower(item)"],
        &["--item", "NEW.item || (NEW.missing)"],
        &["--item", "item", "--expires", "at"],
        &["--item", "item", "--expires", "NEW.at::timestamp"],
        &["--item", "item", "--when", "NEW.item"],
    ] {
        let arguments = [&["--table", "public.t"], arguments].concat();
        let sql = printed_sql(database.url(), &arguments).await;
        assert!(
            try_sql(database.pool(), &sql).await.is_err(),
            "{arguments:?}"
        );
    }
    database.execute("INSERT INTO t VALUES ('a')").await;
    let source = source(database.url(), "SELECT item FROM t");
    assert_eq!(load(&source).await, None);
    assert!(!source.prune(Duration::from_secs(60)).await.unwrap());
}

#[tokio::test]
async fn what_no_sql_can_be_printed_for_is_refused_with_a_remedy() {
    let url = "postgres://app:secret@db/app";
    for (url, arguments, part) in [
        (url, &["--table", "t", "--item", "item"][..], "SCHEMA.TABLE"),
        (
            url,
            &["--table", "a.t", "--item", "a); DROP TABLE b; --"],
            "parenthesis",
        ),
        (
            url,
            &["--table", "a.t", "--item", "a", "--source", "other"],
            "tokens",
        ),
        (
            "postgres://db/app",
            &["--table", "a.t", "--item", "a"],
            "--role",
        ),
    ] {
        let refused = follow_sql(url, arguments).await;
        assert_ne!(refused.exit_code, Some(0), "{refused:?}");
        assert!(refused.stderr.contains(part), "{refused:?}");
        assert!(refused.stdout.is_empty() && !refused.stderr.contains("secret"));
    }
}

#[tokio::test]
async fn polls_share_one_session_and_a_server_that_falls_silent_ends_one_in_time() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    let proxy = Proxy::start(database.address()).await;
    followed.source = PostgresSource::new(&PostgresSourceOptions {
        filter: "revoked".to_owned(),
        source: "tokens".to_owned(),
        url: format!(
            "{}?application_name=poll",
            database.url_at(&proxy.address())
        )
        .as_str()
        .into(),
        query: "SELECT item FROM t".to_owned(),
        max_staleness: Duration::from_secs(2),
    })
    .unwrap();
    let mut sessions = Vec::new();
    for _ in 0..2 {
        followed.news().await;
        let session: i32 = database
            .query_value("SELECT pid FROM pg_stat_activity WHERE application_name = 'poll'")
            .await;
        sessions.push(session);
    }
    assert_eq!(sessions[0], sessions[1]);

    proxy.switch(Conduct::Freeze);
    let begun = Instant::now();
    let mut rows = Rows::default();
    let outcome = followed.source.poll(&followed.cursor, &mut rows);
    let error = outcome.await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    proxy.switch(Conduct::Pass);
    database.execute("INSERT INTO t VALUES ('meanwhile')").await;
    assert_eq!(followed.news().await, ["meanwhile"]);
}

#[tokio::test]
async fn many_changes_come_in_one_poll() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    let statement = "INSERT INTO t SELECT n::text FROM generate_series(1, 100000) AS n";
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
        .execute(database.pool())
        .await
        .unwrap();
    assert_eq!(followed.rows().await.found.len(), 100_000);
}
