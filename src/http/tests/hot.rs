//! The checks answer alike on the short way and on the router's: the latter is what a name with an
//! escape in it takes.

use axum::body::Body;
use axum::http::HeaderMap;

use super::{App, HttpLimits, key};
use crate::config::Scope;

const JSON: (&str, &str) = ("content-type", "application/json");
const ID: (&str, &str) = ("x-request-id", "the-same");

/// Asks on both ways and gives status, headers and body, which must be equal.
async fn both(app: &App, operation: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let mut answers = Vec::new();
    for filter in ["revoked-jti", "revoked-jt%69"] {
        let path = format!("/v1/filters/{filter}/{operation}");
        let headers = [headers, &[ID]].concat();
        let answer = app
            .ask("POST", &path, &headers, Body::from(body.to_owned()))
            .await;
        let text = String::from_utf8(answer.body).unwrap();
        answers.push((answer.status, sorted(&answer.headers), text));
    }
    assert_eq!(answers[0], answers[1], "{operation} {body}");
    let (status, _, text) = answers.swap_remove(0);
    (status, text)
}

fn sorted(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let pair = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
        (name.to_string(), value.as_bytes().to_vec())
    };
    let mut sorted: Vec<_> = headers.iter().map(pair).collect();
    // The router knows the length of a body before the server does, which sends it in any case.
    sorted.retain(|(name, _)| name != "content-length");
    sorted.sort();
    sorted
}

#[tokio::test]
async fn a_check_is_answered_and_refused_alike_on_both_ways() {
    let limits = HttpLimits {
        max_body_bytes: 1_000,
        ..HttpLimits::default()
    };
    let mut slow = key("slow", &[Scope::Check]);
    slow.requests_per_second = std::num::NonZeroU32::new(1);
    let keys = vec![
        key("check", &[Scope::Check]),
        key("add", &[Scope::Add]),
        slow,
    ];
    let app = App::start_with(keys, limits).await;
    let check = ("x-api-key", "check");
    let long = format!("{{\"item\":\"{}\"}}", "a".repeat(1_000));
    for (headers, body, expected) in [
        (&[check, JSON][..], r#"{"item":"7f0c"}"#, 200),
        (&[check, JSON], r#"{"items":["7f0c","8a1d"]}"#, 200),
        (&[check, JSON], r#"{"item":""}"#, 422),
        (&[check, JSON], r#"{"items":[]}"#, 422),
        (
            &[check, JSON],
            r#"{"item":"7f0c","min_watermark":"?"}"#,
            422,
        ),
        (&[check, JSON], "{", 400),
        (&[check, JSON], &long, 413),
        (&[check, ("content-type", "text/plain")], "7f0c", 415),
        (&[check], r#"{"item":"7f0c"}"#, 415),
        (&[JSON], r#"{"item":"7f0c"}"#, 401),
        (&[("x-api-key", "other"), JSON], r#"{"item":"7f0c"}"#, 401),
        (&[("x-api-key", "add"), JSON], r#"{"item":"7f0c"}"#, 403),
    ] {
        let operation = if body.contains("items") {
            "check-batch"
        } else {
            "check"
        };
        let (status, text) = both(&app, operation, headers, body).await;
        assert_eq!(status, expected, "{operation} {body}: {text}");
    }
}

#[tokio::test]
async fn what_the_short_way_does_not_take_is_answered_by_the_router() {
    let app = App::start().await;
    let path = "/v1/filters/revoked-jti/check";
    let answer = app.get(path).await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    let answer = app
        .json("POST", "/v1/filters/no-such/check", r#"{"item":"a"}"#)
        .await;
    assert_eq!(
        (answer.status, answer.problem()),
        (404, "unknown-filter".into())
    );
    let answer = app
        .json("POST", "/v1/filters/-bad/check", r#"{"item":"a"}"#)
        .await;
    assert_eq!(
        (answer.status, answer.problem()),
        (422, "invalid-field".into())
    );
}
