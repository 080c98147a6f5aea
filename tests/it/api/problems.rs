//! How each operation refuses: status, type, and the field at fault. What is refused changes
//! nothing.

use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::{fields, pointer, send};
use crate::support::{Answer, Bloomgate};

const JSON: &str = "application/json";

/// The operations on items, and a body that each takes.
const ITEM_OPERATIONS: [(&str, &str); 4] = [
    ("check", r#"{"item":"a"}"#),
    ("check-batch", r#"{"items":["a"]}"#),
    ("add", r#"{"item":"a"}"#),
    ("add-batch", r#"{"items":[{"item":"a"}]}"#),
];

async fn live() -> Bloomgate {
    let service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    service
}

async fn post(service: &Bloomgate, operation: &str, body: impl Into<reqwest::Body>) -> Answer {
    let path = format!("/v1/filters/revoked-jti/{operation}");
    service.post_text(&path, JSON, body).await
}

async fn assert_nothing_was_added(service: &Bloomgate) {
    let described = service.describe("revoked-jti").await;
    assert_eq!(described["fill_ratio"], 0.0, "{described}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_json_is_400() {
    let service = live().await;
    for malformed in [
        &b"}"[..],
        b"",
        b"{",
        b"nope",
        br#"{"item":"a"}}"#,
        br#"{"item":"a"} {"item":"b"}"#,
        br#"{"item":"a",}"#,
        br#"{"items":["a"}"#,
        b"{\"item\":\"\xC1R\"}",
        b"\xEF\xBB\xBF{\"item\":\"a\"}",
    ] {
        for (operation, _) in ITEM_OPERATIONS {
            let answer = post(&service, operation, malformed).await;
            let problem = answer.expect_problem(400, "malformed-body");
            assert_eq!(
                fields(&problem),
                ["detail", "request_id", "status", "title", "type"]
            );
        }
    }
    assert_nothing_was_added(&service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_not_as_it_must_be_is_422_and_pointed_to() {
    let service = live().await;
    for (operation, body, at) in [
        ("check", "{}", "/item"),
        ("check", "null", ""),
        ("check", "[]", ""),
        ("check", r#"["a"]"#, ""),
        ("check", r#""a""#, ""),
        ("check", "7", ""),
        ("check", r#"{"item":null}"#, "/item"),
        ("check", r#"{"item":7}"#, "/item"),
        ("check", r#"{"item":true}"#, "/item"),
        ("check", r#"{"item":["a"]}"#, "/item"),
        ("check", r#"{"item":{}}"#, "/item"),
        ("check", r#"{"item":"a","Item":"a"}"#, ""),
        ("check", r#"{"item":"a","other":1}"#, "/other"),
        ("check", r#"{"item":"a","item":"a"}"#, "/item"),
        (
            "check",
            r#"{"item":"a","expires_at":"2199-01-01T00:00:00Z"}"#,
            "/expires_at",
        ),
        (
            "check",
            r#"{"item":"a","min_watermark":null}"#,
            "/min_watermark",
        ),
        ("check-batch", "{}", "/items"),
        ("check-batch", r#"{"item":"a"}"#, "/item"),
        ("check-batch", r#"{"items":"a"}"#, "/items"),
        ("check-batch", r#"{"items":{}}"#, "/items"),
        ("check-batch", r#"{"items":null}"#, "/items"),
        ("check-batch", r#"{"items":[]}"#, "/items"),
        ("check-batch", r#"{"items":["a",7]}"#, "/items/1"),
        (
            "check-batch",
            r#"{"items":["a","b",{"item":"c"}]}"#,
            "/items/2",
        ),
        ("check-batch", r#"{"items":["a"],"items":["a"]}"#, "/items"),
        ("add", "{}", "/item"),
        ("add", r#"{"item":["a"]}"#, "/item"),
        ("add", r#"{"item":"a","item":"b"}"#, "/item"),
        ("add", r#"{"item":"a","ttl":60}"#, "/ttl"),
        ("add", r#"{"item":"a","expires_at":null}"#, "/expires_at"),
        (
            "add",
            r#"{"item":"a","expires_at":1893456000}"#,
            "/expires_at",
        ),
        (
            "add",
            r#"{"item":"a","expires_at":"tomorrow"}"#,
            "/expires_at",
        ),
        (
            "add",
            r#"{"item":"a","expires_at":"2030-01-01"}"#,
            "/expires_at",
        ),
        (
            "add",
            r#"{"item":"a","expires_at":"2030-01-01T00:00:00"}"#,
            "/expires_at",
        ),
        ("add-batch", "{}", "/items"),
        ("add-batch", r#"{"items":[]}"#, "/items"),
        ("add-batch", r#"{"items":["a"]}"#, "/items/0"),
        ("add-batch", r#"{"items":[["a"]]}"#, "/items/0"),
        (
            "add-batch",
            r#"{"items":[{"item":"a"},{}]}"#,
            "/items/1/item",
        ),
        (
            "add-batch",
            r#"{"items":[{"item":"a"},{"item":7}]}"#,
            "/items/1/item",
        ),
        (
            "add-batch",
            r#"{"items":[{"item":"a","ttl":1}]}"#,
            "/items/0/ttl",
        ),
        (
            "add-batch",
            r#"{"items":[{"item":"a","expires_at":"x"}]}"#,
            "/items/0/expires_at",
        ),
    ] {
        let answer = post(&service, operation, body).await;
        let problem = answer.expect_problem(422, "invalid-field");
        assert_eq!(pointer(&problem), at, "{operation} {body}: {problem}");
    }
    assert_nothing_was_added(&service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_out_of_range_is_422_and_pointed_to() {
    let service = live().await;
    for (query, at) in [
        ("", "/capacity"),
        ("?false_positive_rate=0.01", "/capacity"),
        ("?capacity=1000", "/false_positive_rate"),
        ("?capacity=0&false_positive_rate=0.01", "/capacity"),
        ("?capacity=-5&false_positive_rate=0.01", "/capacity"),
        ("?capacity=1e3&false_positive_rate=0.01", "/capacity"),
        (
            "?capacity=1000&false_positive_rate=0",
            "/false_positive_rate",
        ),
        (
            "?capacity=1000&false_positive_rate=1",
            "/false_positive_rate",
        ),
        (
            "?capacity=1000&false_positive_rate=NaN",
            "/false_positive_rate",
        ),
        (
            "?capacity=1000&false_positive_rate=inf",
            "/false_positive_rate",
        ),
        (
            "?capacity=1000&capacity=1000&false_positive_rate=0.01",
            "/capacity",
        ),
    ] {
        let answer = service.get(&format!("/v1/plan{query}")).await;
        let problem = answer.expect_problem(422, "invalid-field");
        assert_eq!(pointer(&problem), at, "{query}: {problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_media_type_than_the_operations_is_415() {
    let service = live().await;
    let ask = async |path: &str, media_type: Option<&str>, body: &'static str| {
        let mut request = service.request(Method::POST, path).body(body);
        if let Some(media_type) = media_type {
            request = request.header(CONTENT_TYPE, media_type);
        }
        send(request).await
    };
    for (operation, body) in ITEM_OPERATIONS {
        let path = format!("/v1/filters/revoked-jti/{operation}");
        for media_type in [
            None,
            Some(""),
            Some("text/plain"),
            Some("text/json"),
            Some("application/x-www-form-urlencoded"),
            Some("application/x-ndjson"),
            Some("application/json; charset=iso-8859-1"),
        ] {
            let answer = ask(&path, media_type, body).await;
            answer.expect_problem(415, "unsupported-media-type");
        }
    }
    let path = "/v1/filters/revoked-jti/bulk-load";
    for media_type in [None, Some("application/json"), Some("text/csv")] {
        let answer = ask(path, media_type, "\"a\"\n").await;
        answer.expect_problem(415, "unsupported-media-type");
    }
    let compressed = service
        .request(Method::POST, path)
        .header(CONTENT_TYPE, "text/plain")
        .header("content-encoding", "gzip");
    let answer = send(compressed.body("a")).await;
    answer.expect_problem(415, "unsupported-media-type");
    assert_nothing_was_added(&service).await;

    for media_type in [
        "application/json; charset=utf-8",
        "Application/JSON;charset=\"UTF-8\"",
    ] {
        let answer = ask(
            "/v1/filters/revoked-jti/check",
            Some(media_type),
            r#"{"item":"a"}"#,
        )
        .await;
        answer.expect_status(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_filter_is_404_and_a_name_out_of_form_is_422() {
    let service = live().await;
    service.wait_live("registered-email").await;
    let too_long = "a".repeat(65);
    let of_filter = async |name: &str, status, kind: &str| -> Vec<Value> {
        let mut problems = Vec::new();
        for (operation, body) in ITEM_OPERATIONS {
            let path = format!("/v1/filters/{name}/{operation}");
            let answer = service.post_text(&path, JSON, body).await;
            problems.push(answer.expect_problem(status, kind));
        }
        let load = format!("/v1/filters/{name}/bulk-load");
        let answer = service.post_text(&load, "text/plain", "a\n").await;
        problems.push(answer.expect_problem(status, kind));
        let path = format!("/v1/filters/{name}");
        problems.push(service.get(&path).await.expect_problem(status, kind));
        problems.push(service.delete(&path).await.expect_problem(status, kind));
        problems
    };
    let longest = "a".repeat(64);
    for unknown in ["nowhere", "0", "a-b_c", &longest] {
        of_filter(unknown, 404, "unknown-filter").await;
    }
    for malformed in [
        "Revoked", "-a", "_a", "a.b", "a%20b", "%00", "%FF", &too_long, "%C3%A9",
    ] {
        for problem in of_filter(malformed, 422, "invalid-field").await {
            assert_eq!(pointer(&problem), "/filter", "{malformed}: {problem}");
        }
        let body = json!({"profile": "jti", "capacity": 10, "false_positive_rate": 0.1});
        let answer = service
            .put(&format!("/v1/filters/{malformed}"), &body)
            .await;
        let problem = answer.expect_problem(422, "invalid-field");
        assert_eq!(pointer(&problem), "/filter");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_path_is_404_and_another_method_is_405_with_allow() {
    let service = live().await;
    for path in [
        "/",
        "/nowhere",
        "/v1",
        "/v1/filters/",
        "/v2/filters",
        "/v1/filters/a/b",
    ] {
        let answer = service.get(path).await;
        answer.expect_problem(404, "not-found");
    }
    for (method, path, allowed) in [
        (Method::GET, "/v1/filters/revoked-jti/check", "POST"),
        (Method::PUT, "/v1/filters/revoked-jti/check-batch", "POST"),
        (Method::DELETE, "/v1/filters/revoked-jti/add", "POST"),
        (Method::GET, "/v1/filters/revoked-jti/add-batch", "POST"),
        (Method::GET, "/v1/filters/revoked-jti/bulk-load", "POST"),
        (Method::POST, "/v1/filters", "GET,HEAD"),
        (
            Method::POST,
            "/v1/filters/revoked-jti",
            "DELETE,GET,HEAD,PUT",
        ),
        (
            Method::PATCH,
            "/v1/filters/revoked-jti",
            "DELETE,GET,HEAD,PUT",
        ),
        (Method::POST, "/v1/plan", "GET,HEAD"),
        (Method::POST, "/livez", "GET,HEAD"),
        (Method::DELETE, "/readyz", "GET,HEAD"),
        (Method::POST, "/metrics", "GET,HEAD"),
        (Method::POST, "/openapi.json", "GET,HEAD"),
    ] {
        let answer = send(service.request(method.clone(), path)).await;
        answer.expect_problem(405, "method-not-allowed");
        let mut allow: Vec<_> = answer.header("allow").unwrap().split(',').collect();
        allow.sort_unstable();
        assert_eq!(allow.join(","), allowed, "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_short_lived_and_names_its_request() {
    let service = live().await;
    let request = service
        .request(Method::POST, "/v1/filters/revoked-jti/check")
        .header("x-request-id", "trace-7")
        .json(&json!({}));
    let answer = send(request).await;
    let problem = answer.expect_problem(422, "invalid-field");
    assert_eq!(
        fields(&problem),
        ["detail", "errors", "request_id", "status", "title", "type"]
    );
    assert_eq!(problem["request_id"], "trace-7");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}
