//! Servers that crash, fail over, go back to a backup, and stand behind a pool.

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{ConnectOptions, PgConnection};

use super::{DEADLINE, NOTHING_COMES, connect, eventually};
use crate::support::{Cluster, Database, PgBouncer, Proxy, Standby};

/// A row that is written to the log, and one in an UNLOGGED table, which is not.
const TWO_ROWS: &str = "CREATE TABLE logged AS SELECT 1 AS id;
    CREATE UNLOGGED TABLE unlogged AS SELECT 1 AS id";

/// How many rows of either kind a server has.
async fn rows_at(url: &str) -> [i64; 2] {
    let mut connection = connect(url).await.unwrap();
    let mut rows = [0; 2];
    for (rows, question) in rows.iter_mut().zip([
        "SELECT count(*) FROM logged",
        "SELECT count(*) FROM unlogged",
    ]) {
        *rows = sqlx::query_scalar(question)
            .fetch_one(&mut connection)
            .await
            .unwrap();
    }
    rows
}

async fn execute_at(url: &str, statement: &'static str) {
    let mut connection = connect(url).await.unwrap();
    sqlx::raw_sql(statement)
        .execute(&mut connection)
        .await
        .unwrap();
}

async fn with_two_rows() -> Cluster {
    let cluster = Cluster::start().await;
    execute_at(&cluster.url(), TWO_ROWS).await;
    assert_eq!(rows_at(&cluster.url()).await, [1, 1]);
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_restart_keeps_an_unlogged_row_and_a_kill_does_not() {
    let mut cluster = with_two_rows().await;
    cluster.stop_fast().await;
    cluster.start_again().await;
    assert_eq!(rows_at(&cluster.url()).await, [1, 1]);
    cluster.kill_9().await;
    cluster.start_again().await;
    assert_eq!(rows_at(&cluster.url()).await, [1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_backend_takes_all_others_and_an_unlogged_row_with_it() {
    let cluster = with_two_rows().await;
    let mut bystander = connect(&cluster.url()).await.unwrap();
    let started = "SELECT pg_postmaster_start_time()::text";
    let start_time = async |connection: &mut PgConnection| {
        sqlx::query_scalar::<_, String>(started)
            .fetch_one(connection)
            .await
    };
    let before = start_time(&mut bystander).await.unwrap();
    cluster.kill_backend_9().await;
    assert!(start_time(&mut bystander).await.is_err());
    assert_eq!(rows_at(&cluster.url()).await, [1, 0]);
    let mut newcomer = connect(&cluster.url()).await.unwrap();
    assert_eq!(start_time(&mut newcomer).await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_has_what_was_there_when_it_was_taken_and_nothing_unlogged() {
    let mut cluster = with_two_rows().await;
    let backup = cluster.physical_backup().await;
    execute_at(&cluster.url(), "INSERT INTO logged VALUES (2)").await;
    assert_eq!(rows_at(&cluster.url()).await, [2, 1]);
    let url = cluster.url();
    for _ in 0..2 {
        cluster.restore_from(&backup).await;
        assert_eq!(cluster.url(), url);
        assert_eq!(rows_at(&url).await, [1, 0]);
        execute_at(&url, "INSERT INTO logged VALUES (3)").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_shows_what_it_has_replayed_and_after_a_promotion_writes() {
    let primary = with_two_rows().await;
    let standby = Standby::start(&primary).await;
    execute_at(&primary.url(), "INSERT INTO logged VALUES (2)").await;
    standby.wait_replayed(&primary).await;
    let mut reader = connect(&standby.url_of("postgres")).await.unwrap();
    let is_standby = "SELECT pg_is_in_recovery() AND (SELECT count(*) = 2 FROM logged)";
    let follows: bool = sqlx::query_scalar(is_standby)
        .fetch_one(&mut reader)
        .await
        .unwrap();
    assert!(follows);
    let written = sqlx::raw_sql("INSERT INTO logged VALUES (3)");
    assert!(written.execute(&mut reader).await.is_err(), "it only reads");

    // What reaches the standby no more is lost in the failover.
    let address = format!("127.0.0.1:{}", primary.port());
    let proxy = Proxy::start(&address).await;
    let moving = format!("{}@{}/postgres", credentials(&primary), proxy.address());
    assert_eq!(rows_at(&moving).await, [2, 1]);
    drop(primary);
    let promoted = standby.promote().await;
    proxy.lead_to(&format!("127.0.0.1:{}", promoted.port()));
    execute_at(&moving, "INSERT INTO logged VALUES (4)").await;
    assert_eq!(rows_at(&moving).await, [3, 0]);
}

fn credentials(cluster: &Cluster) -> String {
    cluster.url().split_once('@').unwrap().0.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_refuses_start_up_parameters_that_it_does_not_know() {
    let database = Database::create().await;
    let pool = PgBouncer::start(&database).await;
    let refused = connect(pool.url()).await.unwrap_err().to_string();
    assert!(refused.contains("extra_float_digits"), "{refused}");
    let options = through(&pool).options([("search_path", "public")]);
    assert!(options.connect().await.is_err());
    let mut connection = through(&pool).connect().await.unwrap();
    let name: String = sqlx::query_scalar("SELECT current_database()::text")
        .persistent(false)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(name, database.name());
}

/// What a client must leave out to be let in.
fn through(pool: &PgBouncer) -> PgConnectOptions {
    let options: PgConnectOptions = pool.url().parse().unwrap();
    options.extra_float_digits(None)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clients_of_a_pool_share_few_sessions_and_so_no_prepared_statements() {
    let database = Database::create().await;
    let mut pool = PgBouncer::start(&database).await;
    let clients = PgPoolOptions::new().min_connections(6).max_connections(6);
    let clients = clients.connect_with(through(&pool)).await.unwrap();
    let mut connections = Vec::new();
    for _ in 0..6 {
        connections.push(clients.acquire().await.unwrap());
    }
    let mut failures = Vec::new();
    for connection in &mut connections {
        // Each client calls its first statement by the same name.
        let prepared = sqlx::query("SELECT 1 WHERE $1").bind(true);
        failures.extend(prepared.execute(&mut **connection).await.err());
    }
    let clash = failures.first().expect("six clients, and no clash");
    assert!(clash.to_string().contains("already exists"), "{clash}");
    assert!((1..=2).contains(&pool.server_sessions().await));
    pool.stop();
    assert!(through(&pool).connect().await.is_err());
    pool.start_again().await;
    through(&pool).connect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_takes_a_listen_and_delivers_nothing() {
    let database = Database::create().await;
    let pool = PgBouncer::start(&database).await;
    let clients = PgPoolOptions::new().connect_with(through(&pool)).await;
    let mut listener = PgListener::connect_with(&clients.unwrap()).await.unwrap();
    listener.listen("rows").await.unwrap();
    database.execute("NOTIFY rows").await;
    let notified = tokio::time::timeout(NOTHING_COMES, listener.recv()).await;
    assert!(notified.is_err(), "{notified:?}");
    // The notice was sent: a session of one's own hears the next.
    let mut direct = PgListener::connect(database.url()).await.unwrap();
    direct.listen("rows").await.unwrap();
    database.execute("NOTIFY rows").await;
    let heard = eventually("a notice comes", DEADLINE, async || {
        direct.try_recv().await.unwrap()
    });
    assert_eq!(heard.await.channel(), "rows");
}
