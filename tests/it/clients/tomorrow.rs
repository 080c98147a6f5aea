//! A service of a later version.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The largest body that is passed on, in bytes.
const BODY_MAX_BYTES: usize = 64 * 1024 * 1024;

/// The largest count of the interface, 2^53 − 1.
const LARGEST_COUNT: i64 = 9_007_199_254_740_991;

/// Passes everything on to the service behind it. To each object of an answer in JSON it adds a field that
/// nobody knows yet, and where there is a `generation`, that is as large as any count may be. Ends on
/// drop.
pub(super) struct Tomorrow {
    base_url: String,
    _tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Upstream {
    base_url: String,
    client: reqwest::Client,
}

impl Tomorrow {
    pub(super) async fn before(base_url: &str) -> Self {
        let upstream = Upstream {
            base_url: base_url.to_owned(),
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
        };
        let routes = Router::new().fallback(pass_on).with_state(upstream);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            base_url,
            _tasks: tasks,
        }
    }

    pub(super) fn base_url(&self) -> &str {
        &self.base_url
    }
}

async fn pass_on(State(upstream): State<Upstream>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_MAX_BYTES).await.unwrap();
    parts.headers.remove(HOST);
    let url = format!("{}{}", upstream.base_url, parts.uri);
    let asked = upstream.client.request(parts.method, url);
    let asked = asked.headers(parts.headers).body(body).send();
    let answer = asked.await.unwrap();
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    let mut body = answer.bytes().await.unwrap();
    if is_json(&headers) {
        let mut answer: Value = serde_json::from_slice(&body).unwrap();
        grow(&mut answer);
        body = serde_json::to_vec(&answer).unwrap().into();
    }
    headers.remove(CONTENT_LENGTH);
    headers.remove(TRANSFER_ENCODING);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn is_json(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    media_type.is_some_and(|media_type| media_type.ends_with(b"json"))
        && !headers.contains_key(CONTENT_ENCODING)
}

fn grow(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(grow);
            if let Some(generation) = members.get_mut("generation") {
                *generation = json!(LARGEST_COUNT);
            }
            members.insert("added_later".to_owned(), json!({"by": ["a later version"]}));
        }
        Value::Array(elements) => elements.iter_mut().for_each(grow),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
