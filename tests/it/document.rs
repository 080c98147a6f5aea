//! The document that is checked in, printed and served is one and the same.

use serde_json::Value;

use crate::support::{Bloomgate, Launch};

fn checked_in() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/openapi.json");
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Panics with the way to mend it, rather than with two documents.
#[track_caller]
fn assert_is_checked_in(document: &str, whose: &str) {
    let document: Value = serde_json::from_str(document).unwrap();
    assert!(
        document == checked_in(),
        "openapi/openapi.json differs from what {whose}; make it anew with\n\
         cargo run -- openapi > openapi/openapi.json"
    );
}

#[tokio::test]
async fn the_document_that_is_printed_is_the_one_that_is_checked_in() {
    let printed = Launch::new().run(&["openapi"]).await;
    assert_eq!(printed.exit_code, Some(0), "{printed:?}");
    assert_is_checked_in(&printed.stdout, "`bloomgate openapi` prints");
}

#[tokio::test]
async fn the_document_that_is_served_is_the_one_that_is_checked_in() {
    let service = Bloomgate::start("").await;
    let served = service.get("/openapi.json").await;
    assert_eq!(served.status, 200);
    assert_eq!(served.header("content-type"), Some("application/json"));
    assert_is_checked_in(&served.text, "GET /openapi.json serves");
}

#[tokio::test]
async fn every_operation_is_served_at_its_path_and_by_its_method() {
    let service = Bloomgate::start("").await;
    let document = checked_in();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let method = method.to_uppercase().parse().unwrap();
            let path = path.replace("{filter}", "no-such-filter");
            let response = service.request(method, &path).send().await.unwrap();
            let status = response.status().as_u16();
            let body = response.text().await.unwrap();
            assert_ne!(status, 405, "{path}");
            assert!(!body.contains("/problems/not-found"), "{path}: {body}");
            operations += 1;
        }
    }
    assert!(operations >= 13, "{operations}");
}
