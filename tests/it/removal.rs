//! Removing items: durably gone from the store at once, and from the bits with the next generation.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Bloomgate, Database, Launch, eventually};

const DEADLINE: Duration = Duration::from_secs(30);

const CONFIG: &str = r#"
    max_staleness = "5s"
    poll_interval = "200ms"
    [filters.jti]
    profile = "jti"
    capacity = 10000
    false_positive_rate = 1e-9
"#;

/// A UUID in three spellings that are one item.
const SPELLINGS: [&str; 3] = [
    "6f9619ff-8b86-d011-b42d-00c04fc964ff",
    "6F9619FF8B86D011B42D00C04FC964FF",
    "{6F9619FF-8B86-D011-B42D-00C04FC964FF}",
];

async fn on_sqlite() -> Bloomgate {
    let service = Launch::new().config(CONFIG).start().await;
    service.wait_live("jti").await;
    service
}

async fn on_postgres(database: &Database) -> Bloomgate {
    let launch = Launch::new().config(CONFIG).database_url(database.url());
    let service = launch.start().await;
    service.wait_live("jti").await;
    service
}

async fn remove(service: &Bloomgate, item: &str) -> Value {
    let body = json!({ "item": item });
    let answer = service.post("/v1/filters/jti/remove", &body).await;
    answer.expect_status(200)
}

async fn confirm(service: &Bloomgate, item: &str) -> Value {
    let body = json!({ "item": item, "confirm": true });
    let answer = service.post("/v1/filters/jti/check", &body).await;
    answer.expect_status(200)
}

/// Rebuilds and waits until the new generation answers.
async fn rebuild(service: &Bloomgate) {
    let before = service.describe("jti").await["generation"].as_u64();
    let answer = service.post("/v1/filters/jti/rebuild", &json!({})).await;
    answer.expect_status(202);
    eventually("the filter is rebuilt", DEADLINE, async || {
        let now = service.describe("jti").await["generation"].as_u64();
        (now > before).then_some(())
    })
    .await;
}

async fn is_removed_in_every_spelling(service: &Bloomgate) {
    // So many that the removal is no reason for a rebuild.
    let ballast: Vec<_> = (0..100)
        .map(|item| json!({ "item": format!("ballast {item}") }))
        .collect();
    let body = json!({ "items": ballast });
    let answer = service.post("/v1/filters/jti/add-batch", &body).await;
    answer.expect_status(200);
    service.add("jti", SPELLINGS[0]).await;
    service.add("jti", SPELLINGS[1]).await;
    service.add("jti", "another").await;
    let removed = remove(service, SPELLINGS[2]).await;
    assert_eq!(removed["filter"], "jti");
    assert_eq!(removed["removed"], true, "{removed}");
    assert_eq!(removed["still_in_source"], false, "{removed}");
    assert!(removed["watermark"].is_string());
    let again = remove(service, SPELLINGS[0]).await;
    assert_eq!(again["removed"], false, "{again}");

    // The bits are there still; who asks the store knows better.
    assert!(service.check("jti", SPELLINGS[0]).await.is_match());
    let checked = confirm(service, SPELLINGS[1]).await;
    assert_eq!(checked["verdict"], "definitely-not", "{checked}");
    assert_eq!(checked["confirmed"], true, "{checked}");
    rebuild(service).await;
    for spelling in SPELLINGS {
        let checked = service.check("jti", spelling).await;
        assert_eq!(checked.verdict, "definitely-not", "{spelling}");
    }
    assert!(service.check("jti", "another").await.is_match());

    service.add("jti", SPELLINGS[0]).await;
    for spelling in SPELLINGS {
        assert!(service.check("jti", spelling).await.is_match());
        let checked = confirm(service, spelling).await;
        assert_eq!(checked["verdict"], "maybe", "{checked}");
        assert_eq!(checked["confirmed"], true, "{checked}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_removed_in_every_spelling_and_can_be_added_again() {
    let mut service = on_sqlite().await;
    is_removed_in_every_spelling(&service).await;
    remove(&service, SPELLINGS[0]).await;
    service.restart().await;
    service.wait_live("jti").await;
    let checked = service.check("jti", SPELLINGS[0]).await;
    assert_eq!(checked.verdict, "definitely-not", "a removal is durable");

    let database = Database::create().await;
    let service = on_postgres(&database).await;
    is_removed_in_every_spelling(&service).await;
    let forgotten: i64 = database
        .query_value("SELECT forgotten FROM bloomgate.filter WHERE name = 'jti'")
        .await;
    assert_eq!(forgotten, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_on_one_replica_is_gone_on_another_with_its_next_generation() {
    let database = Database::create().await;
    let one = on_postgres(&database).await;
    one.add("jti", "removed").await;
    let other = on_postgres(&database).await;
    assert!(other.check("jti", "removed").await.is_match());
    let removed = remove(&one, "removed").await;
    rebuild(&other).await;
    let body = json!({ "item": "removed", "min_watermark": removed["watermark"] });
    eventually("the watermark is reached", DEADLINE, async || {
        let answer = other.post("/v1/filters/jti/check", &body).await;
        let checked = answer.expect_status(200);
        (checked["verdict"] == "definitely-not").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_added_again_during_a_rebuild_after_its_removal_is_there_afterwards() {
    let database = Database::create().await;
    for service in [on_sqlite().await, on_postgres(&database).await] {
        for round in 0..5 {
            let (gone, back) = (format!("gone {round}"), format!("back {round}"));
            service.add("jti", &gone).await;
            service.add("jti", &back).await;
            let removals = async {
                remove(&service, &gone).await;
                remove(&service, &back).await;
                service.add("jti", &back).await;
                assert!(service.check("jti", &back).await.is_match());
            };
            tokio::join!(rebuild(&service), removals);
            assert!(service.check("jti", &back).await.is_match(), "{round}");
            rebuild(&service).await;
            let checked = service.check("jti", &gone).await;
            assert_eq!(checked.verdict, "definitely-not", "{round}");
            assert!(service.check("jti", &back).await.is_match(), "{round}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adds_and_removals_of_the_same_items_never_lock_each_other_out() {
    let database = Database::create().await;
    let services = [on_postgres(&database).await, on_postgres(&database).await];
    let items: Vec<_> = (0..200).map(|item| format!("item {item}")).collect();
    let batch: Vec<_> = items.iter().map(|item| json!({ "item": item })).collect();
    let batch = json!({ "items": batch });
    let adding = services.iter().map(|service| async {
        for _ in 0..20 {
            let answer = service.post("/v1/filters/jti/add-batch", &batch).await;
            answer.expect_status(200);
        }
    });
    let removing = services.iter().map(|service| async {
        for item in items.iter().rev() {
            remove(service, item).await;
        }
    });
    let adding = futures_util::future::join_all(adding);
    let removing = futures_util::future::join_all(removing);
    tokio::time::timeout(DEADLINE, async { tokio::join!(adding, removing) })
        .await
        .unwrap();
    let answer = services[0].post("/v1/filters/jti/add-batch", &batch).await;
    answer.expect_status(200);
    assert!(
        services[0]
            .check_batch("jti", &items)
            .await
            .iter()
            .all(|maybe| *maybe)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_is_refused_as_an_add_is() {
    let database = Database::create().await;
    let one = on_postgres(&database).await;
    let other = on_postgres(&database).await;
    let declaration = json!({ "profile": "text", "capacity": 100, "false_positive_rate": 0.01 });
    one.put("/v1/filters/made", &declaration)
        .await
        .expect_status(201);
    let body = json!({ "item": "a" });
    let answer = other.post("/v1/filters/made/remove", &body).await;
    assert_eq!(answer.expect_status(200)["removed"], false);
    one.delete("/v1/filters/made").await.expect_status(204);
    let answer = other.post("/v1/filters/made/remove", &body).await;
    answer.expect_problem(404, "unknown-filter");
    let blank = one
        .post("/v1/filters/jti/remove", &json!({ "item": " " }))
        .await;
    blank.expect_problem(422, "invalid-item");
    let confirm = json!({ "item": "a", "confirm": true });
    let answer = one.post("/v1/filters/jti/remove", &confirm).await;
    answer.expect_problem(422, "invalid-field");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_says_whether_a_source_has_the_item_or_cannot_rule_it_out() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE revoked (jti text); INSERT INTO revoked VALUES ('in the table')")
        .await;
    let source =
        "[[filters.jti.sources]]\nname = \"revoked\"\nquery = \"SELECT jti FROM revoked\"\n";
    let confirmed = "confirm_query = \"SELECT jti FROM revoked WHERE jti = $1\"\n";
    let start = async |source: &str| {
        let config = format!("{CONFIG}{source}");
        let launch = Launch::new().config(&config).database_url(database.url());
        let service = launch.start().await;
        service.wait_live("jti").await;
        service
    };
    let service = start(source).await;
    let removed = remove(&service, "nowhere").await;
    assert_eq!(removed["still_in_source"], true, "nobody can be asked");
    drop(service);
    let service = start(&format!("{source}{confirmed}")).await;
    service.add("jti", "added").await;
    eventually("the source is probed", DEADLINE, async || {
        let removed = remove(&service, "nowhere").await;
        (removed["still_in_source"] == false).then_some(())
    })
    .await;
    let removed = remove(&service, "added").await;
    assert_eq!(
        (&removed["removed"], &removed["still_in_source"]),
        (&json!(true), &json!(false))
    );
    let removed = remove(&service, "in the table").await;
    assert_eq!(
        (&removed["removed"], &removed["still_in_source"]),
        (&json!(false), &json!(true))
    );
}
