//! Connections as they are on a wire: refusals that a caller still receives, slow callers, and the
//! end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::{App, HttpLimits, PATIENCE, key};
use crate::config::Scope;
use crate::http::serve::serve;

struct Served {
    _app: App,
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
}

async fn served(limits: HttpLimits) -> Served {
    served_with(Vec::new(), limits).await
}

async fn served_with(keys: Vec<crate::config::ApiKey>, limits: HttpLimits) -> Served {
    let app = App::start_with(keys, limits.clone()).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let (router, stop) = (app.routes.clone(), shutdown.clone());
    let serving = tokio::spawn(async move { serve(listener, router, &limits, stop).await });
    Served {
        _app: app,
        address,
        shutdown,
        serving,
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads until the server closes.
fn read_all(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Writes head and body as a caller does that reads nothing before all is written.
fn write_then_read(address: SocketAddr, head: &str, body_bytes: usize, chunked: bool) -> String {
    let mut stream = connect(address);
    stream.write_all(head.as_bytes()).unwrap();
    let piece = [b'a'; 64 * 1024];
    let mut left = body_bytes;
    while left > 0 {
        let bytes = left.min(piece.len());
        if chunked {
            write!(stream, "{bytes:x}\r\n").unwrap();
        }
        stream.write_all(&piece[..bytes]).unwrap();
        if chunked {
            stream.write_all(b"\r\n").unwrap();
        }
        left -= bytes;
    }
    if chunked {
        stream.write_all(b"0\r\n\r\n").unwrap();
    }
    read_all(&mut stream).unwrap()
}

const MEGABYTES_50: usize = 50 * 1000 * 1000;

fn check_head(length: &str) -> String {
    format!(
        "POST /v1/filters/revoked-jti/check HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/json\r\n{length}\r\n\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_writes_50_mb_before_it_reads_receives_the_refusal() {
    let served = served(HttpLimits::default()).await;
    for chunked in [false, true] {
        let length = if chunked {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {MEGABYTES_50}")
        };
        let (address, head) = (served.address, check_head(&length));
        let text = spawn_blocking(move || write_then_read(address, &head, MEGABYTES_50, chunked));
        let text = text.await.unwrap();
        assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
        assert!(text.contains("\"limit_bytes\":8388608"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_without_a_key_that_writes_50_mb_receives_the_refusal() {
    let served = served_with(vec![key("k", &[Scope::Add])], HttpLimits::default()).await;
    let head = format!(
        "POST /v1/filters/revoked-jti/bulk-load HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: text/plain\r\nContent-Length: {MEGABYTES_50}\r\n\r\n"
    );
    let address = served.address;
    let text = spawn_blocking(move || write_then_read(address, &head, MEGABYTES_50, false));
    assert!(text.await.unwrap().starts_with("HTTP/1.1 401 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_asks_before_it_writes_is_told_at_once() {
    let served = served(HttpLimits::default()).await;
    let head = check_head(&format!(
        "Content-Length: {MEGABYTES_50}\r\nExpect: 100-continue"
    ));
    let address = served.address;
    let text = spawn_blocking(move || {
        let mut stream = connect(address);
        stream.write_all(head.as_bytes()).unwrap();
        read_all(&mut stream).unwrap()
    });
    assert!(text.await.unwrap().starts_with("HTTP/1.1 413 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_does_not_come_is_given_up() {
    let limits = HttpLimits {
        body_idle_timeout: Duration::from_millis(50),
        ..HttpLimits::default()
    };
    let served = served(limits).await;
    let address = served.address;
    for head in [
        check_head("Content-Length: 100"),
        check_head("Content-Length: 100")
            .replace("/check", "/bulk-load")
            .replace("application/json", "text/plain"),
    ] {
        let text = spawn_blocking(move || {
            let mut stream = connect(address);
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(b"{").unwrap();
            read_all(&mut stream).unwrap()
        });
        let text = text.await.unwrap();
        assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
        assert!(text.contains("body-timeout"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_takes_too_long_is_answered() {
    let limits = HttpLimits {
        request_timeout: Duration::from_millis(50),
        ..HttpLimits::default()
    };
    let served = served(limits).await;
    let address = served.address;
    let text = spawn_blocking(move || {
        let mut stream = connect(address);
        let head = check_head("Content-Length: 100");
        stream.write_all(head.as_bytes()).unwrap();
        read_all(&mut stream).unwrap()
    });
    let text = text.await.unwrap();
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(text.contains("request-timeout"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_do_not_come_end_the_connection() {
    let limits = HttpLimits {
        header_timeout: Duration::from_millis(50),
        ..HttpLimits::default()
    };
    let served = served(limits).await;
    let address = served.address;
    for sent in ["", "GET /livez HTTP/1.1\r\nHost:"] {
        let closed = spawn_blocking(move || {
            let mut stream = connect(address);
            stream.write_all(sent.as_bytes()).unwrap();
            read_all(&mut stream)
        });
        // Closed or reset: both come before the reader's patience ends.
        let error = closed.await.unwrap().err().map(|error| error.kind());
        assert_ne!(error, Some(std::io::ErrorKind::WouldBlock));
    }
}

/// Asks, and leaves the connection open.
fn ask_and_keep(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_does_not_hold_up_the_end() {
    let served = served(HttpLimits::default()).await;
    let address = served.address;
    let idle = spawn_blocking(move || ask_and_keep(address)).await.unwrap();
    let begun = Instant::now();
    served.shutdown.cancel();
    served.serving.await.unwrap().unwrap();
    // Far below drain_timeout: the connection was closed, not waited for.
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(idle);
    assert!(TcpStream::connect(address).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_way_holds_up_the_end_until_the_deadline_and_no_longer() {
    let limits = HttpLimits {
        drain_timeout: Duration::from_millis(300),
        ..HttpLimits::default()
    };
    let served = served(limits).await;
    let address = served.address;
    let under_way = spawn_blocking(move || {
        let mut stream = connect(address);
        let head = check_head("Content-Length: 100\r\nExpect: 100-continue");
        stream.write_all(head.as_bytes()).unwrap();
        // The server asks for the body: the handler runs.
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100");
        stream
    });
    let under_way = under_way.await.unwrap();
    let begun = Instant::now();
    served.shutdown.cancel();
    served.serving.await.unwrap().unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(under_way);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_past_the_bound_wait_and_are_served_in_their_turn() {
    let limits = HttpLimits {
        max_connections: 1,
        ..HttpLimits::default()
    };
    let served = served(limits).await;
    let address = served.address;
    let first = spawn_blocking(move || ask_and_keep(address)).await.unwrap();
    let second = spawn_blocking(move || {
        let mut stream = connect(address);
        stream
            .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let waits = stream.peek(&mut [0]).is_err();
        drop(first);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        (waits, read_all(&mut stream).unwrap())
    });
    let (waited, answer) = second.await.unwrap();
    assert!(waited, "served although there was no place");
    assert!(answer.starts_with("HTTP/1.1 200 "));
}
