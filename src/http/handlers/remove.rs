//! Removing items.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::FilterInPath;
use crate::http::AppState;
use crate::http::body::JsonBody;
use crate::http::problem::Problem;
use crate::http::wire::{RemoveAnswer, RemoveRequest};

/// Remove an item
///
/// When this is answered the item is durably gone from the store, in every spelling, and the next
/// rebuild leaves it out. Until then it may check `maybe`; a check with `confirm` knows at once. What a
/// source has it brings again with each load.
#[utoipa::path(
    post,
    path = "/v1/filters/{filter}/remove",
    operation_id = "removeItem",
    tag = "items",
    params(FilterInPath),
    request_body = RemoveRequest<'_>,
    responses((status = 200, description = "The item is not in the store", body = RemoveAnswer<'_>))
)]
pub async fn remove_item(
    State(state): State<Arc<AppState>>,
    FilterInPath { filter }: FilterInPath,
    body: JsonBody,
) -> Result<Response, Problem> {
    let request: RemoveRequest<'_> = body.parse()?;
    let answer = state.service.remove(&filter, request.item.as_ref()).await?;
    Ok(Json(RemoveAnswer {
        filter: &filter,
        removed: answer.removed,
        still_in_source: answer.still_in_source,
        watermark: answer.watermark.encode(),
    })
    .into_response())
}
