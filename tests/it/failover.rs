//! The database comes back as another: restored from a backup or a dump, failed over, crashed, put
//! back to an earlier file. What it has lost is `maybe` still, until an operator has it rebuilt.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use crate::support::{
    Bloomgate, Cluster, Database, DatabaseOptions, Launch, Proxy, Standby, environment, eventually,
};

const DEADLINE: Duration = Duration::from_secs(60);

/// A second is the shortest interval that there is.
const CONFIG: &str = r#"
    max_staleness = "3s"
    poll_interval = "100ms"
    rebuild_interval = "1s"
    [filters.kept]
    profile = "text"
    capacity = 10000
    false_positive_rate = 1e-9
"#;

async fn start(url: &str) -> Bloomgate {
    let launch = Launch::new().config(CONFIG).database_url(url);
    let service = launch.start().await;
    service.wait_live("kept").await;
    service
}

/// Waits until the store was loaded again: both items are `maybe` all along, and then found.
async fn until_live_with_both(service: &Bloomgate) {
    eventually(
        "the filter is live with its old bits",
        DEADLINE,
        async || {
            let verdicts = service.check_batch("kept", &["kept", "lost"]).await;
            assert_eq!(verdicts, [true, true]);
            let absent = service.check("kept", "absent").await;
            (!absent.is_maybe()).then_some(())
        },
    )
    .await;
    for item in ["kept", "lost"] {
        assert!(service.check("kept", item).await.is_match(), "{item}");
    }
}

/// Waits until another filter was rebuilt by schedule; this one was not.
async fn assert_no_schedule_drops_it(service: &Bloomgate, witness: &str) {
    let generation = |description: &Value| description["generation"].as_i64().unwrap();
    let declaration = json!({ "profile": "text", "capacity": 100, "false_positive_rate": 0.01 });
    let path = format!("/v1/filters/{witness}");
    // The database may only just come back.
    eventually("the witness is made", DEADLINE, async || {
        let made = service.put(&path, &declaration).await;
        (made.status == 201).then_some(())
    })
    .await;
    // A rebuild that was under way when the database went away was given up by now.
    let before = generation(&service.describe("kept").await);
    eventually("the witness was rebuilt", DEADLINE, async || {
        (generation(&service.describe(witness).await) > 2).then_some(())
    })
    .await;
    assert_eq!(generation(&service.describe("kept").await), before);
    until_live_with_both(service).await;
}

/// Of a store that has lost an item: it is kept, over a restart too, until an operator has the
/// filter rebuilt.
async fn assert_lost_is_kept(mut service: Bloomgate) {
    until_live_with_both(&service).await;
    assert_no_schedule_drops_it(&service, "first-witness").await;
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    service.restart().await;
    until_live_with_both(&service).await;
    // Killed, it takes an older snapshot than at an end in good order.
    service.restart().await;
    until_live_with_both(&service).await;
    assert!(service.logs().contains("restored"));
    assert_no_schedule_drops_it(&service, "second-witness").await;
    service.rebuild("kept").await;
    let verdicts = service
        .check_batch("kept", &["kept", "lost", "absent"])
        .await;
    assert_eq!(verdicts, [true, false, false]);
}

async fn until_stale(service: &Bloomgate) {
    eventually("the filter is stale", DEADLINE, async || {
        let checked = service.check("kept", "absent").await;
        (checked.reason.as_deref() == Some("stale")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_restored_under_a_running_replica() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let service = start(database.url()).await;
    service.add("kept", "kept").await;
    let backup = cluster.physical_backup().await;
    service.add("kept", "lost").await;
    cluster.restore_from(&backup).await;
    assert_lost_is_kept(service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_restored_while_the_replica_is_down() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let mut service = start(database.url()).await;
    service.add("kept", "kept").await;
    let backup = cluster.physical_backup().await;
    service.add("kept", "lost").await;
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    cluster.restore_from(&backup).await;
    service.restart().await;
    assert_lost_is_kept(service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_had_not_received_all_is_promoted() {
    let mut primary = Cluster::start().await;
    let database = primary.create_database().await;
    let proxy = Proxy::start(database.address()).await;
    let service = start(&database.url_at(&proxy.address())).await;
    service.add("kept", "kept").await;
    let standby = Standby::start(&primary).await;
    standby.wait_replayed(&primary).await;
    stop_receiving(&standby).await;
    service.add("kept", "lost").await;
    primary.kill_9().await;
    until_stale(&service).await;
    let promoted = standby.promote().await;
    proxy.lead_to(&format!("127.0.0.1:{}", promoted.port()));
    assert_lost_is_kept(service).await;
}

/// Cuts a standby off from its primary.
async fn stop_receiving(standby: &Standby) {
    let mut connection = PgConnection::connect(&standby.url_of("postgres"))
        .await
        .unwrap();
    for statement in [
        "ALTER SYSTEM SET primary_conninfo = ''",
        "SELECT pg_reload_conf()",
    ] {
        sqlx::raw_sql(statement)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    eventually("the standby receives no more", DEADLINE, async || {
        let receivers: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_stat_wal_receiver")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        (receivers == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_is_restored_elsewhere() {
    let cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let mut service = start(database.url()).await;
    service.add("kept", "kept").await;
    let elsewhere = Cluster::start().await;
    // Its transaction ids are past those of the dumped server.
    let copy = Database::create_at(&elsewhere.url(), &DatabaseOptions::default()).await;
    for _ in 0..100 {
        copy.execute("SELECT pg_current_xact_id()").await;
    }
    dump(database.url(), copy.url());
    service.add("kept", "lost").await;
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    let url = copy.url().to_owned();
    service.restart_as(|launch| launch.database_url(&url)).await;
    assert_lost_is_kept(service).await;
}

/// Copies a database as `pg_dump` and `psql` do.
fn dump(from: &str, to: &str) {
    let mut dump = Command::new(environment::postgres_program("pg_dump"))
        .arg(from)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let restored = Command::new(environment::postgres_program("psql"))
        .args(["--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", to])
        .stdin(dump.stdout.take().unwrap())
        .stdout(Stdio::null())
        .status();
    assert!(restored.unwrap().success() && dump.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_put_back_to_an_earlier_state() {
    let mut service = Bloomgate::start(CONFIG).await;
    service.wait_live("kept").await;
    service.add("kept", "kept").await;
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    let file = service.launched_as().data_dir().join("bloomgate.sqlite");
    let earlier = std::fs::read(&file).unwrap();
    service.restart().await;
    service.wait_live("kept").await;
    service.add("kept", "lost").await;
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    std::fs::write(&file, earlier).unwrap();
    service.restart().await;
    assert_lost_is_kept(service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_added_after_a_crash_is_found_by_a_replica_that_had_polled_before_it() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let (one, other) = (start(database.url()).await, start(database.url()).await);
    for crash in 0..4 {
        let before = format!("before {crash}");
        one.add("kept", &before).await;
        until_found(&other, &before).await;
        // Taken, seen by polls and never logged, these come again after the crash.
        let take_ids = "DO $$ BEGIN FOR n IN 1..1000 LOOP
                            PERFORM pg_current_xact_id(); COMMIT;
                        END LOOP; END $$";
        database.execute(take_ids).await;
        until_polled(&database).await;
        if crash % 2 == 0 {
            cluster.kill_9().await;
            cluster.start_again().await;
        } else {
            cluster.kill_backend_9().await;
        }
        let after = format!("after {crash}");
        eventually("adds work again", DEADLINE, async || {
            let answer = one.try_add("kept", &after).await.unwrap();
            (answer.status == 200).then_some(())
        })
        .await;
        until_found(&other, &after).await;
        assert!(other.check("kept", &before).await.is_maybe());
    }
}

/// Waits until every replica has polled, and told so with another poll.
async fn until_polled(database: &Database) {
    let question = "SELECT min(reports) FROM bloomgate.report";
    let before: i64 = database.query_value(question).await;
    eventually("the replicas have polled", DEADLINE, async || {
        let now: i64 = database.query_value(question).await;
        (now > before + 1).then_some(())
    })
    .await;
}

async fn until_found(service: &Bloomgate, item: &str) {
    eventually(&format!("{item} is found"), DEADLINE, async || {
        service.check("kept", item).await.is_match().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watermark_from_before_a_crash_is_behind_and_one_from_after_it_is_reached() {
    let cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let service = start(database.url()).await;
    let before = service.add("kept", "before").await;
    cluster.kill_backend_9().await;
    let after = eventually("adds work again", DEADLINE, async || {
        let answer = service.try_add("kept", "after").await.unwrap();
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    let check = async |added: &Value| {
        let body = json!({ "item": "absent", "min_watermark": added["watermark"] });
        let answer = service.post("/v1/filters/kept/check", &body).await;
        answer.expect_status(200)
    };
    eventually("the later one is reached", DEADLINE, async || {
        (check(&after).await["verdict"] == "definitely-not").then_some(())
    })
    .await;
    assert_eq!(check(&before).await["reason"], "behind");
}
