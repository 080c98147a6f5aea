//! PostgreSQL goes away and comes back: checks go on, doubt is told in time, and nothing that was
//! acknowledged is forgotten.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Bloomgate, Cluster, Conduct, Database, Launch, Proxy, eventually};

const DEADLINE: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
    max_staleness = "2s"
    poll_interval = "100ms"
    [filters.outage]
    profile = "text"
    capacity = 1000
    false_positive_rate = 0.0001
    [limits]
    drain_timeout = "1s"
"#;

async fn is_refused(service: &Bloomgate, item: &str) {
    let answer = service.try_add("outage", item).await.unwrap();
    answer.expect_problem(503, "store-unavailable");
}

/// Waits until an add is acknowledged.
async fn added(service: &Bloomgate, item: &str) {
    eventually("adds work again", DEADLINE, async || {
        let answer = service.try_add("outage", item).await.unwrap();
        match answer.status {
            200 => Some(()),
            503 => None,
            _ => panic!("{answer:?}"),
        }
    })
    .await;
}

/// Waits for a check of an absent item that says what is expected; `maybe` items stay so all along.
async fn until_absent_checks(service: &Bloomgate, expected: &str, acknowledged: &str) {
    eventually(&format!("checks are {expected}"), DEADLINE, async || {
        let checked = service.check("outage", acknowledged).await;
        assert!(checked.is_maybe(), "{checked:?}");
        let absent = service.check("outage", "absent").await;
        if absent.reason.is_some() {
            assert!((absent.estimated_fp_rate - 1.0).abs() < f64::EPSILON);
        }
        (absent.reason.unwrap_or(absent.verdict) == expected).then_some(())
    })
    .await;
}

/// The state that /readyz, which must answer so, names for the filter.
async fn readiness(service: &Bloomgate, status: u16) -> Value {
    let body = service.get("/readyz").await.expect_status(status);
    let filters = body["filters"].as_array().unwrap();
    assert_eq!(filters[0]["filter"], "outage");
    filters[0]["state"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_at_the_start_is_waited_for_in_doubt() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    cluster.stop_fast().await;
    let launch = Launch::new().config(CONFIG).database_url(database.url());
    let service = launch.start().await;
    let absent = service.check("outage", "absent").await;
    assert_eq!(absent.reason.as_deref(), Some("loading"));
    is_refused(&service, "early").await;
    assert_eq!(readiness(&service, 503).await, "loading");
    service.get("/livez").await.expect_status(200);
    assert!(service.logs().contains("starting without the store"));

    cluster.start_again().await;
    service.wait_live("outage").await;
    assert_eq!(readiness(&service, 200).await, "live");
    service.add("outage", "added").await;
    until_absent_checks(&service, "definitely-not", "added").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_stopped_checks_go_on_and_are_stale_past_the_bound() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let launch = Launch::new().config(CONFIG).database_url(database.url());
    let mut service = launch.start().await;
    service.wait_live("outage").await;
    service.add("outage", "added").await;
    for _ in 0..2 {
        cluster.stop_fast().await;
        is_refused(&service, "meanwhile").await;
        until_absent_checks(&service, "stale", "added").await;
        is_refused(&service, "meanwhile").await;
        assert_eq!(readiness(&service, 200).await, "stale");
        service.get("/livez").await.expect_status(200);

        cluster.start_again().await;
        until_absent_checks(&service, "definitely-not", "added").await;
        added(&service, "afterwards").await;
    }
    // A stopped server holds up no end.
    cluster.stop_fast().await;
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_between_two_kills_of_the_server_is_there() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let launch = Launch::new().config(CONFIG).database_url(database.url());
    let mut service = launch.start().await;
    service.wait_live("outage").await;
    let mut acknowledged = Vec::new();
    for kill in 0..3 {
        for number in 0..5 {
            let item = format!("{kill} {number}");
            added(&service, &item).await;
            acknowledged.push(item);
        }
        cluster.kill_9().await;
        cluster.start_again().await;
        let verdicts = service.check_batch("outage", &acknowledged).await;
        assert!(verdicts.iter().all(|is_maybe| *is_maybe), "{verdicts:?}");
    }
    added(&service, "last").await;
    until_absent_checks(&service, "definitely-not", "last").await;
    service.restart().await;
    service.wait_live("outage").await;
    let verdicts = service.check_batch("outage", &acknowledged).await;
    assert!(verdicts.iter().all(|is_maybe| *is_maybe), "{verdicts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_network_holds_up_neither_adds_nor_checks_nor_the_end() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let url = database.url_at(&proxy.address());
    let launch = Launch::new().config(CONFIG).database_url(&url);
    let mut service = launch.start().await;
    service.wait_live("outage").await;
    service.add("outage", "added").await;

    proxy.switch(Conduct::Freeze);
    let begun = Instant::now();
    is_refused(&service, "meanwhile").await;
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    until_absent_checks(&service, "stale", "added").await;
    proxy.switch(Conduct::Pass);
    until_absent_checks(&service, "definitely-not", "added").await;
    added(&service, "afterwards").await;

    proxy.switch(Conduct::Freeze);
    let begun = Instant::now();
    let (add, ended) = {
        let add = service.request(reqwest::Method::POST, "/v1/filters/outage/add");
        let add = add
            .json(&serde_json::json!({ "item": "at the end" }))
            .send();
        let add = tokio::spawn(add);
        (add, service.terminate(DEADLINE).await)
    };
    assert_eq!(ended.code(), Some(0));
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    if let Ok(answer) = add.await.unwrap() {
        assert_ne!(answer.status().as_u16(), 200);
    }
}
