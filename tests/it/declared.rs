//! What becomes of a filter's rows when its declaration in the configuration changes.

use std::time::Duration;

use serde_json::json;

use crate::support::{Bloomgate, Database, Launch, eventually};

/// A filter that is always there, so that the configuration is never empty.
const OTHER: &str =
    "[filters.other]\nprofile = \"text\"\ncapacity = 1000\nfalse_positive_rate = 0.01\n";

fn filter(name: &str, profile: &str, capacity: u64, options: &str) -> String {
    format!(
        "[filters.{name}]\nprofile = \"{profile}\"\ncapacity = {capacity}\n\
         false_positive_rate = 0.001\n{options}\n"
    )
}

/// A launch over SQLite and one over PostgreSQL.
async fn both_stores() -> (Database, [Launch; 2]) {
    let database = Database::create().await;
    let on_postgres = Launch::new().database_url(database.url());
    (database, [Launch::new(), on_postgres])
}

/// Restarts with another configuration.
async fn configure(service: &mut Bloomgate, config: &str, live: &str) {
    service.restart_as(|launch| launch.config(config)).await;
    service.wait_live(live).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_declared_no_more_is_not_served_and_keeps_its_rows() {
    let with = format!("{OTHER}{}", filter("dropped", "text", 1_000, ""));
    let (_database, launches) = both_stores().await;
    for launch in launches {
        let mut service = launch.config(&with).start().await;
        service.wait_live("dropped").await;
        service.add("dropped", "kept").await;

        configure(&mut service, OTHER, "other").await;
        let item = json!({ "item": "kept" });
        for verb in ["check", "add"] {
            let path = format!("/v1/filters/dropped/{verb}");
            let answer = service.post(&path, &item).await;
            answer.expect_problem(404, "unknown-filter");
        }
        let described = service.get("/v1/filters/dropped").await;
        described.expect_problem(404, "unknown-filter");
        let listed = service.get("/v1/filters").await.expect_status(200);
        assert_eq!(listed["filters"].as_array().unwrap().len(), 1);
        service.get("/readyz").await.expect_status(200);

        configure(&mut service, &with, "dropped").await;
        assert!(service.check("dropped", "kept").await.is_match());
        let absent = service.check("dropped", "absent").await;
        assert_eq!(absent.verdict, "definitely-not");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_capacity_is_taken_over_with_every_row() {
    let (_database, launches) = both_stores().await;
    for launch in launches {
        let small = filter("f", "text", 1_000, "");
        let mut service = launch.config(&small).start().await;
        service.wait_live("f").await;
        let items: Vec<_> = (0..3_000).map(|item| format!("item {item}")).collect();
        let body: Vec<_> = items.iter().map(|item| json!({ "item": item })).collect();
        let body = json!({ "items": body });
        let added = service.post("/v1/filters/f/add-batch", &body).await;
        added.expect_status(200);
        assert_eq!(service.describe("f").await["over_capacity"], true);

        for capacity in [100_000, 500] {
            configure(&mut service, &filter("f", "text", capacity, ""), "f").await;
            let described = service.describe("f").await;
            assert_eq!(described["capacity"], capacity);
            assert_eq!(described["over_capacity"], capacity == 500);
            let verdicts = service.check_batch("f", &items).await;
            assert!(verdicts.iter().all(|is_maybe| *is_maybe));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_rules_that_are_switched_off_split_what_they_joined() {
    let rules = "profile_options = { gmail_dots = true, googlemail = true, plus_tags = true }";
    let (_database, launches) = both_stores().await;
    for launch in launches {
        let on = filter("f", "email", 1_000, rules);
        let off = filter("f", "email", 1_000, "");
        let mut service = launch.config(&on).start().await;
        service.wait_live("f").await;
        let added = ["a.b@gmail.com", "ab@gmail.com", "c.d+tag@googlemail.com"];
        for address in added {
            service.add("f", address).await;
        }
        let joined = ["ab@gmail.com", "a.b@googlemail.com", "cd@gmail.com"];
        assert_eq!(service.check_batch("f", &joined).await, [true, true, true]);

        configure(&mut service, &off, "f").await;
        assert_eq!(service.check_batch("f", &added).await, [true, true, true]);
        let apart = ["a.b@googlemail.com", "cd@gmail.com"];
        assert_eq!(service.check_batch("f", &apart).await, [false, false]);

        configure(&mut service, &on, "f").await;
        assert_eq!(service.check_batch("f", &joined).await, [true, true, true]);
        assert_eq!(service.check_batch("f", &added).await, [true, true, true]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_profile_reads_every_row_anew() {
    let (_database, launches) = both_stores().await;
    for launch in launches {
        let mut service = launch.config(&filter("f", "text", 1_000, "")).start().await;
        service.wait_live("f").await;
        service.add("f", "Ann@Example.COM").await;
        let lower = service.check("f", "ann@example.com").await;
        assert_eq!(lower.verdict, "definitely-not");
        configure(&mut service, &filter("f", "email", 1_000, ""), "f").await;
        for address in ["Ann@Example.COM", "ann@example.com"] {
            assert!(service.check("f", address).await.is_match(), "{address}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_declared_no_more_can_be_put_as_it_was_and_not_otherwise() {
    let with = format!("{OTHER}{}", filter("dropped", "text", 1_000, ""));
    let as_it_was = json!({ "profile": "text", "capacity": 1_000, "false_positive_rate": 0.001 });
    let otherwise = json!({ "profile": "jti", "capacity": 1_000, "false_positive_rate": 0.001 });
    let (_database, launches) = both_stores().await;
    for launch in launches {
        let mut service = launch.config(&with).start().await;
        service.wait_live("dropped").await;
        service.add("dropped", "kept").await;

        configure(&mut service, OTHER, "other").await;
        let refused = service.put("/v1/filters/dropped", &otherwise).await;
        refused.expect_problem(409, "declared-otherwise");
        let made = service.put("/v1/filters/dropped", &as_it_was).await;
        assert_eq!(made.expect_status(201)["declared_by"], "api");
        assert!(service.check("dropped", "kept").await.is_match());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_deleted_filter_leaves_is_purged_behind_it() {
    let database = Database::create().await;
    let launch = Launch::new().database_url(database.url());
    let service = launch.config(OTHER).start().await;
    service.wait_live("other").await;
    let declaration = json!({ "profile": "text", "capacity": 1_000, "false_positive_rate": 0.01 });
    let put = service.put("/v1/filters/short-lived", &declaration).await;
    put.expect_status(201);
    let items: Vec<_> = (0..10_000)
        .map(|item| json!({ "item": item.to_string() }))
        .collect();
    let body = json!({ "items": items });
    let added = service.post("/v1/filters/short-lived/add-batch", &body);
    added.await.expect_status(200);
    service.add("other", "kept").await;

    service
        .delete("/v1/filters/short-lived")
        .await
        .expect_status(204);
    let what = "the rows of the deleted filter are gone";
    eventually(what, Duration::from_secs(30), async || {
        let items = "SELECT count(*) FROM bloomgate.item";
        let notes = "SELECT count(*) FROM bloomgate.deleted_filter";
        let items = database.query_value::<i64>(items).await;
        let notes = database.query_value::<i64>(notes).await;
        ((items, notes) == (1, 0)).then_some(())
    })
    .await;
    assert!(service.check("other", "kept").await.is_match());
}
