//! Bad input: a clear problem each, and nothing changed.

use serde_json::{Value, json};

use super::App;

const CHECK: &str = "/v1/filters/revoked-jti/check";
const REMOVE: &str = "/v1/filters/revoked-jti/remove";
const ADD: &str = "/v1/filters/revoked-jti/add";

#[tokio::test]
async fn what_is_no_json_is_malformed() {
    let app = App::start().await;
    for body in [
        "",
        "}",
        "{",
        "item",
        "{\"item\":\"a\"} x",
        "{\"item\":\"\\ud800\"}",
        "{\"x\":}",
    ] {
        for path in [CHECK, ADD] {
            let answer = app.json("POST", path, body).await;
            assert_eq!(
                (answer.status, answer.problem()),
                (400, "malformed-body".into()),
                "{body}"
            );
        }
    }
    let not_utf8 = app
        .json("POST", CHECK, b"{\"item\":\"\xC1R\"}".to_vec())
        .await;
    assert_eq!(not_utf8.problem(), "malformed-body");
    let nested = "[".repeat(100_000);
    let too_deep = app
        .json("POST", CHECK, format!("{{\"item\":{nested}"))
        .await;
    assert_eq!(too_deep.problem(), "malformed-body");
}

#[tokio::test]
async fn a_field_that_is_not_as_it_must_be_is_pointed_to() {
    let app = App::start().await;
    let batch = "/v1/filters/revoked-jti/check-batch";
    let add_batch = "/v1/filters/revoked-jti/add-batch";
    for (path, body, pointer) in [
        (CHECK, "{}", "/item"),
        (CHECK, "[]", ""),
        (CHECK, r#"["a"]"#, ""),
        (CHECK, "null", ""),
        (CHECK, r#""a""#, ""),
        (CHECK, r#"{"item":null}"#, "/item"),
        (CHECK, r#"{"item":5}"#, "/item"),
        (CHECK, r#"{"item":["a"]}"#, "/item"),
        (CHECK, r#"{"item":{"a":"b"}}"#, "/item"),
        (CHECK, r#"{"item":"a","itme":"b"}"#, "/itme"),
        (CHECK, r#"{"item":"a","confirm":"yes"}"#, "/confirm"),
        (CHECK, r#"{"item":"a","confirm":null}"#, "/confirm"),
        (REMOVE, "{}", "/item"),
        (REMOVE, r#"{"item":"a","confirm":true}"#, "/confirm"),
        (CHECK, r#"{"item":"a","item":"b"}"#, "/item"),
        (
            CHECK,
            r#"{"item":"a","min_watermark":null}"#,
            "/min_watermark",
        ),
        (ADD, r#"{"item":"a","wait":"everywhere"}"#, "/wait"),
        (ADD, r#"{"item":"a","wait":["all"]}"#, "/wait"),
        (ADD, r#"{"item":"a","expires_at":null}"#, "/expires_at"),
        (
            ADD,
            r#"{"item":"a","expires_at":1893456000}"#,
            "/expires_at",
        ),
        (
            ADD,
            r#"{"item":"a","expires_at":"tomorrow"}"#,
            "/expires_at",
        ),
        (
            ADD,
            r#"{"item":"a","expires_at":"2030-01-01T00:00:00"}"#,
            "/expires_at",
        ),
        (
            ADD,
            r#"{"item":"a","revoke_issued_until":"2030-01-01"}"#,
            "/revoke_issued_until",
        ),
        (
            ADD,
            r#"{"item":"a","revoke_issued_until":1893456000}"#,
            "/revoke_issued_until",
        ),
        (
            ADD,
            r#"{"item":"a","revoke_issued_until":null}"#,
            "/revoke_issued_until",
        ),
        (
            ADD,
            r#"{"item":"a","revoke_issued_until":"9999-12-31T23:59:59Z"}"#,
            "/revoke_issued_until",
        ),
        (
            ADD,
            r#"{"item":"a","issued_at":"2030-01-01T00:00:00Z"}"#,
            "/issued_at",
        ),
        (
            CHECK,
            r#"{"item":"a","issued_at":1893456000}"#,
            "/issued_at",
        ),
        (CHECK, r#"{"item":"a","issued_at":null}"#, "/issued_at"),
        (
            CHECK,
            r#"{"item":"a","issued_at":"2030-01-01T00:00:00"}"#,
            "/issued_at",
        ),
        (
            batch,
            r#"{"items":["a"],"issued_at":"2030-01-01T00:00:00Z"}"#,
            "/issued_at",
        ),
        (
            add_batch,
            r#"{"items":[{"item":"a","revoke_issued_until":"x"}]}"#,
            "/items/0/revoke_issued_until",
        ),
        (batch, "{}", "/items"),
        (batch, r#"{"items":[]}"#, "/items"),
        (batch, r#"{"items":"a"}"#, "/items"),
        (batch, r#"{"items":["a",5]}"#, "/items/1"),
        (batch, r#"{"items":["a",null]}"#, "/items/1"),
        (add_batch, r#"{"items":["a"]}"#, "/items/0"),
        (add_batch, r#"{"items":[["a"]]}"#, "/items/0"),
        (add_batch, r#"{"items":[{"item":"a"},{}]}"#, "/items/1/item"),
        (add_batch, r#"{"items":[{"item":"a","x":1}]}"#, "/items/0/x"),
        (
            add_batch,
            r#"{"items":[{"item":"a","expires_at":"x"}]}"#,
            "/items/0/expires_at",
        ),
    ] {
        let answer = app.json("POST", path, body).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (422, "invalid-field".into()),
            "{body}"
        );
        assert_eq!(answer.pointer(), pointer, "{body}");
    }
    assert_eq!(app.verdict("revoked-jti", "a").await, "definitely-not");
}

#[tokio::test]
async fn an_item_that_the_profile_refuses_is_pointed_to_and_all_of_its_batch_is_refused() {
    let app = App::start().await;
    let token = "eyJhbGciOiJIUzI1NiJ9.eyJqdGkiOiIxIn0.c2lnbmF0dXJl";
    let long = "a".repeat(1_025);
    for item in ["", "  ", "\t", "a\0b", token, "Bearer abc", &long] {
        for path in [CHECK, ADD] {
            let answer = app.post(path, json!({ "item": item })).await;
            assert_eq!(
                (answer.status, answer.problem()),
                (422, "invalid-item".into())
            );
            assert_eq!(answer.pointer(), "/item");
        }
        let path = "/v1/filters/revoked-jti/check-batch";
        let answer = app.post(path, json!({"items": ["a", item]})).await;
        assert_eq!(
            (answer.problem(), answer.pointer()),
            ("invalid-item".into(), "/items/1".into())
        );
        let path = "/v1/filters/revoked-jti/add-batch";
        let items = json!({"items": [{"item": "a"}, {"item": item}]});
        let answer = app.post(path, items).await;
        assert_eq!(answer.problem(), "invalid-item");
        assert_eq!(answer.pointer(), "/items/1/item");
    }
    assert_eq!(app.verdict("revoked-jti", "a").await, "definitely-not");
}

#[tokio::test]
async fn no_answer_repeats_what_was_sent() {
    let app = App::start().await;
    let seed = "seeded.person@example.com";
    for body in [
        json!({"item": [seed]}),
        json!({"item": {"a": seed}}),
        json!({ seed: 1 }),
        json!({"item": "a", seed: 1}),
        json!({"item": "a", "min_watermark": seed}),
        json!({"item": seed.repeat(100)}),
        json!({"item": format!("{seed}\0")}),
        json!({"item": format!("x, expected {seed}"), "min_watermark": format!("y, expected {seed}")}),
        json!(seed),
        json!(format!("x, expected {seed}")),
        json!([seed]),
    ] {
        for path in [CHECK, ADD] {
            let answer = app.post(path, body.clone()).await;
            assert!(answer.status >= 400 || body["item"].is_string(), "{body}");
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!text.contains("seeded"), "{text}");
        }
    }
    let broken = app
        .json("POST", CHECK, format!("{{\"item\":\"{seed}\""))
        .await;
    assert!(!String::from_utf8_lossy(&broken.body).contains("seeded"));
    let query = app.get(&format!("/v1/plan?capacity={seed}")).await;
    assert!(!String::from_utf8_lossy(&query.body).contains("seeded"));
}

#[tokio::test]
async fn a_body_of_another_media_type_is_not_guessed_at() {
    let app = App::start().await;
    let body = json!({"item": "a"}).to_string();
    for (headers, status) in [
        (vec![], 415),
        (vec![("content-type", "text/plain")], 415),
        (vec![("content-type", "application/jsonx")], 415),
        (
            vec![("content-type", "application/json; charset=latin1")],
            415,
        ),
        (
            vec![
                ("content-type", "application/json"),
                ("content-encoding", "gzip"),
            ],
            415,
        ),
        (vec![("content-type", "application/json")], 200),
        (
            vec![("content-type", "Application/JSON; charset=UTF-8")],
            200,
        ),
        (
            vec![("content-type", "application/json;charset=\"utf-8\"")],
            200,
        ),
    ] {
        let answer = app.ask("POST", CHECK, &headers, body.clone()).await;
        assert_eq!(answer.status, status, "{headers:?}");
        if status == 415 {
            assert_eq!(answer.problem(), "unsupported-media-type");
        }
    }
}

#[tokio::test]
async fn names_and_filters_that_are_not_are_told_apart() {
    let app = App::start().await;
    let body = json!({"item": "a"});
    for (name, status, kind) in [
        ("nowhere", 404, "unknown-filter"),
        ("Upper", 422, "invalid-field"),
        ("-a", 422, "invalid-field"),
        ("a%2Fb", 422, "invalid-field"),
        ("a%ff", 422, "invalid-field"),
    ] {
        let answer = app
            .post(&format!("/v1/filters/{name}/check"), body.clone())
            .await;
        assert_eq!(
            (answer.status, answer.problem().as_str()),
            (status, kind),
            "{name}"
        );
        if status == 422 {
            assert_eq!(answer.pointer(), "/filter");
        }
    }
}

#[tokio::test]
async fn a_declaration_out_of_range_is_pointed_to_and_makes_nothing() {
    let app = App::start().await;
    let path = "/v1/filters/new";
    let fine = json!({"profile": "jti", "capacity": 1000, "false_positive_rate": 0.01});
    let with = |field: &str, value: Value| {
        let mut body = fine.clone();
        body[field] = value;
        body.to_string()
    };
    for (body, pointer) in [
        (with("capacity", json!(0)), "/capacity"),
        (with("capacity", json!(-1)), "/capacity"),
        (with("capacity", json!(1.5)), "/capacity"),
        (with("capacity", json!("1000")), "/capacity"),
        (with("capacity", json!(u64::MAX)), "/capacity"),
        (
            with("false_positive_rate", json!(0)),
            "/false_positive_rate",
        ),
        (
            with("false_positive_rate", json!(1)),
            "/false_positive_rate",
        ),
        (
            with("false_positive_rate", json!("1%")),
            "/false_positive_rate",
        ),
        (with("profile", json!("uuid")), "/profile"),
        (with("profile", json!(["jti"])), "/profile"),
        (with("profile", json!({"jti": null})), "/profile"),
        (
            with("profile_options", json!({"plus_tags": true})),
            "/profile_options",
        ),
        (
            with("profile_options", json!({"plus": true})),
            "/profile_options/plus",
        ),
        (
            with("profile_options", json!({"plus_tags": 1})),
            "/profile_options/plus_tags",
        ),
        (with("profile_options", json!([])), "/profile_options"),
        (json!({"profile": "jti"}).to_string(), "/capacity"),
    ] {
        let answer = app.json("PUT", path, body.clone()).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (422, "invalid-field".into()),
            "{body}"
        );
        assert_eq!(answer.pointer(), pointer, "{body}");
    }
    assert_eq!(app.get(path).await.problem(), "unknown-filter");
}

#[tokio::test]
async fn a_query_that_is_not_as_it_must_be_is_pointed_to() {
    let app = App::start().await;
    for (query, pointer) in [
        ("", "/capacity"),
        ("?capacity=10", "/false_positive_rate"),
        ("?capacity=x&false_positive_rate=0.1", "/capacity"),
        ("?capacity=0&false_positive_rate=0.1", "/capacity"),
        (
            "?capacity=10&false_positive_rate=NaN",
            "/false_positive_rate",
        ),
        ("?capacity=10&false_positive_rate=2", "/false_positive_rate"),
        (
            "?capacity=10&capacity=10&false_positive_rate=0.1",
            "/capacity",
        ),
        ("?capacity=10&false_positive_rate=0.1&x=1", ""),
    ] {
        let answer = app.get(&format!("/v1/plan{query}")).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (422, "invalid-field".into()),
            "{query}"
        );
        assert_eq!(answer.pointer(), pointer, "{query}");
    }
}
