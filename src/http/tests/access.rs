//! Keys, at the routes: what is open, what is not, and who sees what.

use axum::body::Body;
use serde_json::json;

use super::{App, HttpLimits, key};
use crate::config::Scope;
use crate::service::declaration::FilterName;

const GUARDED: [(&str, &str, &str); 15] = [
    ("POST", "/v1/filters/revoked-jti/check", "check"),
    ("POST", "/v1/filters/revoked-jti/check-batch", "check"),
    ("POST", "/v1/check", "check"),
    ("POST", "/v1/filters/revoked-jti/add", "add"),
    ("POST", "/v1/filters/revoked-jti/add-batch", "add"),
    ("POST", "/v1/filters/revoked-jti/bulk-load", "add"),
    ("GET", "/v1/filters", "read"),
    ("GET", "/v1/filters/revoked-jti", "read"),
    ("PUT", "/v1/filters/revoked-jti", "admin"),
    ("DELETE", "/v1/filters/revoked-jti", "admin"),
    ("GET", "/v1/plan", "read"),
    ("GET", "/metrics", "read"),
    ("GET", "/openapi.json", "read"),
    ("GET", "/docs", "read"),
    ("GET", "/docs/index.html", "read"),
];

async fn app() -> App {
    let mut limited = key("limited", &[Scope::Read, Scope::Check]);
    limited.filters = FilterName::parse("revoked-jti").map(|name| vec![name]);
    let keys = vec![
        key("check", &[Scope::Check]),
        key("add", &[Scope::Add]),
        key("read", &[Scope::Read]),
        key("admin", &[Scope::Admin]),
        limited,
    ];
    App::start_with(keys, HttpLimits::default()).await
}

#[tokio::test]
async fn only_the_probes_are_open() {
    let app = app().await;
    for path in ["/livez", "/readyz"] {
        assert_eq!(app.get(path).await.status, 200, "{path}");
    }
    let elsewhere = [
        ("GET", "/nowhere", ""),
        ("GET", "/problems/forbidden", ""),
        ("PATCH", "/v1/filters", ""),
    ];
    for (method, path, _) in GUARDED.into_iter().chain(elsewhere) {
        let answer = app.ask(method, path, &[], Body::empty()).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (401, "unauthenticated".into()),
            "{method} {path}"
        );
        let challenge = answer.header("www-authenticate").unwrap();
        assert_eq!(challenge, "Bearer realm=\"bloomgate\"");
    }
}

#[tokio::test]
async fn each_operation_opens_to_its_scope_and_to_admin_alone() {
    let app = app().await;
    for (method, path, scope) in GUARDED {
        for presented in ["check", "add", "read", "admin"] {
            let headers = [("x-api-key", presented)];
            let answer = app.ask(method, path, &headers, Body::empty()).await;
            let refused = answer.status == 403;
            let allowed = presented == scope || presented == "admin";
            assert_eq!(refused, !allowed, "{method} {path} with {presented}");
            assert_ne!(answer.status, 401);
        }
    }
}

#[tokio::test]
async fn with_any_key_an_unknown_path_is_not_found() {
    let app = app().await;
    let headers = [("authorization", "Bearer check")];
    let answer = app.ask("GET", "/nowhere", &headers, Body::empty()).await;
    assert_eq!(answer.problem(), "not-found");
    let answer = app
        .ask("PATCH", "/v1/filters", &headers, Body::empty())
        .await;
    assert_eq!(answer.problem(), "method-not-allowed");
}

#[tokio::test]
async fn without_a_key_a_probe_says_405_to_another_method_and_nothing_else_says_so() {
    let app = app().await;
    for (path, status, problem) in [
        ("/livez", 405, "method-not-allowed"),
        ("/readyz", 405, "method-not-allowed"),
        ("/v1/filters", 401, "unauthenticated"),
        ("/nowhere", 401, "unauthenticated"),
    ] {
        let answer = app.ask("PATCH", path, &[], Body::empty()).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (status, problem.into()),
            "{path}"
        );
    }
    let answer = app.ask("PATCH", "/livez", &[], Body::empty()).await;
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
}

#[tokio::test]
async fn a_key_of_some_filters_sees_and_reaches_those_alone() {
    let app = app().await;
    let headers = [
        ("x-api-key", "limited"),
        ("content-type", "application/json"),
    ];
    let listed = app.ask("GET", "/v1/filters", &headers, Body::empty()).await;
    let filters = listed.json()["filters"].clone();
    assert_eq!(filters.as_array().unwrap().len(), 1);
    assert_eq!(filters[0]["filter"], "revoked-jti");
    let body = json!({"item": "x@example.com"}).to_string();
    for (path, status) in [
        ("/v1/filters/revoked-jti/check", 200),
        ("/v1/filters/registered-email/check", 403),
        ("/v1/filters/registered%2Demail/check", 403),
        ("/v1/filters/nowhere/check", 403),
    ] {
        let answer = app.ask("POST", path, &headers, body.clone()).await;
        assert_eq!(answer.status, status, "{path}");
    }
}
