//! Following, with everything that goes wrong on the way: whatever one replica has acknowledged, no
//! other misses for longer than its bound.

use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{Bloomgate, Conduct, Database, Launch, Proxy, eventually};

const DEADLINE: Duration = Duration::from_secs(60);

/// A poll in so long finds nothing in time: a notice has to.
const BY_NOTICE: &str = "max_staleness = \"120s\"\npoll_interval = \"60s\"";

const BY_POLL: &str = "max_staleness = \"3s\"\npoll_interval = \"200ms\"";

async fn replica(bounds: &str, url: &str) -> Bloomgate {
    let filter = "profile = \"text\"\ncapacity = 10000\nfalse_positive_rate = 1e-9";
    let config = format!("{bounds}\n[filters.followed]\n{filter}\n");
    let launch = Launch::new().config(&config).database_url(url);
    let replica = launch.start().await;
    replica.wait_live("followed").await;
    replica
}

/// Waits until an item is found, and gives how long that took.
async fn until_found(service: &Bloomgate, item: &str) -> Duration {
    let begun = Instant::now();
    eventually(&format!("{item} is found"), DEADLINE, async || {
        let checked = service.check("followed", item).await;
        checked.is_match().then_some(())
    })
    .await;
    begun.elapsed()
}

/// The sessions that listen.
async fn listeners(database: &Database) -> i64 {
    let question = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND query ILIKE 'LISTEN%'";
    database.query_value(question).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notice_brings_an_add_long_before_the_next_poll() {
    let database = Database::create().await;
    let one = replica(BY_NOTICE, database.url()).await;
    let other = replica(BY_NOTICE, database.url()).await;
    eventually("both listen", DEADLINE, async || {
        (listeners(&database).await == 2).then_some(())
    })
    .await;
    for number in 0..3 {
        let item = format!("item {number}");
        one.add("followed", &item).await;
        let took = until_found(&other, &item).await;
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_added_while_nobody_listens_is_found_by_the_next_poll() {
    let database = Database::create().await;
    let one = replica(BY_POLL, database.url()).await;
    let other = replica(BY_POLL, database.url()).await;
    for number in 0..5 {
        database
            .execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND query ILIKE 'LISTEN%'",
            )
            .await;
        let item = format!("item {number}");
        one.add("followed", &item).await;
        let took = until_found(&other, &item).await;
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    eventually("both listen again", DEADLINE, async || {
        (listeners(&database).await == 2).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_suspended_is_stale_until_it_has_polled() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let one = replica(BY_POLL, database.url()).await;
    let suspended = replica(BY_POLL, &database.url_at(&proxy.address())).await;
    for round in 0..2 {
        suspended.send(Signal::STOP);
        let item = format!("while it was suspended {round}");
        one.add("followed", &item).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        // In the first round the answer to no poll arrives.
        if round == 0 {
            proxy.switch(Conduct::Freeze);
        }
        suspended.send(Signal::CONT);
        let first = suspended.check("followed", &item).await;
        assert!(first.is_maybe(), "{first:?}");
        if round == 0 {
            for item in [item.as_str(), "absent"] {
                let checked = suspended.check("followed", item).await;
                assert_eq!(checked.reason.as_deref(), Some("stale"), "{checked:?}");
            }
            proxy.switch(Conduct::Pass);
        }
        eventually("it is live again", DEADLINE, async || {
            assert!(suspended.check("followed", &item).await.is_maybe());
            let absent = suspended.check("followed", "absent").await;
            (!absent.is_maybe()).then_some(())
        })
        .await;
        assert!(suspended.check("followed", &item).await.is_match());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_is_maybe_everywhere_though_its_caller_hung_up() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let one = replica(BY_POLL, &database.url_at(&proxy.address())).await;
    let other = replica(BY_POLL, database.url()).await;
    for number in 0..5 {
        let item = format!("item {number}");
        // The commit's answer is on its way for longer than the caller waits.
        proxy.switch(Conduct::Delay(Duration::from_millis(300)));
        let request = one.request(Method::POST, "/v1/filters/followed/add");
        let request = request.json(&json!({ "item": item }));
        let hung_up = request.timeout(Duration::from_millis(50)).send().await;
        assert!(hung_up.unwrap_err().is_timeout());
        eventually("the add is committed", DEADLINE, async || {
            let rows: i64 = database
                .query_value("SELECT count(*) FROM bloomgate.item")
                .await;
            (rows == number + 1).then_some(())
        })
        .await;
        assert!(one.check("followed", &item).await.is_maybe());
        let took = until_found(&other, &item).await;
        assert!(took < Duration::from_secs(3), "{took:?}");
        proxy.switch(Conduct::Pass);
        assert!(one.check("followed", &item).await.is_maybe());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_add_to_a_deleted_filter_reaches_no_filter_of_its_name() {
    let database = Database::create().await;
    // It learns of declarations by its polls alone, the next of which comes too late here, and of a
    // name that it does not know by asking for it.
    let one = replica(BY_POLL, database.url()).await;
    let late = replica(BY_NOTICE, database.url()).await;
    let declaration = json!({ "profile": "text", "capacity": 100, "false_positive_rate": 1e-9 });
    let path = "/v1/filters/made";
    one.put(path, &declaration).await.expect_status(201);
    late.get(path).await.expect_status(200);
    one.delete(path).await.expect_status(204);
    one.put(path, &declaration).await.expect_status(201);
    let refused = late.try_add("made", "late").await.unwrap();
    refused.expect_problem(404, "unknown-filter");
    // By now it knows: the second one is another filter.
    late.add("made", "of the second one").await;
    for service in [&one, &late] {
        eventually("the second one has its item", DEADLINE, async || {
            let checked = service.check("made", "of the second one").await;
            checked.is_match().then_some(())
        })
        .await;
        let checked = service.check("made", "late").await;
        assert_eq!(checked.verdict, "definitely-not");
    }
}
