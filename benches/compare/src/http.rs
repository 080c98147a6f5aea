//! A small HTTP client for what is asked beside the load: one request a connection.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// A free port of 127.0.0.1.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Whom to ask, and with which key.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) key: Option<String>,
}

impl Client {
    /// The status and the body of the answer.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: &[u8],
    ) -> anyhow::Result<(u16, String)> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        let key = self
            .key
            .as_ref()
            .map_or_else(String::new, |key| format!("X-API-Key: {key}\r\n"));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{key}\
             Content-Type: {media_type}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, body.to_owned()))
    }

    /// The body of an answer of 2xx.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: &[u8],
    ) -> anyhow::Result<String> {
        let (status, body) = self.request(method, path, media_type, body)?;
        anyhow::ensure!(
            (200..300).contains(&status),
            "{method} {path}: {status} {body}"
        );
        Ok(body)
    }

    /// The body of an answer of 2xx to JSON.
    pub(crate) fn post_json(&self, path: &str, body: &str) -> anyhow::Result<String> {
        self.ask("POST", path, "application/json", body.as_bytes())
    }

    /// Asks again and again until the answer is 200, and gives how long that took since `begun`.
    pub(crate) fn wait_for_ok(
        &self,
        path: &str,
        begun: Instant,
        deadline: Duration,
    ) -> anyhow::Result<Duration> {
        loop {
            if let Ok((200, _)) = self.request("GET", path, "text/plain", b"") {
                return Ok(begun.elapsed());
            }
            anyhow::ensure!(
                begun.elapsed() < deadline,
                "{path} was not 200 within {deadline:?}"
            );
            sleep(Duration::from_micros(500));
        }
    }
}
