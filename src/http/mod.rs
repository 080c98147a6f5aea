//! HTTP: translation only. It knows the service and its answers; what may be said of an item, and
//! when, is decided there.
//!
//! A request passes the gate of its route ([`gate`]), which asks [`access`] who may pass; an
//! extractor ([`body`], [`parse`]) gives the handler ([`handlers`]) what it needs; the handler
//! makes one call to the service and answers with a type of [`wire`]. Whatever fails becomes a
//! [`problem`]. The table of all routes is [`routes`], from which the document is made as well;
//! [`hot`] is a shorter way to two of them.

pub mod access;
pub mod bearer;
pub mod body;
pub mod document;
pub mod gate;
pub mod handlers;
pub mod hot;
pub mod lines;
pub mod numeric_date;
pub mod parse;
pub mod problem;
pub mod problem_kind;
pub mod refusal;
pub mod request_id;
pub mod routes;
pub mod serve;
#[cfg(test)]
mod tests;
pub mod token;
pub mod wire;
pub mod wire_filters;
pub mod wire_many;
pub mod wire_time;

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use utoipa::openapi::OpenApi;

use crate::service::Service;
use crate::service::authz::Policy;
use access::Access;
use gate::Gates;

/// The bounds of requests and connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpLimits {
    /// The largest body, in bytes; bulk-load streams past it.
    pub max_body_bytes: usize,
    /// How long the first request's headers may take.
    pub header_timeout: Duration,
    /// How long a body may pause.
    pub body_idle_timeout: Duration,
    /// How long a request may take; bulk-load is exempt.
    pub request_timeout: Duration,
    /// How long requests under way may take once the process is told to end.
    pub drain_timeout: Duration,
    /// The most connections at a time; others wait to be accepted.
    pub max_connections: usize,
}

impl Default for HttpLimits {
    /// The defaults of the configuration.
    fn default() -> Self {
        Self {
            max_body_bytes: 8 * 1024 * 1024,
            header_timeout: Duration::from_secs(10),
            body_idle_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(20),
            max_connections: 10_000,
        }
    }
}

/// What the handlers work with.
pub struct AppState {
    /// What may be asked.
    pub service: Arc<Service>,
    /// Who may ask.
    pub access: Arc<Access>,
    /// The bounds of requests.
    pub limits: HttpLimits,
    /// What gateways may ask by.
    pub authz: Vec<Policy>,
    /// The metrics of the process.
    pub prometheus: PrometheusHandle,
}

/// The document of the routes.
#[must_use]
pub fn openapi() -> OpenApi {
    let limits = HttpLimits::default();
    let gates = Gates::new(Arc::default(), limits.request_timeout);
    routes::operations(&gates).into_openapi()
}
