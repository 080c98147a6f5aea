//! Several filters in one request.

use axum::body::Body;
use serde_json::{Value, json};

use super::{Answer, App, HttpLimits, key};
use crate::config::Scope;
use crate::service::declaration::FilterName;

async fn ask(app: &App, checks: Value) -> Answer {
    app.post("/v1/check", json!({ "checks": checks })).await
}

/// As many checks of the same filter.
fn checks(number: usize) -> Value {
    vec![json!({"filter": "revoked-jti", "item": "a"}); number].into()
}

#[tokio::test]
async fn all_are_definitely_not_only_where_each_is() {
    let app = App::start().await;
    let add = json!({"item": "Ann@example.com"});
    let added = app.post("/v1/filters/registered-email/add", add).await;
    assert_eq!(added.status, 200);
    let jti = json!({"filter": "revoked-jti", "item": "7f0c"});
    let stranger = json!({"filter": "registered-email", "item": "ben@example.com"});
    let known = json!({"filter": "registered-email", "item": "ann@EXAMPLE.com"});
    for (checks, verdicts, verdict) in [
        (
            json!([jti, stranger]),
            ["definitely-not"; 2],
            "definitely-not",
        ),
        (json!([jti, known]), ["definitely-not", "maybe"], "maybe"),
        (json!([known, jti]), ["maybe", "definitely-not"], "maybe"),
        (json!([known, known]), ["maybe"; 2], "maybe"),
    ] {
        let answer = ask(&app, checks.clone()).await;
        assert_eq!(answer.status, 200);
        let body = answer.json();
        assert_eq!(body["verdict"], verdict);
        let results = body["results"].as_array().unwrap();
        let asked = checks.as_array().unwrap();
        assert_eq!(results.len(), asked.len());
        for ((result, check), verdict) in results.iter().zip(asked).zip(verdicts) {
            assert_eq!(result["filter"], check["filter"]);
            assert_eq!(result["verdict"], verdict);
            let is_match = result.get("reason").is_some_and(|reason| reason == "match");
            assert_eq!(is_match, verdict == "maybe");
            assert!(result.get("confirmed").is_none());
        }
    }
}

#[tokio::test]
async fn more_checks_than_look_ups_at_a_time_are_all_settled() {
    let app = App::start().await;
    let items: Vec<_> = (0..20)
        .map(|number| json!({"item": number.to_string()}))
        .collect();
    let add = json!({ "items": items });
    let added = app.post("/v1/filters/revoked-jti/add-batch", add).await;
    assert_eq!(added.status, 200);
    let checks: Vec<_> = (0..20)
        .map(|number| json!({"filter": "revoked-jti", "item": number.to_string()}))
        .collect();
    let body = json!({"checks": checks, "confirm": true});
    let body = app.post("/v1/check", body).await.json();
    for result in body["results"].as_array().unwrap() {
        assert_eq!(
            (&result["verdict"], &result["confirmed"]),
            (&json!("maybe"), &json!(true))
        );
    }
}

#[tokio::test]
async fn a_fault_is_pointed_to_and_refuses_all() {
    let app = App::start().await;
    let good = json!({"filter": "revoked-jti", "item": "a"});
    let after_good = |check: Value| json!({"checks": [good, check]});
    for (body, problem, pointer) in [
        (
            after_good(json!({"filter": "revoked-jti", "item": " "})),
            "invalid-item",
            "/checks/1/item",
        ),
        (
            after_good(json!({"filter": "revoked-jti", "item": "Bearer abc"})),
            "invalid-item",
            "/checks/1/item",
        ),
        (
            after_good(json!({"filter": "nowhere", "item": "a"})),
            "unknown-filter",
            "/checks/1/filter",
        ),
        (
            after_good(json!({"filter": "Not a name", "item": "a"})),
            "invalid-field",
            "/checks/1/filter",
        ),
        (
            after_good(json!({"filter": "revoked-jti", "item": 7})),
            "invalid-field",
            "/checks/1/item",
        ),
        (
            after_good(json!({"filter": "revoked-jti"})),
            "invalid-field",
            "/checks/1/item",
        ),
        (
            after_good(json!({"filter": "revoked-jti", "item": "a", "min_watermark": "no"})),
            "invalid-field",
            "/checks/1/min_watermark",
        ),
        (
            after_good(json!({"filter": "revoked-jti", "item": "a", "issued_at": "now"})),
            "invalid-field",
            "/checks/1/issued_at",
        ),
        (
            after_good(json!({"filter": "revoked-jti", "item": "a", "when": "now"})),
            "invalid-field",
            "/checks/1/when",
        ),
        (
            after_good(json!(["revoked-jti", "a"])),
            "invalid-field",
            "/checks/1",
        ),
        (json!({"checks": []}), "invalid-field", "/checks"),
        (json!({"checks": checks(101)}), "invalid-field", "/checks"),
        (json!({"checks": {}}), "invalid-field", "/checks"),
        (json!({}), "invalid-field", "/checks"),
        (
            json!({"checks": checks(1), "confirm": 1}),
            "invalid-field",
            "/confirm",
        ),
    ] {
        let answer = app.post("/v1/check", body.clone()).await;
        assert_eq!(
            (answer.problem().as_str(), answer.pointer().as_str()),
            (problem, pointer),
            "{body}"
        );
        assert!(answer.json().get("results").is_none());
    }
    assert_eq!(ask(&app, checks(100)).await.status, 200);
}

#[tokio::test]
async fn a_key_must_be_allowed_each_filter_that_is_named() {
    let mut limited = key("limited", &[Scope::Check]);
    limited.filters = FilterName::parse("revoked-jti").map(|name| vec![name]);
    let keys = vec![limited, key("all", &[Scope::Check])];
    let app = App::start_with(keys, HttpLimits::default()).await;
    let mine = json!({"filter": "revoked-jti", "item": "a"});
    let others = json!({"filter": "registered-email", "item": "a@example.com"});
    // Whether a filter is there is told as little as whether its item is in order.
    let nowhere = json!({"filter": "nowhere", "item": ""});
    for (presented, checks, refused_at) in [
        ("limited", json!([mine, mine]), None),
        ("limited", json!([mine, others]), Some("/checks/1/filter")),
        ("limited", json!([others, mine]), Some("/checks/0/filter")),
        (
            "limited",
            json!([mine, mine, nowhere]),
            Some("/checks/2/filter"),
        ),
        ("all", json!([mine, others]), None),
    ] {
        let headers = [
            ("x-api-key", presented),
            ("content-type", "application/json"),
        ];
        let body = Body::from(json!({ "checks": checks }).to_string());
        let answer = app.ask("POST", "/v1/check", &headers, body).await;
        match refused_at {
            None => assert_eq!(answer.status, 200, "{checks}"),
            Some(pointer) => {
                assert_eq!((answer.status, answer.problem()), (403, "forbidden".into()));
                assert_eq!(answer.pointer(), pointer);
            }
        }
    }
}
