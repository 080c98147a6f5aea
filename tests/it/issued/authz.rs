//! Forward-auth by the time that a token was issued at.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use reqwest::Method;

use super::{EARLY, SUBJECT, add, on_each_store, remove};
use crate::support::{Answer, Bloomgate};

/// [`EARLY`] in seconds since 1970.
const EARLY_S: i64 = 1_893_456_000;

/// Asks with a token whose claims stand there as they are written.
async fn ask(service: &Bloomgate, path: &str, claims: &str) -> Answer {
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let token = format!(
        "{}.{}.{}",
        part(r#"{"alg":"ES256"}"#),
        part(claims),
        part("signed")
    );
    let request = service.request(Method::GET, path).bearer_auth(token);
    Answer::read(request.send().await.unwrap()).await.unwrap()
}

/// What `/authz/api` says of a token with this `iat`, as it is written; none is left out.
async fn status(service: &Bloomgate, jti: &str, sub: &str, iat: &str) -> u16 {
    let iat = if iat.is_empty() {
        String::new()
    } else {
        format!(",\"iat\":{iat}")
    };
    let claims = format!("{{\"jti\":\"{jti}\",\"sub\":\"{sub}\"{iat}}}");
    ask(service, "/authz/api", &claims).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_from_after_the_time_passes_and_one_from_until_then_does_not() {
    let (services, _database) = on_each_store().await;
    for service in &services {
        add(service, SUBJECT, "ann", Some(EARLY)).await;
        add(service, SUBJECT, "half", Some("2030-01-01T00:00:00.5Z")).await;
        for (sub, iat, expected) in [
            ("ann", format!("{EARLY_S}"), 401),
            ("ann", format!("{}", EARLY_S - 1), 401),
            ("ann", format!("{}", EARLY_S + 1), 200),
            ("ann", "0".to_owned(), 401),
            ("ann", "-1.5".to_owned(), 401),
            // In whole seconds downwards, exactly.
            ("ann", format!("{EARLY_S}.9999999999999999999999"), 401),
            ("ann", "1.893456e9".to_owned(), 401),
            ("ann", "1893456001e0".to_owned(), 200),
            ("half", format!("{EARLY_S}.9"), 401),
            ("half", format!("{}", EARLY_S + 1), 200),
            ("ben", format!("{EARLY_S}"), 200),
            ("ben", String::new(), 200),
            // It cannot be told.
            ("ann", String::new(), 403),
            ("ann", "null".to_owned(), 403),
            ("ann", format!("\"{}\"", EARLY_S + 1), 403),
            ("ann", format!("[{}]", EARLY_S + 1), 403),
            ("ann", "1e12".to_owned(), 403),
            ("ann", "1e400".to_owned(), 403),
            ("ann", "-1e15".to_owned(), 403),
            ("ann", format!("{}", i64::MAX), 403),
        ] {
            assert_eq!(
                status(service, "live", sub, &iat).await,
                expected,
                "{sub} {iat}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_revoked_for_all_tokens_is_whenever_the_token_was_issued() {
    let (services, _database) = on_each_store().await;
    for service in &services {
        add(service, SUBJECT, "ann", Some(EARLY)).await;
        add(service, SUBJECT, "gone", None).await;
        add(service, "revoked-jti", "stolen", None).await;
        let after = (EARLY_S + 1).to_string();
        for iat in ["", "null", &after, "253402200000"] {
            assert_eq!(status(service, "stolen", "ben", iat).await, 401, "{iat}");
            assert_eq!(status(service, "live", "gone", iat).await, 401, "{iat}");
            // Whatever else cannot be told.
            assert_eq!(status(service, "stolen", "ann", iat).await, 401, "{iat}");
        }
        assert_eq!(status(service, "live", "ann", &after).await, 200);
        remove(service, "ann").await;
        assert_eq!(status(service, "live", "ann", "").await, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_times_of_issue_are_no_token_and_where_nothing_is_looked_up_no_time_counts() {
    let (services, _database) = on_each_store().await;
    for service in &services {
        add(service, SUBJECT, "ann", Some(EARLY)).await;
        let after = EARLY_S + 1;
        let twice = format!("{{\"jti\":\"live\",\"sub\":\"ann\",\"iat\":{after},\"iat\":{after}}}");
        let answer = ask(service, "/authz/api", &twice).await;
        answer.expect_problem(401, "invalid-token");
        let once = format!("{{\"jti\":\"live\",\"sub\":\"ann\",\"iat\":{after}}}");
        assert_eq!(ask(service, "/authz/api", &once).await.status, 200);
        let answer = ask(service, "/authz/strict", &once).await;
        answer.expect_problem(403, "undecided");
    }
}
