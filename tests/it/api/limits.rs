//! What a request is held to, and that its caller hears of it.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::pointer;
use crate::support::Bloomgate;

/// Writes a whole POST before it reads anything, as the plainest of clients does. Gives the status
/// and the body of the answer.
async fn write_whole_then_read(service: &Bloomgate, path: &str, body: &[u8]) -> (u16, Value) {
    let host = service.base_url().strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(host).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    connection.write_all(body).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(head.contains("application/problem+json"), "{head}");
    (status, serde_json::from_str(body).unwrap())
}

fn of_length(body_bytes: usize) -> Vec<u8> {
    let mut body = br#"{"item":""#.to_vec();
    body.resize(body_bytes - 2, b'a');
    body.extend(b"\"}");
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_is_refused_by_a_problem_that_a_plain_client_receives() {
    const LIMIT_BYTES: usize = 8 << 20;
    let service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    let filter = "/v1/filters/revoked-jti";
    for operation in ["check", "check-batch", "add", "add-batch"] {
        for body_bytes in [LIMIT_BYTES + 1, 50_000_000] {
            let path = format!("{filter}/{operation}");
            let (status, problem) =
                write_whole_then_read(&service, &path, &of_length(body_bytes)).await;
            assert_eq!(status, 413);
            assert_eq!(problem["type"], "/problems/body-too-large");
            assert_eq!(problem["limit_bytes"], LIMIT_BYTES);
        }
        let is_batch = operation.ends_with("batch");
        let path = format!("{filter}/{operation}");
        for body_bytes in [1_900_000, 2_100_000, LIMIT_BYTES] {
            let (status, problem) =
                write_whole_then_read(&service, &path, &of_length(body_bytes)).await;
            let kind = if is_batch {
                "invalid-field"
            } else {
                "invalid-item"
            };
            assert_eq!(status, 422, "{problem}");
            assert_eq!(problem["type"], format!("/problems/{kind}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_before_the_body_is_read_reaches_a_client_that_writes_on() {
    let service = Bloomgate::start("").await;
    let body = of_length(50_000_000);
    for (path, expected) in [
        ("/nowhere", (404, "/problems/not-found")),
        ("/livez", (405, "/problems/method-not-allowed")),
        (
            "/v1/filters/revoked-jti/bulk-load",
            (415, "/problems/unsupported-media-type"),
        ),
    ] {
        let (status, problem) = write_whole_then_read(&service, path, &body).await;
        assert_eq!((status, problem["type"].as_str().unwrap()), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limits_of_the_configuration_are_the_ones_that_hold() {
    let config = "[limits]\nmax_body = \"64KiB\"\nmax_batch = 3";
    let service = Bloomgate::start(config).await;
    service.wait_live("revoked-jti").await;
    let filter = "/v1/filters/revoked-jti";
    let body = of_length((64 << 10) + 1);
    let (status, problem) = write_whole_then_read(&service, &format!("{filter}/add"), &body).await;
    assert_eq!((status, &problem["limit_bytes"]), (413, &json!(65_536)));

    for operation in ["check-batch", "add-batch"] {
        let item = match operation {
            "check-batch" => json!("a"),
            _ => json!({"item": "a"}),
        };
        let path = format!("{filter}/{operation}");
        let three = json!({"items": vec![item.clone(); 3]});
        service.post(&path, &three).await.expect_status(200);
        let four = json!({"items": vec![item; 4]});
        let problem = service
            .post(&path, &four)
            .await
            .expect_problem(422, "invalid-field");
        assert_eq!(pointer(&problem), "/items");
        assert!(
            problem["detail"].as_str().unwrap().contains("1 to 3"),
            "{problem}"
        );
    }
    let lines: String = (0..50_000).map(|n| format!("item-{n}\n")).collect();
    let answer = service
        .post_text(&format!("{filter}/bulk-load"), "text/plain", lines)
        .await;
    assert_eq!(answer.expect_status(200)["accepted"], 50_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_holds_10_000_items_and_no_more() {
    let service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    let items = |n: usize| {
        (0..n)
            .map(|n| json!({"item": n.to_string()}))
            .collect::<Vec<_>>()
    };
    let path = "/v1/filters/revoked-jti/add-batch";
    let answer = service.post(path, &json!({"items": items(10_000)})).await;
    assert_eq!(answer.expect_status(200)["accepted"], 10_000);
    let answer = service.post(path, &json!({"items": items(10_001)})).await;
    let problem = answer.expect_problem(422, "invalid-field");
    assert_eq!(pointer(&problem), "/items");
    let too_many: Vec<_> = (0..10_001).map(|n: i32| n.to_string()).collect();
    let path = "/v1/filters/revoked-jti/check-batch";
    let answer = service.post(path, &json!({"items": too_many})).await;
    answer.expect_problem(422, "invalid-field");
    let found = service
        .check_batch("revoked-jti", &too_many[..10_000])
        .await;
    assert!(found.into_iter().all(|is_maybe| is_maybe));
    // Not one of the batch that was refused was added.
    let described = service.describe("revoked-jti").await;
    let cardinality = described["estimated_cardinality"].as_i64().unwrap();
    assert!((9_990..=10_010).contains(&cardinality), "{cardinality}");
}
