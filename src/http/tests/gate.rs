//! The gate, before handlers that misbehave.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Json;
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use http_body_util::BodyExt;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::Value;
use tower::ServiceExt;

use crate::http::access::Need;
use crate::http::gate::Gates;

fn gates() -> Gates {
    Gates::new(Arc::default(), Duration::from_millis(50))
}

/// A handler that trips over an item, as a slice in the middle of a character does.
async fn panicking() -> StatusCode {
    let item = String::from("seeded.person@example.com");
    panic!("{item}")
}

async fn hanging() -> StatusCode {
    std::future::pending().await
}

async fn bare() -> StatusCode {
    StatusCode::CONFLICT
}

async fn picky(_: Json<u8>) -> StatusCode {
    StatusCode::OK
}

fn router() -> Router {
    let gates = gates();
    let gate = |route| gates.of(Need::Nothing, route);
    Router::new()
        .route("/panicking", get(panicking).layer(gate("/panicking")))
        .route("/hanging", get(hanging).layer(gate("/hanging")))
        .route("/bare", get(bare).layer(gate("/bare")))
        .route("/picky", post(picky).layer(gate("/picky")))
}

async fn ask(method: &str, path: &str) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .body(Body::from("seeded.person@example.com"))
        .unwrap();
    let response = router().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert!(response.headers().contains_key("x-request-id"));
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    assert!(!text.contains("seeded"), "{text}");
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn a_handler_that_panics_is_a_problem_and_says_nothing_of_what_it_met() {
    let (status, problem) = ask("GET", "/panicking").await;
    assert_eq!(status, 500);
    assert_eq!(problem["type"], "/problems/internal-error");
}

#[tokio::test]
async fn a_handler_that_hangs_is_given_up() {
    let (status, problem) = ask("GET", "/hanging").await;
    assert_eq!(status, 503);
    assert_eq!(problem["type"], "/problems/request-timeout");
}

#[tokio::test]
async fn a_refusal_that_is_no_problem_becomes_one() {
    let (status, problem) = ask("GET", "/bare").await;
    assert_eq!((status, &problem["status"]), (409, &409.into()));
    let (status, problem) = ask("POST", "/picky").await;
    assert_eq!(status, 415);
    assert_eq!(problem["type"], "/problems/unsupported-media-type");
}

#[test]
fn durations_are_recorded_under_route_status_and_known_methods_alone() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let router = Router::new()
                .fallback(bare)
                .layer(gates().of(Need::Nothing, "/x/{y}"));
            for method in ["GET", "GET", "BREW"] {
                let request = Request::builder().method(method).uri("/x/seeded");
                let request = request.body(Body::empty()).unwrap();
                router.clone().oneshot(request).await.unwrap();
            }
        });
    });
    let text = recorder.handle().render();
    for (method, requests) in [("GET", 2), ("_OTHER", 1)] {
        let line = format!(
            "http_server_request_duration_seconds_count{{http_request_method=\"{method}\",\
             http_route=\"/x/{{y}}\",http_response_status_code=\"409\"}} {requests}"
        );
        assert!(text.contains(&line), "{text}");
    }
    assert!(!text.contains("seeded"));
}
