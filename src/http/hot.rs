//! The short way to the checks.
//!
//! A check is asked on every request of somebody's service, and takes less time than a general router
//! takes to find its handler: a match of patterns, a box for the route, another for the handler, and a
//! map of what was matched. So the paths of the two checks are recognized here, in front of the
//! router, and lead through the same gates into the same handlers.
//!
//! Invariants: whatever is not exactly one of these paths with POST goes to the router, which answers
//! as if this module were not there; who may ask, and within which limits, is decided by the gate
//! alone, on both ways.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::future::RouteFuture;
use futures_util::future::Either;
use tower::Service;

use super::AppState;
use super::body::JsonBody;
use super::gate::{GateLayer, Gates};
use super::handlers::{FilterInPath, check};
use super::routes::{self, CHECK};

/// All routes, ready to be served: the checks by the short way, the rest by the router.
#[derive(Clone)]
pub struct Routes {
    router: Router,
    state: Arc<AppState>,
    check: GateLayer,
    check_batch: GateLayer,
}

/// Which of the checks is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hot {
    Check,
    CheckBatch,
}

impl Routes {
    /// The routes over this state.
    #[must_use]
    pub fn new(state: AppState) -> Self {
        let gates = Gates::new(Arc::clone(&state.access), state.limits.request_timeout);
        let state = Arc::new(state);
        Self {
            router: routes::router(&gates).with_state(Arc::clone(&state)),
            state,
            check: gates.of(CHECK, "/v1/filters/{filter}/check"),
            check_batch: gates.of(CHECK, "/v1/filters/{filter}/check-batch"),
        }
    }
}

/// The check that a request is for, and its filter's name; none where the router must look.
fn hot<'path>(method: &Method, path: &'path str) -> Option<(Hot, &'path str)> {
    let (name, operation) = path.strip_prefix("/v1/filters/")?.split_once('/')?;
    let hot = match operation {
        "check" => Hot::Check,
        "check-batch" => Hot::CheckBatch,
        _ => return None,
    };
    // A name with anything else in it may be an escaped one, or none at all.
    let is_plain = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    (method == Method::POST && is_plain).then_some((hot, name))
}

async fn answer(hot: Hot, filter: String, state: Arc<AppState>, request: Request) -> Response {
    let body = match JsonBody::from_request(request, &state).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    let filter = FilterInPath { filter };
    let answered = match hot {
        Hot::Check => check::check_item(State(state), filter, body).await,
        Hot::CheckBatch => check::check_items(State(state), filter, body).await,
    };
    answered.into_response()
}

impl<B> Service<axum::http::Request<B>> for Routes
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<
        Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>,
        RouteFuture<Infallible>,
    >;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The router is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: axum::http::Request<B>) -> Self::Future {
        let Some((hot, filter)) = hot(request.method(), request.uri().path()) else {
            return Either::Right(self.router.call(request));
        };
        let filter = filter.to_owned();
        let state = Arc::clone(&self.state);
        let gate = match hot {
            Hot::Check => self.check.clone(),
            Hot::CheckBatch => self.check_batch.clone(),
        };
        let request = request.map(Body::new);
        Either::Left(Box::pin(async move {
            let handle = |request, _| answer(hot, filter, state, request);
            Ok(gate.pass(request, handle).await)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_post_to_a_check_of_a_filter_with_a_plain_name_takes_the_short_way() {
        let post = |path| hot(&Method::POST, path);
        let check = post("/v1/filters/revoked-jti/check");
        assert_eq!(check, Some((Hot::Check, "revoked-jti")));
        let batch = post("/v1/filters/a_1/check-batch");
        assert_eq!(batch, Some((Hot::CheckBatch, "a_1")));
        for path in [
            "/v1/filters//check",
            "/v1/filters/a%62/check",
            "/v1/filters/a.b/check",
            "/v1/filters/a/check/",
            "/v1/filters/a/b/check",
            "/v1/filters/a/add",
            "/v1/filters/a",
            "/v1//filters/a/check",
            "v1/filters/a/check",
            "/",
        ] {
            assert_eq!(post(path), None, "{path}");
        }
        assert_eq!(hot(&Method::GET, "/v1/filters/a/check"), None);
    }
}
