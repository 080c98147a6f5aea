//! The gate: everything that happens around a handler, fused into one layer.
//!
//! A stack of small layers costs a boxed future each, together as much as the check itself. So one
//! layer does it all: it gives the request its id, decides who may pass, keeps the deadline, turns
//! a panic into an answer, renders problems, records the duration and writes the access log.
//!
//! Every route has a gate of its own, made by [`Gates`], that knows what the route needs: there is
//! no route without one. The gate must not know what a handler does.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::extract::{MatchedPath, Request};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use metrics::Histogram;
use tower::{Layer, Service};

use super::access::{Access, Admitted, Need};
use super::body::refuse;
use super::problem::Problem;
use super::problem_kind::ProblemKind;
use super::request_id::{RequestId, X_REQUEST_ID};
use crate::telemetry::request_duration;

/// Makes the gates of all routes.
#[derive(Clone)]
pub struct Gates {
    access: Arc<Access>,
    request_timeout: Duration,
}

impl Gates {
    /// Gates that let pass whom `access` lets pass, and keep `request_timeout`.
    #[must_use]
    pub fn new(access: Arc<Access>, request_timeout: Duration) -> Self {
        Self {
            access,
            request_timeout,
        }
    }

    /// The gate of a route, by the route's pattern.
    #[must_use]
    pub fn of(&self, need: Need, route: &'static str) -> GateLayer {
        self.gate(need, Some(route), Some(self.request_timeout))
    }

    /// The same for a route whose body may take any time.
    #[must_use]
    pub fn without_deadline(&self, need: Need, route: &'static str) -> GateLayer {
        self.gate(need, Some(route), None)
    }

    /// The gate of what no route takes.
    #[must_use]
    pub fn of_no_route(&self) -> GateLayer {
        self.gate(Need::AnyKey, None, Some(self.request_timeout))
    }

    fn gate(
        &self,
        need: Need,
        route: Option<&'static str>,
        deadline: Option<Duration>,
    ) -> GateLayer {
        GateLayer(Arc::new(Gate {
            access: Arc::clone(&self.access),
            need,
            route,
            deadline,
            durations: Durations::default(),
        }))
    }
}

/// A gate as a layer.
#[derive(Clone)]
pub struct GateLayer(Arc<Gate>);

impl<S> Layer<S> for GateLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated {
            gate: Arc::clone(&self.0),
            inner,
        }
    }
}

impl GateLayer {
    /// Lets one request pass, or not, to `handle`, which is told for whom.
    pub(super) async fn pass<F>(
        &self,
        request: Request,
        handle: impl FnOnce(Request, Admitted) -> F,
    ) -> Response
    where
        F: Future<Output = Response>,
    {
        self.0.pass(request, handle).await
    }
}

/// A handler behind its gate.
#[derive(Clone)]
pub struct Gated<S> {
    gate: Arc<Gate>,
    inner: S,
}

impl<S> Service<Request> for Gated<S>
where
    S: Service<Request, Error = Infallible> + Clone + Send + 'static,
    S::Response: IntoResponse,
    S::Future: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let gate = Arc::clone(&self.gate);
        // The clone takes the place of the one that was polled ready.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let handle = |mut request: Request, admitted| async move {
            // For what a handler alone knows of: filters that are named in a body, or listed.
            request.extensions_mut().insert(admitted);
            let mut inner = inner;
            match inner.call(request).await {
                Ok(response) => response.into_response(),
                Err(never) => match never {},
            }
        };
        Box::pin(async move { Ok(gate.pass(request, handle).await) })
    }
}

struct Gate {
    access: Arc<Access>,
    need: Need,
    route: Option<&'static str>,
    deadline: Option<Duration>,
    durations: Durations,
}

impl Gate {
    async fn pass<F>(
        &self,
        request: Request,
        handle: impl FnOnce(Request, Admitted) -> F,
    ) -> Response
    where
        F: Future<Output = Response>,
    {
        let begun = Instant::now();
        let id = RequestId::of(request.headers());
        let method = method_label(request.method());
        let matched = match self.route {
            Some(_) => None,
            None => request.extensions().get::<MatchedPath>().cloned(),
        };
        let admitted = self.admit(&request);
        let key_id = admitted.as_ref().ok().cloned();
        let mut response = match admitted {
            Ok(admitted) => self.answer(|| handle(request, admitted), &id).await,
            Err(problem) => {
                let (parts, body) = request.into_parts();
                refuse(problem, &parts.headers, body).await.into_response()
            }
        };
        if self.need == Need::Gateway {
            response = decided_or_undecided(response);
        }
        finish(&mut response, &id);
        let status = response.status().as_u16();
        let route = match (self.route, &matched) {
            (Some(route), _) => route,
            (None, Some(matched)) => matched.as_str(),
            (None, None) => "unmatched",
        };
        let duration = begun.elapsed();
        self.durations.record(method, route, status, duration);
        tracing::debug!(
            method,
            route,
            status,
            duration_us = duration.as_micros(),
            request_id = id.as_str(),
            key_id = key_id.as_ref().map_or("-", Admitted::key_id),
            "answered"
        );
        response
            .headers_mut()
            .insert(X_REQUEST_ID, id.into_header());
        response
    }

    fn admit(&self, request: &Request) -> Result<Admitted, Problem> {
        let filter = filter_in(request.uri().path());
        self.access.admit(self.need, request.headers(), filter)
    }

    /// What the handler answers; a problem when it panics or takes too long.
    async fn answer<F>(&self, handle: impl FnOnce() -> F, id: &RequestId) -> Response
    where
        F: Future<Output = Response>,
    {
        // The call itself is inside, for a handler may panic before its future is made.
        let handled = AssertUnwindSafe(async move { handle().await }).catch_unwind();
        let handled = match self.deadline {
            None => Ok(handled.await),
            Some(deadline) => tokio::time::timeout(deadline, handled).await,
        };
        match handled {
            Ok(Ok(response)) => response,
            Ok(Err(_panic)) => {
                // The message of the panic may hold anything, an item too; the panic hook's own
                // line stands beside this one.
                tracing::error!(request_id = id.as_str(), "a handler panicked");
                Problem::new(
                    ProblemKind::InternalError,
                    "the request met a defect of bloomgate; the log has its id",
                )
                .into_response()
            }
            Err(_elapsed) => Problem::new(
                ProblemKind::RequestTimeout,
                "no answer within request_timeout; whether an add was taken is not known: repeat \
                 it, which does no harm",
            )
            .into_response(),
        }
    }
}

/// The filter's name in a path of the API, as it stands there. A name in form needs no escapes, so
/// that an escaped one is never taken for one that a key is limited to.
fn filter_in(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/v1/filters/")?;
    rest.split('/').next()
}

/// To a gateway 200, 401 and 403 alone are answers. Whatever else happened, a missed deadline or a
/// panic, decides nothing, and lets nobody in whatever the gateway makes of it.
fn decided_or_undecided(response: Response) -> Response {
    match response.status() {
        StatusCode::OK | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => response,
        _ => Problem::new(
            ProblemKind::Undecided,
            "whether the token is revoked could not be told; try again",
        )
        .into_response(),
    }
}

/// Renders the problem, where the answer is one; forbids caches to keep what they are not told to.
fn finish(response: &mut Response, id: &RequestId) {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        problem.render(response, id.as_str());
    } else if is_bare_refusal(response) {
        Problem::of_status(response.status()).render(response, id.as_str());
    }
    response
        .headers_mut()
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
}

/// Whether axum or a library refused by itself, with a text or nothing.
fn is_bare_refusal(response: &Response) -> bool {
    let status = response.status();
    let refusal = status.is_client_error() || status.is_server_error();
    refusal
        && response
            .headers()
            .get(CONTENT_TYPE)
            .is_none_or(|media_type| media_type != "application/json")
}

/// A method as a label: one of those that HTTP names, for a caller can invent others.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        "PATCH" => "PATCH",
        "TRACE" => "TRACE",
        "CONNECT" => "CONNECT",
        _ => "_OTHER",
    }
}

/// The histograms that a gate has used. There are few: a route takes few methods and answers with
/// few statuses, and looking through them costs less than hashing.
#[derive(Default)]
struct Durations(ArcSwap<Vec<(&'static str, String, u16, Histogram)>>);

impl Durations {
    fn record(&self, method: &'static str, route: &str, status: u16, duration: Duration) {
        let known = self.0.load();
        let found = known
            .iter()
            .find(|(known_method, known_route, known_status, _)| {
                *known_status == status && *known_method == method && known_route == route
            });
        if let Some((_, _, _, histogram)) = found {
            histogram.record(duration);
            return;
        }
        let histogram = request_duration(method, route, status);
        histogram.record(duration);
        self.0.rcu(|known| {
            let mut known = Vec::clone(known);
            known.push((method, route.to_owned(), status, histogram.clone()));
            known
        });
    }
}
