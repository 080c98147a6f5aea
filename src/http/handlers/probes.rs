//! The probes of whoever runs the process.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::AppState;
use crate::http::wire_filters::State as FilterCondition;
use crate::service::answers::Readiness;

/// Whether the process lives, or traffic should come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeStatus {
    /// Yes.
    Ok,
    /// Not every filter has been complete yet, or the process is draining.
    Unready,
}

/// A filter and its state.
#[derive(Debug, Serialize, ToSchema)]
pub struct FilterState {
    /// The filter's name.
    pub filter: String,
    /// What it can do at the moment.
    pub state: FilterCondition,
}

/// The answer to a probe.
#[derive(Debug, Serialize, ToSchema)]
pub struct Probe {
    /// What the probe asks for.
    pub status: ProbeStatus,
    /// Every filter's state.
    pub filters: Vec<FilterState>,
}

/// Does the process live?
///
/// Always answers 200 at once, whatever is being loaded.
#[utoipa::path(
    get,
    path = "/livez",
    operation_id = "getLiveness",
    tag = "operations",
    responses((status = 200, description = "The process lives", body = Probe))
)]
pub async fn livez(State(state): State<Arc<AppState>>) -> Json<Probe> {
    Json(probe(ProbeStatus::Ok, state.service.readiness()))
}

/// Should traffic come?
///
/// Not before every filter was complete once, and not while the process drains. Staleness later
/// leaves it at 200 and names the filters, for a fleet that turns unready as one helps nobody.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "getReadiness",
    tag = "operations",
    responses(
        (status = 200, description = "Traffic may come", body = Probe),
        (status = 503, description = "Traffic should go elsewhere", body = Probe)
    )
)]
pub async fn readyz(State(state): State<Arc<AppState>>) -> (StatusCode, Json<Probe>) {
    let readiness = state.service.readiness();
    let (code, status) = if readiness.ready {
        (StatusCode::OK, ProbeStatus::Ok)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, ProbeStatus::Unready)
    };
    (code, Json(probe(status, readiness)))
}

fn probe(status: ProbeStatus, readiness: Readiness) -> Probe {
    let filters = readiness.filters.into_iter();
    Probe {
        status,
        filters: filters
            .map(|(filter, state)| FilterState {
                filter: filter.as_str().to_owned(),
                state: state.into(),
            })
            .collect(),
    }
}
