//! Many processes on one store: what one of them is told, the others know.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Bloomgate, Cluster, Conduct, Database, Launch, Proxy, eventually};

const DEADLINE: Duration = Duration::from_secs(30);

const CONFIG: &str = r#"
    max_staleness = "3s"
    poll_interval = "200ms"
    [filters.shared]
    profile = "text"
    capacity = 10000
    false_positive_rate = 1e-9
"#;

async fn replica(url: &str) -> Bloomgate {
    let replica = Launch::new().config(CONFIG).database_url(url).start().await;
    replica.wait_live("shared").await;
    replica
}

async fn replicas(database: &Database) -> [Bloomgate; 2] {
    [replica(database.url()).await, replica(database.url()).await]
}

async fn check_with(service: &Bloomgate, item: &str, watermark: &Value) -> Value {
    let body = json!({ "item": item, "min_watermark": watermark });
    let answer = service.post("/v1/filters/shared/check", &body).await;
    answer.expect_status(200)
}

async fn until_maybe(service: &Bloomgate, filter: &str, item: &str, deadline: Duration) {
    eventually(&format!("{item} is maybe"), deadline, async || {
        service.check(filter, item).await.is_match().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_replica_is_told_the_others_know_within_the_poll_interval() {
    let database = Database::create().await;
    let [one, other] = replicas(&database).await;
    for (told, asked) in [(&one, &other), (&other, &one)] {
        for number in 0..5 {
            let item = format!("{number} through {}", told.base_url());
            told.add("shared", &item).await;
            assert!(told.check("shared", &item).await.is_maybe());
            until_maybe(asked, "shared", &item, DEADLINE).await;
        }
        let checked = asked.check("shared", "never added").await;
        assert_eq!(checked.verdict, "definitely-not");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_with_the_adds_watermark_never_misses_it_on_any_replica() {
    let database = Database::create().await;
    let [one, other] = replicas(&database).await;
    for number in 0..50 {
        let item = format!("item {number}");
        let added = one.add("shared", &item).await;
        let checked = check_with(&other, &item, &added["watermark"]).await;
        assert_eq!(checked["verdict"], "maybe", "{checked}");
        let reason = checked["reason"].as_str().unwrap();
        assert!(matches!(reason, "behind" | "match"), "{checked}");
    }
    let last = one.add("shared", "the last").await;
    eventually("the watermark is reached", DEADLINE, async || {
        let checked = check_with(&other, "never added", &last["watermark"]).await;
        (checked["verdict"] == "definitely-not").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_add_that_waits_for_all_is_effective_everywhere_when_it_is_answered() {
    let database = Database::create().await;
    let [one, other] = replicas(&database).await;
    for number in 0..20 {
        let item = format!("item {number}");
        let body = json!({ "item": item, "wait": "all" });
        let added = one
            .post("/v1/filters/shared/add", &body)
            .await
            .expect_status(200);
        assert_eq!(added["visible"], true, "{added}");
        assert!(other.check("shared", &item).await.is_maybe());
    }
    let body = json!({ "items": [{ "item": "in a batch" }], "wait": "all" });
    let added = one
        .post("/v1/filters/shared/add-batch", &body)
        .await
        .expect_status(200);
    assert_eq!(added["visible"], true, "{added}");
    assert!(other.check("shared", "in a batch").await.is_maybe());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_hears_nothing_is_waited_for_until_it_says_maybe_by_itself() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let one = replica(database.url()).await;
    let cut_off = replica(&database.url_at(&proxy.address())).await;
    proxy.switch(Conduct::Freeze);
    let begun = Instant::now();
    let body = json!({ "item": "while it hears nothing", "wait": "all" });
    let added = one
        .post("/v1/filters/shared/add", &body)
        .await
        .expect_status(200);
    assert_eq!(added["visible"], true, "{added}");
    assert!(
        begun.elapsed() > Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    let checked = cut_off.check("shared", "while it hears nothing").await;
    assert_eq!(checked.reason.as_deref(), Some("stale"));
    proxy.switch(Conduct::Pass);
    until_maybe(&cut_off, "shared", "while it hears nothing", DEADLINE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_that_are_made_and_deleted_on_one_replica_come_and_go_on_the_others() {
    let database = Database::create().await;
    let [one, other] = replicas(&database).await;
    let declaration = json!({ "profile": "text", "capacity": 100, "false_positive_rate": 0.01 });
    one.put("/v1/filters/made", &declaration)
        .await
        .expect_status(201);
    // At once for whoever asks for it by its name: the store is asked.
    other.add("made", "added at once").await;
    other.wait_live("made").await;
    assert!(other.check("made", "added at once").await.is_match());
    one.delete("/v1/filters/made").await.expect_status(204);
    eventually("the filter is gone there too", DEADLINE, async || {
        let answer = other.get("/v1/filters/made").await;
        (answer.status == 404).then_some(())
    })
    .await;
    let again = one.put("/v1/filters/made", &declaration).await;
    again.expect_status(201);
    other.wait_live("made").await;
    let checked = other.check("made", "added at once").await;
    assert_eq!(
        checked.verdict, "definitely-not",
        "nothing of the old one is left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_filter_made_again_under_its_name_the_old_one_answers_for_no_later_place() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let one = replica(database.url()).await;
    let other = replica(&database.url_at(&proxy.address())).await;
    let declaration = json!({ "profile": "text", "capacity": 100, "false_positive_rate": 1e-9 });
    let made = one.put("/v1/filters/made", &declaration).await;
    made.expect_status(201);
    other.wait_live("made").await;

    proxy.switch(Conduct::Freeze);
    one.delete("/v1/filters/made").await.expect_status(204);
    let again = one.put("/v1/filters/made", &declaration).await;
    again.expect_status(201);
    let added = one.add("made", "in the new one").await;
    // Polls do not need this table, and the other process cannot list the filters without it.
    let mut held = database.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE bloomgate.filter IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *held)
        .await
        .unwrap();
    proxy.switch(Conduct::Pass);
    let body = json!({ "item": "in the new one", "min_watermark": added["watermark"] });
    for _ in 0..100 {
        let checked = other.post("/v1/filters/made/check", &body).await;
        assert_eq!(checked.expect_status(200)["verdict"], "maybe");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    held.rollback().await.unwrap();
    until_maybe(&other, "made", "in the new one", DEADLINE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_report_a_crash_has_taken_away_is_still_waited_for() {
    let cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let proxy = Proxy::start(database.address()).await;
    let one = replica(database.url()).await;
    let cut_off = replica(&database.url_at(&proxy.address())).await;
    one.add("shared", "before").await;
    proxy.switch(Conduct::Freeze);
    // One backend is killed, and the server goes through crash recovery by itself.
    let pid: i32 = database
        .query_value("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' LIMIT 1")
        .await;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let body = json!({ "item": "after the crash", "wait": "all" });
    let added = eventually("the server is there again", DEADLINE, async || {
        let answer = one.post("/v1/filters/shared/add", &body).await;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    assert_eq!(added["visible"], true, "{added}");
    assert!(cut_off.check("shared", "after the crash").await.is_maybe());
}
