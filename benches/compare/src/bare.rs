//! The peer of a check: a bare axum server of the same kind, which reads the same body and answers
//! the same text, and does nothing in between.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use axum_server::accept::NoDelayAcceptor;
use serde::Deserialize;

/// As the program's: `limits.header_timeout`, and how long a connection is kept between requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

#[derive(Deserialize)]
struct Request {
    item: String,
}

/// Serves on a port of 127.0.0.1 until it is killed.
pub(crate) fn serve(port: u16, answer: &str) -> anyhow::Result<()> {
    let answer: &'static str = answer.to_owned().leak();
    let handler = async move |Json(request): Json<Request>| {
        std::hint::black_box(request.item);
        let json = HeaderValue::from_static("application/json");
        ([(CONTENT_TYPE, json)], answer).into_response()
    };
    let router = Router::new().route("/check", post(handler));
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let mut server = axum_server::from_tcp(listener)?
            .acceptor(NoDelayAcceptor::new())
            .first_request_timeout(HEADER_TIMEOUT);
        server
            .http_builder()
            .http1()
            .header_read_timeout(IDLE_TIMEOUT);
        Ok(server.serve(router.into_make_service()).await?)
    })
}
