//! The metrics of the process.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;

use crate::http::AppState;
use crate::service::answers::{self, Description};
use crate::telemetry::scrape::{FilterGauges, render};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics
///
/// In the text format of Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "getMetrics",
    tag = "operations",
    responses((status = 200, description = "The metrics", body = String, content_type = "text/plain"))
)]
pub async fn get_metrics(
    State(state): State<Arc<AppState>>,
) -> ([(HeaderName, &'static str); 1], String) {
    let filters: Vec<_> = state.service.list().iter().map(gauges).collect();
    let text = render(&state.prometheus, &filters);
    ([(CONTENT_TYPE, TEXT_FORMAT)], text)
}

fn gauges(description: &Description) -> FilterGauges {
    let statistics = &description.statistics;
    FilterGauges {
        filter: description.filter.as_str().to_owned(),
        capacity: description.capacity,
        bits: statistics.bit_count,
        ones: statistics.ones,
        memory_bytes: description.memory_bytes,
        fill_ratio: statistics.fill_ratio,
        estimated_fp_ratio: statistics.estimated_fp_rate,
        measured_fp_ratio: description.measured_fp_rate,
        estimated_cardinality: statistics.estimated_cardinality,
        over_capacity: description.over_capacity,
        states: answers::State::ALL
            .map(|state| (state.as_str(), state == description.state))
            .to_vec(),
        staleness_seconds: description.staleness_seconds,
    }
}
