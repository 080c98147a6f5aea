//! That a cursor which may no longer hold is void: after that all is loaded again.

use std::time::Duration;

use bloomgate::service::ports::Source;
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::followed_tables::{Followed, follow, followed_table, load, printed_sql, try_sql};
use crate::support::{Cluster, Database, eventually};

const DEADLINE: Duration = Duration::from_secs(30);

const TABLE: [&str; 4] = ["--table", "public.t", "--item", "item"];

/// The name of the one trigger on the table.
async fn trigger(database: &Database) -> String {
    database
        .query_value("SELECT tgname::text FROM pg_trigger WHERE tgrelid = 'public.t'::regclass")
        .await
}

#[tokio::test]
async fn a_trigger_that_was_disabled_and_enabled_between_two_polls_voids_the_cursor() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    let trigger = trigger(&database).await;
    database
        .execute(&format!(
            "ALTER TABLE t DISABLE TRIGGER {trigger};
             INSERT INTO t VALUES ('unseen');
             ALTER TABLE t ENABLE ALWAYS TRIGGER {trigger}"
        ))
        .await;
    assert!(followed.void().await.contains("loaded in full"));
    followed.load_again().await;
}

#[tokio::test]
async fn a_trigger_that_does_not_always_fire_is_no_following() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    let trigger = trigger(&database).await;
    for state in ["DISABLE", "ENABLE", "ENABLE REPLICA"] {
        let statement = format!("ALTER TABLE t {state} TRIGGER {trigger}");
        database.execute(&statement).await;
        followed.void().await;
        assert_eq!(load(&followed.source).await, None, "{state}");
    }
    let statement = format!("ALTER TABLE t ENABLE ALWAYS TRIGGER {trigger}");
    database.execute(&statement).await;
    followed.void().await;
    followed.load_again().await;
}

#[tokio::test]
async fn a_trigger_that_was_dropped_or_made_anew_voids_the_cursor() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    let trigger = trigger(&database).await;
    database
        .execute(&format!("DROP TRIGGER {trigger} ON t"))
        .await;
    followed.void().await;
    assert_eq!(load(&followed.source).await, None);
    follow(&database, &TABLE).await;
    followed.void().await;
    followed.load_again().await;
    // Run again it replaces what is there.
    follow(&database, &TABLE).await;
    followed.void().await;
    followed.load_again().await;
    // A second table of the same source.
    database.execute("CREATE TABLE u (item text)").await;
    follow(&database, &["--table", "public.u", "--item", "item"]).await;
    followed.void().await;
    followed.load_again().await;
    database
        .execute("INSERT INTO t VALUES ('a'); INSERT INTO u VALUES ('b')")
        .await;
    assert_eq!(followed.news().await, ["a", "b"]);
}

#[tokio::test]
async fn a_function_or_a_table_of_changes_that_was_replaced_voids_the_cursor() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    let function: String = database
        .query_value(
            "SELECT pg_get_functiondef(tgfoid) FROM pg_trigger
              WHERE tgrelid = 'public.t'::regclass",
        )
        .await;
    database
        .execute(&function.replace("INSERT INTO", "-- INSERT INTO\n    INSERT INTO"))
        .await;
    followed.void().await;
    followed.load_again().await;
    database.execute("TRUNCATE bloomgate_follow.change").await;
    followed.void().await;
    followed.load_again().await;
}

#[tokio::test]
async fn a_function_that_is_replaced_waits_for_the_writes_under_way() {
    let database = Database::create().await;
    let _followed = followed_table(&database).await;
    let mut writer = PgConnection::connect(database.url()).await.unwrap();
    writer
        .execute("BEGIN; INSERT INTO t VALUES ('under way')")
        .await
        .unwrap();
    let sql = printed_sql(database.url(), &TABLE).await;
    let impatient = sql.replace("lock_timeout = '10s'", "lock_timeout = '100ms'");
    assert_ne!(sql, impatient);
    assert!(try_sql(database.pool(), &impatient).await.is_err());
    writer.execute("COMMIT").await.unwrap();
    try_sql(database.pool(), &impatient).await.unwrap();
}

#[tokio::test]
async fn a_crash_voids_the_cursor_and_a_clean_restart_does_not() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let mut followed = followed_table(&database).await;
    cluster.stop_fast().await;
    cluster.start_again().await;
    // The session that was kept is gone.
    let again = Followed {
        source: super::source::source(database.url(), "SELECT item FROM t"),
        cursor: followed.cursor.clone(),
    };
    followed = again;
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    connection
        .execute("INSERT INTO t VALUES ('after the restart')")
        .await
        .unwrap();
    assert_eq!(followed.news().await, ["after the restart"]);

    cluster.kill_9().await;
    cluster.start_again().await;
    followed.source = super::source::source(database.url(), "SELECT item FROM t");
    followed.void().await;
    // Another replica loads first: its marker is not the one from before.
    let _other = Followed::load(database.url(), "SELECT item FROM t").await;
    followed.void().await;
    followed.load_again().await;
}

#[tokio::test]
async fn a_copy_that_was_made_of_a_stopped_server_voids_the_cursor() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let backup = {
        let _followed = followed_table(&database).await;
        cluster.cold_backup().await
    };
    let mut followed = Followed::load(database.url(), "SELECT item FROM t").await;
    cluster.restore_from(&backup).await;
    followed.source = super::source::source(database.url(), "SELECT item FROM t");
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    // Here it hands out the ids that were seen and more.
    for _ in 0..20 {
        connection
            .execute("INSERT INTO t SELECT gen_random_uuid()::text")
            .await
            .unwrap();
    }
    followed.void().await;
    followed.load_again().await;
}

#[tokio::test]
async fn a_cursor_from_before_what_was_pruned_is_void_and_a_later_one_is_not() {
    let database = Database::create().await;
    let mut old = followed_table(&database).await;
    database
        .execute("INSERT INTO t SELECT n::text FROM generate_series(1, 12000) AS n")
        .await;
    let retention = Duration::from_secs(1);
    let mut young = Followed::load(database.url(), "SELECT item FROM t").await;
    let before = old.cursor.clone();
    assert_eq!(old.news().await.len(), 12_000);
    let mut parts = 0;
    eventually("all is pruned", DEADLINE, async || {
        parts += u32::from(young.source.prune(retention).await.unwrap());
        let left: i64 = database
            .query_value("SELECT count(*) FROM bloomgate_follow.change")
            .await;
        young.news().await;
        (left == 0).then_some(())
    })
    .await;
    assert_eq!(parts, 3, "in parts of 5,000");
    old.cursor = before;
    assert!(old.void().await.contains("change_retention"));
    database.execute("INSERT INTO t VALUES ('new')").await;
    assert_eq!(young.news().await, ["new"]);
}

#[tokio::test]
async fn pruning_leaves_what_a_transaction_wrote_that_was_open_all_the_while() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    let mut open = PgConnection::connect(database.url()).await.unwrap();
    open.execute("BEGIN; INSERT INTO t VALUES ('open')")
        .await
        .unwrap();
    // Taken while it was open, and not moved on until it is long past the retention.
    followed.news().await;
    let retention = Duration::from_millis(500);
    let begun = std::time::Instant::now();
    while begun.elapsed() < retention * 4 {
        followed.source.prune(retention).await.unwrap();
        database
            .execute("INSERT INTO t VALUES ('other') ON CONFLICT DO NOTHING")
            .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    open.execute("COMMIT").await.unwrap();
    assert!(!followed.source.prune(retention).await.unwrap());
    assert_eq!(followed.news().await, ["open", "other"]);
}

#[tokio::test]
async fn changes_that_a_dump_brought_from_another_cluster_are_in_nobodys_way() {
    let database = Database::create().await;
    let mut followed = followed_table(&database).await;
    database
        .execute(
            "INSERT INTO bloomgate_follow.change VALUES ('revoked', 'tokens', 'x', NULL, '9999999999');
             UPDATE bloomgate_follow.horizon SET xid = '9999999999';
             UPDATE bloomgate_follow.marker SET cluster = cluster + 1",
        )
        .await;
    followed.void().await;
    followed.load_again().await;
    database.execute("INSERT INTO t VALUES ('new')").await;
    assert_eq!(followed.news().await, ["new"]);
    assert!(
        followed
            .source
            .prune(Duration::from_secs(60))
            .await
            .unwrap()
    );
}
