//! Checking items.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::FilterInPath;
use crate::http::AppState;
use crate::http::body::JsonBody;
use crate::http::problem::Problem;
use crate::http::wire::{
    CheckAnswer, CheckBatchAnswer, CheckBatchRequest, CheckRequest, Verdict, rate,
};

/// Check one item
///
/// `definitely-not`: the item was never added. `maybe`: look it up; `reason` says why. A check
/// does not fail for the sake of the store. With `confirm` a `maybe` is looked up, in the store and in
/// every source: `confirmed` says that it was settled, as a `maybe` or as a `definitely-not`. What cannot
/// be settled stays `maybe`. An item that was added with `revoke_issued_until` is there for the tokens
/// that were issued until then: say with `issued_at` when this one was, or the `maybe` is not settled.
#[utoipa::path(
    post,
    path = "/v1/filters/{filter}/check",
    operation_id = "checkItem",
    tag = "items",
    params(FilterInPath),
    request_body = CheckRequest<'_>,
    responses((status = 200, description = "What may be said of the item", body = CheckAnswer<'_>))
)]
pub async fn check_item(
    State(state): State<Arc<AppState>>,
    FilterInPath { filter }: FilterInPath,
    body: JsonBody,
) -> Result<Response, Problem> {
    let request: CheckRequest<'_> = body.parse()?;
    let confirm = request.confirm.unwrap_or_default();
    let answer = state.service.check(request.check(&filter), confirm).await?;
    Ok(Json(CheckAnswer {
        filter: &filter,
        verdict: answer.verdict.into(),
        reason: answer.verdict.reason().map(Into::into),
        estimated_fp_rate: rate(answer.estimated_fp_rate),
        confirmed: answer.confirmed.then_some(true),
    })
    .into_response())
}

/// Check many items
///
/// One verdict an item, in the order of the request. `reason` is there only when the filter could
/// not answer at all; a `maybe` without one means that all bits of the item are set.
#[utoipa::path(
    post,
    path = "/v1/filters/{filter}/check-batch",
    operation_id = "checkItems",
    tag = "items",
    params(FilterInPath),
    request_body = CheckBatchRequest<'_>,
    responses((status = 200, description = "What may be said of each item", body = CheckBatchAnswer<'_>))
)]
pub async fn check_items(
    State(state): State<Arc<AppState>>,
    FilterInPath { filter }: FilterInPath,
    body: JsonBody,
) -> Result<Response, Problem> {
    let request: CheckBatchRequest<'_> = body.parse()?;
    let min_watermark = request.min_watermark.map(|text| text.0);
    let answer = state
        .service
        .check_batch(&filter, &request.items, min_watermark)
        .await?;
    Ok(Json(CheckBatchAnswer {
        filter: &filter,
        verdicts: answer.verdicts.into_iter().map(Verdict::from).collect(),
        reason: answer.reason.map(Into::into),
        estimated_fp_rate: rate(answer.estimated_fp_rate),
    })
    .into_response())
}
