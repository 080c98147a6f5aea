//! The support holds: a test that relies on a broken network or a killed server can rely on it.

mod servers;

use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{Connection, PgConnection};

use super::{Bloomgate, Cluster, Conduct, Database, DatabaseOptions, Launch, Proxy};
use super::{eventually, tls_folder};

/// Long enough for what must come, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// Long enough to see that nothing comes.
const NOTHING_COMES: Duration = Duration::from_millis(300);

async fn connect(url: &str) -> sqlx::Result<PgConnection> {
    PgConnection::connect(url).await
}

async fn ask(connection: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM generate_series(1, 1000)")
        .fetch_one(connection)
        .await
}

/// A proxy in front of a fresh database, and a connection through it.
async fn behind_proxy() -> (Database, Proxy, PgConnection) {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let url = database.url_at(&proxy.address());
    let mut connection = connect(&url).await.unwrap();
    assert_eq!(ask(&mut connection).await.unwrap(), 1000);
    (database, proxy, connection)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_database_is_empty_its_own_and_gone_after_its_test() {
    let first = Database::create().await;
    let second = Database::create().await;
    first
        .execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2)")
        .await;
    assert_eq!(first.query_value::<i64>("SELECT count(*) FROM t").await, 2);
    assert_eq!(first.query("SELECT id FROM t").await.len(), 2);
    let tables = "SELECT count(*) FROM pg_class WHERE relname = 't'";
    assert_eq!(second.query_value::<i64>(tables).await, 0);
    let name = first.name().to_owned();
    drop(first);
    let named = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
    assert_eq!(second.query_value::<i64>(&named).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_of_other_encodings_and_locales_can_be_had() {
    let any_bytes = Database::create_with(DatabaseOptions {
        encoding: Some("SQL_ASCII"),
        locale: Some("C"),
        icu_locale: None,
    })
    .await;
    let length = any_bytes
        .query_value::<i32>("SELECT length(E'\\xC1R')")
        .await;
    assert_eq!(length, 2);

    let icu = Database::create_with(DatabaseOptions {
        icu_locale: Some("tr-TR"),
        ..DatabaseOptions::default()
    });
    let libc = Database::create_with(DatabaseOptions {
        locale: Some("tr_TR.UTF-8"),
        ..DatabaseOptions::default()
    });
    for turkish in [icu.await, libc.await] {
        let folded = turkish.query_value::<String>("SELECT lower('INFO')").await;
        assert_eq!(folded, "ınfo");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_served_for_localhost_under_the_private_authority_only() {
    let database = Database::create().await;
    let options = |host: &str, authority: &str| {
        let options: PgConnectOptions = database.url().parse().unwrap();
        let options = options.host(host).ssl_mode(PgSslMode::VerifyFull);
        options.ssl_root_cert(tls_folder().join(authority))
    };
    let trusted = PgConnection::connect_with(&options("localhost", "ca.pem")).await;
    assert_eq!(ask(&mut trusted.unwrap()).await.unwrap(), 1000);
    for (host, authority) in [("localhost", "other-ca.pem"), ("127.0.0.1", "ca.pem")] {
        let refused = PgConnection::connect_with(&options(host, authority)).await;
        // The handshake fails inside of the stream, so the certificate's fault comes as an I/O error.
        let is_certificate_refused = matches!(
            &refused,
            Err(sqlx::Error::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData
        );
        assert!(is_certificate_refused, "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_that_requires_tls_is_refused_without() {
    let database = Database::create().await;
    let options: PgConnectOptions = database.url().parse().unwrap();
    let options = options.username("tls_only");
    let plain = PgConnection::connect_with(&options.clone().ssl_mode(PgSslMode::Disable)).await;
    assert!(matches!(plain, Err(sqlx::Error::Database(_))), "{plain:?}");
    let encrypted = PgConnection::connect_with(&options.ssl_mode(PgSslMode::Require)).await;
    assert_eq!(ask(&mut encrypted.unwrap()).await.unwrap(), 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_cluster_comes_back_with_what_was_committed() {
    let mut cluster = Cluster::start_with(&[("log_min_messages", "log")]).await;
    let database = cluster.create_database().await;
    database.execute("CREATE TABLE t AS SELECT 1 AS id").await;
    cluster.kill_9().await;
    assert!(connect(database.url()).await.is_err());
    cluster.start_again().await;
    assert!(
        cluster.log().contains("not properly shut down"),
        "{}",
        cluster.log()
    );
    cluster.stop_fast().await;
    assert!(connect(database.url()).await.is_err());
    cluster.start_again().await;
    assert_eq!(database.query("SELECT id FROM t").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_proxy_passes_nothing_and_goes_on_where_it_stood() {
    let (database, proxy, mut connection) = behind_proxy().await;
    proxy.switch(Conduct::Freeze);
    let question = tokio::spawn(async move { ask(&mut connection).await });
    let url = database.url_at(&proxy.address());
    let newcomer = tokio::time::timeout(NOTHING_COMES, connect(&url)).await;
    assert!(newcomer.is_err(), "a frozen network answered");
    assert!(!question.is_finished());
    proxy.switch(Conduct::Pass);
    assert_eq!(question.await.unwrap().unwrap(), 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_ends_present_connections_and_no_new_ones() {
    let (database, proxy, mut connection) = behind_proxy().await;
    proxy.cut();
    let ended = eventually("the cut is felt", DEADLINE, async || {
        ask(&mut connection).await.err()
    });
    ended.await;
    let url = database.url_at(&proxy.address());
    assert_eq!(ask(&mut connect(&url).await.unwrap()).await.unwrap(), 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusing_proxy_takes_no_new_connections_until_it_passes_again() {
    let (database, proxy, mut connection) = behind_proxy().await;
    let url = database.url_at(&proxy.address());
    proxy.switch(Conduct::Refuse);
    let refused = eventually("connections are refused", DEADLINE, async || {
        connect(&url).await.err()
    });
    assert!(matches!(refused.await, sqlx::Error::Io(_)));
    assert_eq!(ask(&mut connection).await.unwrap(), 1000);
    proxy.switch(Conduct::Pass);
    let again = eventually("connections are taken", DEADLINE, async || {
        connect(&url).await.ok()
    });
    assert_eq!(ask(&mut again.await).await.unwrap(), 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delaying_proxy_is_late_both_ways() {
    let (_database, proxy, mut connection) = behind_proxy().await;
    let delay = Duration::from_millis(100);
    proxy.switch(Conduct::Delay(delay));
    let started = Instant::now();
    assert_eq!(ask(&mut connection).await.unwrap(), 1000);
    assert!(started.elapsed() >= delay * 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncating_proxy_ends_an_answer_half_way() {
    let (database, proxy, mut connection) = behind_proxy().await;
    proxy.switch(Conduct::TruncateAfter { bytes: 100_000 });
    let long = "SELECT repeat('x', 1000) FROM generate_series(1, $1)";
    let rows = |count: i32| sqlx::query_scalar::<_, String>(long).bind(count);
    let short = rows(50).fetch_all(&mut connection).await.unwrap();
    assert_eq!(short.len(), 50);
    let truncated = rows(1000).fetch_all(&mut connection).await;
    assert!(
        matches!(truncated, Err(sqlx::Error::Io(_))),
        "{truncated:?}"
    );
    drop(database);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_keeps_its_folder_over_a_kill_and_its_logs_over_all_starts() {
    let mut service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    service.add("revoked-jti", "7f0c").await;
    assert!(service.peak_memory_bytes() > 1 << 20);
    let logs = service.logs();
    assert!(!logs.is_empty());
    service.restart().await;
    service.wait_live("revoked-jti").await;
    assert!(service.logs().starts_with(&logs));
    assert!(service.logs().len() > logs.len());
    assert!(service.check("revoked-jti", "7f0c").await.is_match());
    let verdicts = service
        .check_batch("revoked-jti", &["7f0c", "absent"])
        .await;
    assert_eq!(verdicts, [true, false]);
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    assert!(service.try_add("revoked-jti", "late").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_gives_its_code_and_its_words() {
    let refused = Bloomgate::expect_start_failure("bad = true").await;
    assert!(refused.stderr.contains("bad"), "{refused:?}");
    let plan = [
        "plan",
        "--capacity",
        "1000",
        "--false-positive-rate",
        "0.01",
    ];
    let planned = Launch::new().run(&plan).await;
    assert_eq!(planned.exit_code, Some(0), "{planned:?}");
    assert!(!planned.stdout.is_empty());
}
