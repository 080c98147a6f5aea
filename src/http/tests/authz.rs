//! Forward-auth: what gateways are answered.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Request;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{Answer, App, HttpLimits, key};
use crate::config::{ApiKey, Scope};
use crate::service::authz::{ClaimFilter, OnMaybe, Policy};
use crate::service::declaration::FilterName;

fn policy(name: &str, on_maybe: OnMaybe, claims: &[(&str, &str)]) -> Policy {
    let claims = claims.iter().map(|(claim, filter)| ClaimFilter {
        claim: (*claim).to_owned(),
        filter: FilterName::parse(filter).unwrap(),
    });
    Policy {
        name: name.to_owned(),
        claims: claims.collect(),
        on_maybe,
    }
}

fn policies() -> Vec<Policy> {
    let both = [("jti", "revoked-jti"), ("email", "registered-email")];
    vec![
        policy("api", OnMaybe::Confirm, &[("jti", "revoked-jti")]),
        policy("both", OnMaybe::Confirm, &both),
        policy("strict", OnMaybe::Deny, &[("jti", "revoked-jti")]),
        policy("later", OnMaybe::Confirm, &[("jti", "made-later")]),
    ]
}

async fn app(keys: Vec<ApiKey>) -> App {
    App::start_for_gateways(keys, HttpLimits::default(), policies()).await
}

fn token(payload: &Value) -> String {
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let header = part(r#"{"alg":"RS256"}"#);
    format!(
        "{header}.{}.{}",
        part(&payload.to_string()),
        part("signature")
    )
}

fn bearer(jti: &str) -> String {
    format!("Bearer {}", token(&json!({"jti": jti, "sub": "ann"})))
}

/// The status, after a look at what every answer must have.
#[track_caller]
fn status(answer: &Answer) -> u16 {
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert!(answer.header("x-request-id").is_some());
    let challenge = answer.header("www-authenticate");
    match answer.status {
        200 => {
            assert_eq!((challenge, answer.body.len()), (None, 0));
        }
        401 if answer.problem() == "missing-token" => assert_eq!(challenge, Some("Bearer")),
        401 => {
            assert_eq!(answer.problem(), "invalid-token");
            assert_eq!(challenge, Some("Bearer error=\"invalid_token\""));
        }
        403 => {
            assert!(["forbidden", "undecided"].contains(&answer.problem().as_str()));
            assert_eq!(challenge, None);
        }
        other => panic!("{other} is no answer to a gateway"),
    }
    answer.status
}

async fn with_token(app: &App, path: &str, authorization: &str) -> u16 {
    let headers = [("authorization", authorization)];
    status(&app.ask("GET", path, &headers, Body::empty()).await)
}

async fn revoke(app: &App, filter: &str, item: &str) {
    let path = format!("/v1/filters/{filter}/add");
    assert_eq!(app.post(&path, json!({ "item": item })).await.status, 200);
}

#[tokio::test]
async fn a_live_token_passes_and_a_revoked_one_does_not() {
    let app = app(vec![]).await;
    revoke(&app, "revoked-jti", "stolen").await;
    for path in ["/authz/api", "/authz/strict"] {
        assert_eq!(with_token(&app, path, &bearer("live")).await, 200, "{path}");
    }
    assert_eq!(with_token(&app, "/authz/api", &bearer("stolen")).await, 401);
    // A match may be false, and nobody looks.
    assert_eq!(
        with_token(&app, "/authz/strict", &bearer("stolen")).await,
        403
    );
    // What was removed is settled as not there, where it is looked up.
    let unhold = json!({"item": "stolen"});
    let removed = app.post("/v1/filters/revoked-jti/remove", unhold).await;
    assert_eq!(removed.status, 200);
    assert_eq!(with_token(&app, "/authz/api", &bearer("stolen")).await, 200);
}

#[tokio::test]
async fn each_claim_must_be_there_and_none_may_be_revoked() {
    let app = app(vec![]).await;
    revoke(&app, "registered-email", "Ann@example.com").await;
    for (payload, expected) in [
        (json!({"jti": "a", "email": "ben@example.com"}), 200),
        (json!({"jti": "a", "email": "ANN@example.com"}), 401),
        (json!({"jti": "a"}), 401),
        (json!({"email": "ben@example.com"}), 401),
        (json!({"jti": "a", "email": ["ben@example.com"]}), 401),
        (json!({"jti": "a", "email": ""}), 401),
        (json!({"jti": "a", "email": "x".repeat(5_000)}), 401),
        (json!({"jti": "Bearer x", "email": "ben@example.com"}), 401),
        (json!({"jti": "a\u{0}", "email": "ben@example.com"}), 401),
    ] {
        let authorization = format!("Bearer {}", token(&payload));
        let found = with_token(&app, "/authz/both", &authorization).await;
        assert_eq!(found, expected, "{payload}");
    }
}

#[tokio::test]
async fn the_token_alone_decides_whatever_method_path_query_and_body_come_along() {
    let app = app(vec![]).await;
    revoke(&app, "revoked-jti", "stolen").await;
    let live = token(&json!({"jti": "live"}));
    for path in [
        "/authz/api",
        "/authz/api/",
        "/authz/api/orders/7?jti=live",
        "/authz/api//..//strict",
        "/authz/api/%2e%2e/%ff%00",
        "/authz/api?name=strict&confirm=false",
    ] {
        for method in [
            "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW",
        ] {
            for (authorization, expected) in [
                (Some(bearer("live")), 200),
                (Some(bearer("stolen")), 401),
                (None, 401),
            ] {
                let query = format!(
                    "{path}{}access_token={live}",
                    if path.contains('?') { '&' } else { '?' }
                );
                let mut request = Request::builder().method(method).uri(query);
                if let Some(authorization) = authorization {
                    request = request.header("authorization", authorization);
                }
                let body = json!({"jti": "live", "token": live}).to_string();
                let answer = app.send(request.body(Body::from(body)).unwrap()).await;
                assert_eq!(answer.status, expected, "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn an_unknown_name_decides_nothing() {
    let app = app(vec![]).await;
    for path in [
        "/authz",
        "/authz/",
        "/authz/nothing",
        "/authz/API",
        "/authz/%61pi",
        "/authz/nothing/api",
        "/authz//api",
        // Its filter is not there.
        "/authz/later",
    ] {
        assert_eq!(with_token(&app, path, &bearer("live")).await, 403, "{path}");
    }
    let made = json!({"profile": "jti", "capacity": 1_000, "false_positive_rate": 0.01});
    let made = app
        .json("PUT", "/v1/filters/made-later", made.to_string())
        .await;
    assert_eq!(made.status, 201);
    assert_eq!(with_token(&app, "/authz/later", &bearer("live")).await, 200);
}

#[tokio::test]
async fn no_two_headers_let_anybody_in() {
    let app = app(vec![]).await;
    for second in [
        bearer("live"),
        bearer("stolen"),
        "Basic YTpi".into(),
        String::new(),
    ] {
        let first = bearer("live");
        for headers in [[&first, &second], [&second, &first]] {
            let headers = headers.map(|value| ("authorization", value.as_str()));
            let answer = app.ask("GET", "/authz/api", &headers, Body::empty()).await;
            assert_eq!(status(&answer), 401);
        }
    }
}

#[tokio::test]
async fn a_gateway_that_may_not_ask_is_never_told_401() {
    let mut limited = key("limited", &[Scope::Check]);
    limited.filters = FilterName::parse("registered-email").map(|name| vec![name]);
    let mut slow = key("slow", &[Scope::Check]);
    slow.requests_per_second = std::num::NonZeroU32::new(1);
    let keys = vec![
        key("check", &[Scope::Check]),
        key("add", &[Scope::Add]),
        limited,
        slow,
    ];
    let app = app(keys).await;
    let live = bearer("live");
    let ask = async |keys: &[&str]| {
        let mut headers = vec![("authorization", live.as_str())];
        headers.extend(keys.iter().map(|key| ("x-api-key", *key)));
        status(
            &app.ask("GET", "/authz/api/x", &headers, Body::empty())
                .await,
        )
    };
    assert_eq!(ask(&["check"]).await, 200);
    for keys in [
        &[][..],
        &[""],
        &["unknown"],
        &["add"],
        &["limited"],
        &["check", "check"],
        &["unknown", "check"],
    ] {
        assert_eq!(ask(keys).await, 403, "{keys:?}");
    }
    let mut last = 200;
    for _ in 0..5 {
        last = ask(&["slow"]).await;
    }
    assert_eq!(last, 403);
    // A key in Authorization is a token of the end user's like any other.
    for path in ["/authz/api", "/authz/nothing", "/authz"] {
        assert_eq!(with_token(&app, path, "Bearer check").await, 403);
    }
    let headers = [("authorization", "Bearer check"), ("x-api-key", "check")];
    let answer = app.ask("GET", "/authz/api", &headers, Body::empty()).await;
    assert_eq!(status(&answer), 401);
}

#[tokio::test]
async fn what_takes_too_long_decides_nothing() {
    let limits = HttpLimits {
        request_timeout: Duration::from_millis(50),
        ..HttpLimits::default()
    };
    let app = App::start_for_gateways(vec![], limits, policies()).await;
    let endless =
        Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
    let headers = [("authorization", bearer("live"))];
    let headers = headers
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let answer = app.ask("POST", "/authz/api", &headers, endless).await;
    assert_eq!(status(&answer), 403);
}

#[tokio::test]
async fn what_is_no_token_is_challenged() {
    let app = app(vec![]).await;
    let bare = app.get("/authz/api/orders").await;
    assert_eq!(
        (status(&bare), bare.problem()),
        (401, "missing-token".into())
    );
    for odd in [
        "Bearer x",
        "Bearer a.b.c",
        "Bearer a.b.c.d.e",
        "Bearer null",
    ] {
        let headers = [("authorization", odd)];
        let answer = app.ask("GET", "/authz/api", &headers, Body::empty()).await;
        assert_eq!(
            (status(&answer), answer.problem()),
            (401, "invalid-token".into())
        );
    }
}
