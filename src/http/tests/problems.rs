//! What is answered where nothing is, and what every answer carries.

use axum::body::Body;

use super::App;
use crate::http::problem_kind::ProblemKind;

#[tokio::test]
async fn an_unknown_path_is_a_problem() {
    let app = App::start().await;
    for path in [
        "/",
        "/v1",
        "/v2/filters",
        "/v1/filters/revoked-jti/chekc",
        "/docs/nothing.js",
    ] {
        let answer = app.get(path).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (404, "not-found".into()),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_wrong_method_is_a_problem_that_lists_the_right_ones() {
    let app = App::start().await;
    for (method, path, allowed) in [
        ("GET", "/v1/filters/revoked-jti/check", "POST"),
        ("OPTIONS", "/v1/filters/revoked-jti/check", "POST"),
        ("POST", "/v1/filters", "GET,HEAD"),
        ("PATCH", "/v1/filters/revoked-jti", "GET,HEAD,PUT,DELETE"),
        ("BREW", "/livez", "GET,HEAD"),
    ] {
        let answer = app.ask(method, path, &[], Body::empty()).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (405, "method-not-allowed".into()),
            "{method} {path}"
        );
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
    }
}

#[tokio::test]
async fn head_is_get_without_a_body() {
    let app = App::start().await;
    let answer = app.ask("HEAD", "/v1/filters", &[], Body::empty()).await;
    assert_eq!((answer.status, answer.body.len()), (200, 0));
}

#[tokio::test]
async fn the_id_of_a_request_comes_back_in_header_and_problem() {
    let app = App::start().await;
    let given = [("x-request-id", "trace-1.A_b")];
    let answer = app.ask("GET", "/nowhere", &given, Body::empty()).await;
    assert_eq!(answer.header("x-request-id"), Some("trace-1.A_b"));
    assert_eq!(answer.json()["request_id"], "trace-1.A_b");
    let odd = [("x-request-id", "ann@example.com")];
    let answer = app.ask("GET", "/livez", &odd, Body::empty()).await;
    assert!(!answer.header("x-request-id").unwrap().contains('@'));
}

#[tokio::test]
async fn every_problem_has_a_page_at_its_type() {
    let app = App::start().await;
    for kind in ProblemKind::ALL {
        let page = app.get(&kind.type_path()).await;
        assert_eq!(page.status, 200);
        assert!(String::from_utf8_lossy(&page.body).contains(kind.title()));
    }
    assert_eq!(app.get("/problems/nothing").await.problem(), "not-found");
}
