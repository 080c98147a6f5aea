//! SIGTERM: no more connections, those under way to their end within a deadline, exit 0.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::DEADLINE;
use crate::support::{Bloomgate, eventually};

/// A connection on which one request was answered, kept alive.
async fn idle_connection(service: &Bloomgate) -> TcpStream {
    let host = service.base_url().strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(host).await.unwrap();
    let request = format!("GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut chunk = [0; 4_096];
    let read_bytes = connection.read(&mut chunk).await.unwrap();
    assert!(chunk[..read_bytes].starts_with(b"HTTP/1.1 200"));
    connection
}

/// Begins a bulk load and sends one item of it, which is not the last.
async fn load_under_way(service: &Bloomgate) -> TcpStream {
    let host = service.base_url().strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(host).await.unwrap();
    let head = format!(
        "POST /v1/filters/revoked-jti/bulk-load HTTP/1.1\r\nHost: {host}\r\n\
         Content-Type: text/plain\r\nContent-Length: 12\r\n\r\nfirst\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_hold_up_the_end() {
    let mut service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    service.add("revoked-jti", "7f0c").await;
    let mut idle = Vec::new();
    for _ in 0..3 {
        idle.push(idle_connection(&service).await);
    }
    let begun = Instant::now();
    let status = service.terminate(DEADLINE).await;
    assert_eq!(status.code(), Some(0));
    // Well before the default drain_timeout of 20 s, which is for requests under way.
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    assert!(service.logs().contains("stopped"), "{}", service.logs());
    service.restart().await;
    service.wait_live("revoked-jti").await;
    assert!(service.check("revoked-jti", "7f0c").await.is_match());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_way_is_answered_before_the_end() {
    let mut service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    let mut load = load_under_way(&service).await;
    // Answered after the load was begun, so that the load has been accepted too.
    let _idle = idle_connection(&service).await;
    service.send(Signal::TERM);
    let host = service
        .base_url()
        .strip_prefix("http://")
        .unwrap()
        .to_owned();
    eventually("no more connections are taken", DEADLINE, async || {
        TcpStream::connect(&host).await.err()
    })
    .await;
    load.write_all(b"second").await.unwrap();
    let mut answer = String::new();
    load.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\"accepted\":2"), "{answer}");
    assert_eq!(service.wait_end(DEADLINE).await.code(), Some(0));
    service.restart().await;
    service.wait_live("revoked-jti").await;
    let found = service
        .check_batch("revoked-jti", &["first", "second"])
        .await;
    assert_eq!(found, [true, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_end_is_cut_off_at_the_drain_deadline() {
    let mut service = Bloomgate::start("[limits]\ndrain_timeout = \"1s\"").await;
    service.wait_live("revoked-jti").await;
    let _load = load_under_way(&service).await;
    let _idle = idle_connection(&service).await;
    let begun = Instant::now();
    let status = service.terminate(DEADLINE).await;
    assert_eq!(status.code(), Some(0), "{}", service.logs());
    let took = begun.elapsed();
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(8)).contains(&took),
        "{took:?}"
    );
}
