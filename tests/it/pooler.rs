//! The store behind a connection pooler in transaction mode, or behind what cannot be a store.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

use crate::support::{
    Bloomgate, Cluster, Conduct, Database, Launch, PgBouncer, Proxy, Standby, eventually,
};

const DEADLINE: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
    max_staleness = "5s"
    poll_interval = "200ms"
    [filters.pooled]
    profile = "text"
    capacity = 10000
    false_positive_rate = 1e-9
"#;

async fn replica(url: &str) -> Bloomgate {
    let launch = Launch::new().config(CONFIG).database_url(url);
    let replica = launch.start().await;
    replica.wait_live("pooled").await;
    replica
}

async fn until_found(service: &Bloomgate, item: &str) -> Duration {
    let begun = Instant::now();
    eventually(&format!("{item} is found"), DEADLINE, async || {
        let checked = service.check("pooled", item).await;
        checked.is_match().then_some(())
    })
    .await;
    begun.elapsed()
}

/// Takes the snapshots away, so that the next start loads everything.
fn forget_snapshots(service: &Bloomgate) {
    let folder = service.launched_as().data_dir().join("snapshots");
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_behind_a_pooler_load_follow_and_rebuild() {
    let database = Database::create().await;
    let pooler = PgBouncer::start(&database).await;
    let mut replicas = [replica(pooler.url()).await, replica(pooler.url()).await];
    let mut added = Vec::new();
    for run in 0..2 {
        let [one, other] = &replicas;
        for (told, asked) in [(one, other), (other, one)] {
            for number in 0..5 {
                let item = format!("{run} {number} through {}", told.base_url());
                told.add("pooled", &item).await;
                assert!(told.check("pooled", &item).await.is_match());
                let took = until_found(asked, &item).await;
                assert!(took < Duration::from_secs(5), "{took:?}");
                added.push(item);
            }
            let body = json!({ "item": format!("{run} for all"), "wait": "all" });
            let answer = told.post("/v1/filters/pooled/add", &body).await;
            assert_eq!(answer.expect_status(200)["visible"], true);
            told.rebuild("pooled").await;
        }
        for service in &mut replicas {
            forget_snapshots(service);
            service.restart().await;
            service.wait_live("pooled").await;
            let verdicts = service.check_batch("pooled", &added).await;
            assert!(verdicts.into_iter().all(|is_maybe| is_maybe));
            let absent = service.check("pooled", "absent").await;
            assert_eq!(absent.verdict, "definitely-not");
        }
    }
    for service in &replicas {
        let logs = service.logs();
        let said = logs.matches("a connection pooler stands in front").count();
        assert_eq!(said, 3, "once at each start");
        assert!(!logs.contains("ERROR"), "{logs}");
        assert!(!logs.contains("WARN"), "{logs}");
    }
}

/// Another client of the pool, in a transaction and so with a session of the server for itself.
async fn other_client(pooler: &PgBouncer) -> PgConnection {
    let options: PgConnectOptions = pooler.url().parse().unwrap();
    let options = options.extra_float_digits(None);
    let mut client = options.connect().await.unwrap();
    sqlx::raw_sql("BEGIN").execute(&mut client).await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_ours_stays_behind_on_a_poolers_sessions() {
    let database = Database::create().await;
    let pooler = PgBouncer::start(&database).await;
    let service = replica(pooler.url()).await;
    // One of the pool's two sessions is held: the service works with the other.
    let _held = other_client(&pooler).await;
    service.add("pooled", "item").await;
    service.rebuild("pooled").await;
    let declaration = json!({ "profile": "text", "capacity": 100, "false_positive_rate": 0.01 });
    let made = service.put("/v1/filters/made", &declaration).await;
    made.expect_status(201);
    service.delete("/v1/filters/made").await.expect_status(204);
    let mut client = other_client(&pooler).await;
    let mut fresh = PgConnection::connect(database.url()).await.unwrap();
    assert_eq!(settings(&mut client).await, settings(&mut fresh).await);
    let left: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM pg_prepared_statements WHERE name <> '')
              + (SELECT count(*) FROM pg_listening_channels())",
    )
    .persistent(false)
    .fetch_one(&mut client)
    .await
    .unwrap();
    assert_eq!(left, 0);
}

/// What the session is set to, as far as it can be set for a session.
async fn settings(session: &mut PgConnection) -> Vec<(String, String)> {
    sqlx::query_as(
        "SELECT name, setting FROM pg_settings
          WHERE context IN ('user', 'superuser')
            AND name NOT IN ('application_name', 'extra_float_digits', 'transaction_isolation')
          ORDER BY name",
    )
    .persistent(false)
    .fetch_all(session)
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_outlives_a_crash_behind_the_pooler_and_the_poolers_own() {
    let cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let mut pooler = PgBouncer::start(&database).await;
    let (one, other) = (replica(pooler.url()).await, replica(pooler.url()).await);
    let mut added = Vec::new();
    for round in 0..4 {
        if round % 2 == 0 {
            cluster.kill_backend_9().await;
        } else {
            pooler.stop();
            pooler.start_again().await;
        }
        let item = format!("round {round}");
        eventually("adds work again", DEADLINE, async || {
            let answer = one.try_add("pooled", &item).await.unwrap();
            (answer.status == 200).then_some(())
        })
        .await;
        added.push(item);
        eventually("the other is live with it", DEADLINE, async || {
            let absent = other.check("pooled", "absent").await;
            let verdicts = other.check_batch("pooled", &added).await;
            (!absent.is_maybe() && verdicts.into_iter().all(|is_maybe| is_maybe)).then_some(())
        })
        .await;
        let verdicts = one.check_batch("pooled", &added).await;
        assert!(verdicts.into_iter().all(|is_maybe| is_maybe));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_pooler_an_add_takes_one_round_trip() {
    let one_way = Duration::from_millis(200);
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let service = replica(&database.url_at(&proxy.address())).await;
    assert!(!service.logs().contains("pooler"));
    // The first one opens the session and prepares the statement.
    service.add("pooled", "first").await;
    proxy.switch(Conduct::Delay(one_way));
    for number in 0..3 {
        let begun = Instant::now();
        service.add("pooled", &format!("item {number}")).await;
        let took = begun.elapsed();
        assert!((one_way * 2..one_way * 4).contains(&took), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_ends_the_start_with_the_remedy() {
    let primary = Cluster::start().await;
    let database = primary.create_database().await;
    let mut service = replica(database.url()).await;
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    let standby = Standby::start(&primary).await;
    standby.wait_replayed(&primary).await;
    let url = standby.url_of(database.name());
    let launch = Launch::new().config(CONFIG).database_url(&url);
    let finished = launch.expect_start_failure().await;
    for part in ["is a standby", "give the address of the primary"] {
        assert!(finished.stderr.contains(part), "{finished:?}");
    }
}
