//! Adding items.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::FilterInPath;
use crate::http::AppState;
use crate::http::body::JsonBody;
use crate::http::parse::Object;
use crate::http::problem::Problem;
use crate::http::refusal::of_nested_items;
use crate::http::wire::{AddAnswer, AddBatchAnswer, AddBatchRequest, AddRequest, rate, whole};

/// Add one item
///
/// When this is answered the item is durable, and checks `maybe` here; with `wait: all` also in every
/// other process on the store. Adding it again does no harm; of several expiries the latest holds, and
/// none beats any. With `revoke_issued_until` it is in the set for the tokens alone that were issued until
/// then; adding it again moves that time forward, never back, and without one it is there for all.
#[utoipa::path(
    post,
    path = "/v1/filters/{filter}/add",
    operation_id = "addItem",
    tag = "items",
    params(FilterInPath),
    request_body = AddRequest<'_>,
    responses((status = 200, description = "The item is durable", body = AddAnswer<'_>))
)]
pub async fn add_item(
    State(state): State<Arc<AppState>>,
    FilterInPath { filter }: FilterInPath,
    body: JsonBody,
) -> Result<Response, Problem> {
    let request: AddRequest<'_> = body.parse()?;
    let terms = request.terms();
    let answer = state
        .service
        .add(
            &filter,
            request.item.as_ref(),
            terms,
            request.wait.unwrap_or_default().into(),
        )
        .await?;
    Ok(Json(AddAnswer {
        filter: &filter,
        watermark: answer.watermark.encode(),
        visible: answer.visible,
        estimated_fp_rate: rate(answer.estimated_fp_rate),
    })
    .into_response())
}

/// Add many items
///
/// All or none: one item that is refused refuses all.
#[utoipa::path(
    post,
    path = "/v1/filters/{filter}/add-batch",
    operation_id = "addItems",
    tag = "items",
    params(FilterInPath),
    request_body = AddBatchRequest<'_>,
    responses((status = 200, description = "The items are durable", body = AddBatchAnswer<'_>))
)]
pub async fn add_items(
    State(state): State<Arc<AppState>>,
    FilterInPath { filter }: FilterInPath,
    body: JsonBody,
) -> Result<Response, Problem> {
    let request: AddBatchRequest<'_> = body.parse()?;
    let wait = request.wait.unwrap_or_default().into();
    let items: Vec<_> = request
        .items
        .into_iter()
        .map(|Object(entry)| {
            let terms = entry.terms();
            (entry.item, terms)
        })
        .collect();
    let answer = state
        .service
        .add_batch(&filter, &items, wait)
        .await
        .map_err(of_nested_items)?;
    Ok(Json(AddBatchAnswer {
        filter: &filter,
        accepted: whole(answer.accepted),
        watermark: answer.watermark.encode(),
        visible: answer.visible,
        estimated_fp_rate: rate(answer.estimated_fp_rate),
    })
    .into_response())
}
