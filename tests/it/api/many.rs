//! Several filters in one request.

use std::time::Instant;

use serde_json::{Value, json};

use super::{DEADLINE, fields};
use crate::support::{Database, Launch};

fn check(filter: &str, item: &str) -> Value {
    json!({"filter": filter, "item": item})
}

#[tokio::test(flavor = "multi_thread")]
async fn each_check_is_answered_as_by_itself_and_all_together() {
    let service = Launch::new().start().await;
    service.wait_live("revoked-jti").await;
    service.wait_live("registered-email").await;
    let added = service.add("registered-email", "Ann@example.com").await;
    let mut ahead = check("registered-email", "ben@example.com");
    ahead["min_watermark"] = added["watermark"].clone();
    let body = json!({"checks": [check("revoked-jti", "7f0c"), ahead]});
    let answer = service.post("/v1/check", &body).await.expect_status(200);
    assert_eq!(fields(&answer), ["results", "verdict"]);
    assert_eq!(answer["verdict"], "definitely-not");

    let body = json!({
        "checks": [check("revoked-jti", "7f0c"), check("registered-email", "ann@example.com")],
        "confirm": true,
    });
    let answer = service.post("/v1/check", &body).await.expect_status(200);
    assert_eq!(answer["verdict"], "maybe");
    let results = answer["results"].as_array().unwrap();
    for (result, sibling) in results.iter().zip(body["checks"].as_array().unwrap()) {
        let filter = sibling["filter"].as_str().unwrap();
        let path = format!("/v1/filters/{filter}/check");
        let alone = json!({"item": sibling["item"], "confirm": true});
        let alone = service.post(&path, &alone).await.expect_status(200);
        assert_eq!(*result, alone);
    }
    assert_eq!(results[1]["confirmed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_look_ups_of_one_request_are_made_at_once() {
    let database = Database::create().await;
    let table = "CREATE TABLE person AS SELECT n || '@example.com' AS email
                 FROM generate_series(1, 8) AS n";
    database.execute(table).await;
    // One after the other they would take longer than a request may look things up.
    let config = "[filters.email]\nprofile = \"email\"\ncapacity = 10000\n\
                  false_positive_rate = 1e-9\n[[filters.email.sources]]\nname = \"people\"\n\
                  query = \"SELECT email FROM person\"\n\
                  confirm_query = \"SELECT email FROM person, pg_sleep(0.5) WHERE email = $1\"\n";
    let launch = Launch::new().config(config).database_url(database.url());
    let service = launch.start().await;
    service.wait_live("email").await;
    let checks: Vec<_> = (1..=8)
        .map(|number| check("email", &format!("{number}@example.com")))
        .collect();
    let body = json!({"checks": checks, "confirm": true});
    let answer = service.post("/v1/check", &body).await.expect_status(200);
    for result in answer["results"].as_array().unwrap() {
        assert_eq!(result["confirmed"], true, "{answer}");
        assert_eq!(result["verdict"], "maybe", "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_everything_is_maybe_soon_however_many_names_are_unknown() {
    let launch = Launch::new().database_url("postgres://nobody:x@127.0.0.1:1/nothing");
    let service = launch.start().await;
    let checks: Vec<_> = (0..99)
        .map(|number| check(&format!("unknown-{number}"), "a"))
        .chain([check("revoked-jti", "a")])
        .collect();
    let body = json!({"checks": checks, "confirm": true});
    let begun = Instant::now();
    let answer = service.post("/v1/check", &body).await.expect_status(200);
    assert!(begun.elapsed() < DEADLINE, "{:?}", begun.elapsed());
    assert_eq!(answer["verdict"], "maybe");
    for result in answer["results"].as_array().unwrap() {
        assert_eq!(result["verdict"], "maybe");
        assert_eq!(result["reason"], "loading");
        assert_eq!(result["estimated_fp_rate"], 1.0);
        assert!(result.get("confirmed").is_none());
    }
}
