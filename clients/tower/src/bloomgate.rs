//! A tower layer: whoever comes with a revoked token is turned away.
//!
//! It stands BEHIND the verification of the token and does none itself: [`Tokens::token`] gives the id of
//! a token that your verification has accepted, with its signature and its times. Copy this file; what it
//! needs stands in `Cargo.toml`.
//!
//! What it keeps:
//!
//! - Only a clean `definitely-not` passes without a look-up. Everything else (a maybe, another status, a
//!   time-out, a refused connection, an answer that is odd in any way) asks [`Tokens::is_revoked`]: your own
//!   database, which is the authority. Where that fails too, nobody passes.
//! - Two tries at most, the second on a connection of its own, and both within a deadline.
//! - No token and no jti in a URL, a log line or an error.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{Instant, timeout_at};
use tower::{Layer, Service};

/// The longest answer that is read. bloomgate's own are below 1 KiB.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

const INVALID: &str = "Bearer error=\"invalid_token\"";

/// A token that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedToken {
    /// Its `jti`, where it has one.
    pub id: Option<String>,
}

/// Your side: where the verified token is, and your database.
pub trait Tokens: Send + Sync + 'static {
    /// Why a look-up failed.
    type Error: Send;

    /// The token of a request, VERIFIED before; none where there was none.
    fn token<B>(&self, request: &Request<B>) -> Option<VerifiedToken>;

    /// Looks the id up in your database. Give it a time limit of its own.
    fn is_revoked(&self, id: &str) -> impl Future<Output = Result<bool, Self::Error>> + Send;
}

/// Where bloomgate is, and how long it may take.
#[derive(Clone)]
pub struct Settings {
    /// Such as `http://127.0.0.1:8080`.
    pub url: Url,
    /// An API key of the scope `check`.
    pub key: HeaderValue,
    /// The filter that holds the revoked ids.
    pub filter: String,
    /// How long one try may take, from the connection to the last byte.
    pub per_try: Duration,
    /// How long both tries may take together.
    pub total: Duration,
}

impl Settings {
    /// The filter `revoked-jti`, 250 ms for a try and 500 ms in all.
    pub fn new(url: Url, mut key: HeaderValue) -> Self {
        key.set_sensitive(true);
        Self {
            url,
            key,
            filter: "revoked-jti".to_owned(),
            per_try: Duration::from_millis(250),
            total: Duration::from_millis(500),
        }
    }
}

/// Wraps a service in [`DenyRevoked`].
pub struct DenyRevokedLayer<T> {
    gate: Arc<Gate<T>>,
}

impl<T: Tokens> DenyRevokedLayer<T> {
    /// Fails where the filter has no place in the URL, or no client can be made.
    pub fn new(
        settings: Settings,
        tokens: T,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let mut target = settings.url.clone();
        target
            .path_segments_mut()
            .map_err(|()| "the URL of bloomgate must be one, such as http://127.0.0.1:8080")?
            .pop_if_empty()
            .extend(["v1", "filters", &settings.filter, "check"]);
        // The kept connection may have died since it was used last; the second try takes none of those.
        let clients = [client(16)?, client(0)?];
        let gate = Arc::new(Gate {
            settings,
            target,
            clients,
            tokens,
        });
        Ok(Self { gate })
    }
}

impl<T> Clone for DenyRevokedLayer<T> {
    fn clone(&self) -> Self {
        let gate = Arc::clone(&self.gate);
        Self { gate }
    }
}

impl<T, S> Layer<S> for DenyRevokedLayer<T> {
    type Service = DenyRevoked<T, S>;

    fn layer(&self, inner: S) -> Self::Service {
        let gate = Arc::clone(&self.gate);
        DenyRevoked { gate, inner }
    }
}

/// The middleware.
pub struct DenyRevoked<T, S> {
    gate: Arc<Gate<T>>,
    inner: S,
}

impl<T, S: Clone> Clone for DenyRevoked<T, S> {
    fn clone(&self) -> Self {
        let gate = Arc::clone(&self.gate);
        let inner = self.inner.clone();
        Self { gate, inner }
    }
}

impl<T, S, B, R> Service<Request<B>> for DenyRevoked<T, S>
where
    T: Tokens,
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: Default + Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let gate = Arc::clone(&self.gate);
        // The one that was ready is called; its clone may not be so yet.
        let ready = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, ready);
        let token = gate.tokens.token(&request);
        Box::pin(async move {
            match gate.denial(token).await {
                Some(denial) => Ok(denial),
                None => inner.call(request).await,
            }
        })
    }
}

struct Gate<T> {
    settings: Settings,
    target: Url,
    clients: [Client; 2],
    tokens: T,
}

impl<T: Tokens> Gate<T> {
    /// The answer to who may not pass.
    async fn denial<R: Default>(&self, token: Option<VerifiedToken>) -> Option<Response<R>> {
        let Some(token) = token else {
            return Some(unauthorized("Bearer"));
        };
        // A token without an id cannot be revoked, so it is not let in.
        let Some(id) = token.id.filter(|id| !id.is_empty()) else {
            return Some(unauthorized(INVALID));
        };
        if self.is_definitely_not(&id).await {
            return None;
        }
        match self.tokens.is_revoked(&id).await {
            Ok(false) => None,
            Ok(true) => Some(unauthorized(INVALID)),
            // The error may name the id: log it in `is_revoked`, where you know what it holds.
            Err(_) => Some(answer_with(StatusCode::SERVICE_UNAVAILABLE)),
        }
    }

    /// True for a clean `definitely-not`, false for all else.
    async fn is_definitely_not(&self, id: &str) -> bool {
        let body = serde_json::json!({ "item": id }).to_string();
        let deadline = Instant::now() + self.settings.total;
        for client in &self.clients {
            let until = deadline.min(Instant::now() + self.settings.per_try);
            // For all of it, the body of the answer included. What is late loses its connection, so that
            // its answer can never be taken for another's.
            let asked = timeout_at(until, self.ask(client, body.clone())).await;
            match asked {
                Ok(Some(answer)) if !answer.status.is_server_error() => {
                    return answer.is_clean(&self.settings.filter);
                }
                // No connection, none in time, it broke, or the server says that it is in trouble: once more.
                Ok(_) | Err(_) => {}
            }
        }
        false
    }

    /// None where no whole answer came.
    async fn ask(&self, client: &Client, body: String) -> Option<Answer> {
        let request = client
            .post(self.target.clone())
            .header("x-api-key", self.settings.key.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT_ENCODING, "identity")
            .body(body);
        let mut response = request.send().await.ok()?;
        let mut body = Vec::new();
        // A body that was cut off is an error here, and no shorter answer.
        while let Some(chunk) = response.chunk().await.ok()? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return None;
            }
            body.extend_from_slice(&chunk);
        }
        Some(Answer {
            status: response.status(),
            headers: mem::take(response.headers_mut()),
            body,
        })
    }
}

/// A client that takes no proxy from the environment and follows no redirect. HTTP/1.1, for a time-out of
/// HTTP/2 ends one stream, and all others go on waiting on a dead connection.
fn client(kept_connections: usize) -> reqwest::Result<Client> {
    Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .http1_only()
        .pool_max_idle_per_host(kept_connections)
        .build()
}

fn answer_with<R: Default>(status: StatusCode) -> Response<R> {
    let mut answer = Response::new(R::default());
    *answer.status_mut() = status;
    answer
}

fn unauthorized<R: Default>(challenge: &'static str) -> Response<R> {
    let mut answer = answer_with(StatusCode::UNAUTHORIZED);
    let challenge = HeaderValue::from_static(challenge);
    answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    answer
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// What counts of an answer. One with two fields of one name is refused by serde.
#[derive(Deserialize)]
struct Verdict {
    filter: String,
    verdict: String,
    /// Stands beside a maybe only.
    reason: Option<IgnoredAny>,
}

impl Answer {
    /// Whether this is the answer to what was asked, and says `definitely-not` and nothing else.
    fn is_clean(&self, filter: &str) -> bool {
        let media_type = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|value| value.split(';').next());
        let is_json =
            media_type.is_some_and(|name| name.trim().eq_ignore_ascii_case("application/json"));
        if self.status != StatusCode::OK || !is_json || self.headers.contains_key(CONTENT_ENCODING)
        {
            return false;
        }
        // serde would take a list of the values for the struct as well.
        let is_object = self.body.trim_ascii_start().starts_with(b"{");
        let answer = serde_json::from_slice(&self.body);
        is_object
            && answer.is_ok_and(|answer: Verdict| {
                answer.verdict == "definitely-not"
                    && answer.filter == filter
                    && answer.reason.is_none()
            })
    }
}
