//! Declaring, describing and deleting filters.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::FilterInPath;
use crate::http::AppState;
use crate::http::access::Admitted;
use crate::http::body::JsonBody;
use crate::http::problem::Problem;
use crate::http::wire_filters::{FilterDescription, FilterList, PutFilterRequest, RebuildAnswer};
use crate::service::answers::PutOutcome;

/// List the filters
///
/// A key that is limited to some filters sees those alone.
#[utoipa::path(
    get,
    path = "/v1/filters",
    operation_id = "listFilters",
    tag = "filters",
    responses((status = 200, description = "Every filter, by name", body = FilterList))
)]
pub async fn list_filters(
    State(state): State<Arc<AppState>>,
    Extension(admitted): Extension<Admitted>,
) -> Json<FilterList> {
    let filters = state.service.list().into_iter();
    Json(FilterList {
        filters: filters
            .filter(|description| admitted.allows(description.filter.as_str()))
            .map(Into::into)
            .collect(),
    })
}

/// Describe a filter
///
/// Its rate and cardinality are measured from the bits that are set, not taken from the
/// declaration.
#[utoipa::path(
    get,
    path = "/v1/filters/{filter}",
    operation_id = "describeFilter",
    tag = "filters",
    params(FilterInPath),
    responses((status = 200, description = "What is known of the filter", body = FilterDescription))
)]
pub async fn describe_filter(
    State(state): State<Arc<AppState>>,
    FilterInPath { filter }: FilterInPath,
) -> Result<Json<FilterDescription>, Problem> {
    Ok(Json(state.service.describe(&filter).await?.into()))
}

/// Make a filter
///
/// Declaring it again in the same way does no harm. A declaration is not changed in place: delete
/// the filter first.
#[utoipa::path(
    put,
    path = "/v1/filters/{filter}",
    operation_id = "putFilter",
    tag = "filters",
    params(FilterInPath),
    request_body = PutFilterRequest,
    responses(
        (status = 200, description = "The filter was there, declared the same", body = FilterDescription),
        (status = 201, description = "The filter was made", body = FilterDescription)
    )
)]
pub async fn put_filter(
    State(state): State<Arc<AppState>>,
    FilterInPath { filter }: FilterInPath,
    body: JsonBody,
) -> Result<(StatusCode, Json<FilterDescription>), Problem> {
    let request: PutFilterRequest = body.parse()?;
    let outcome = state.service.put(&filter, request.declaration()?).await?;
    let (status, description) = match outcome {
        PutOutcome::Made(description) => (StatusCode::CREATED, description),
        PutOutcome::SameAlready(description) => (StatusCode::OK, description),
    };
    Ok((status, Json(description.into())))
}

/// Rebuild a filter
///
/// A new bit array is built from the store and the sources beside the one that answers, and takes
/// its place: without what was removed or has expired, and large enough for what is there. Checks go
/// on meanwhile. Asked again before it is through, this tells how far it has come.
#[utoipa::path(
    post,
    path = "/v1/filters/{filter}/rebuild",
    operation_id = "rebuildFilter",
    tag = "filters",
    params(FilterInPath),
    responses((status = 202, description = "The rebuild is under way", body = RebuildAnswer))
)]
pub async fn rebuild_filter(
    State(state): State<Arc<AppState>>,
    FilterInPath { filter }: FilterInPath,
) -> Result<(StatusCode, Json<RebuildAnswer>), Problem> {
    let answer = state.service.rebuild(&filter).await?;
    Ok((
        StatusCode::ACCEPTED,
        Json(RebuildAnswer::new(filter, answer)),
    ))
}

/// Delete a filter
///
/// Its items are deleted with it. A filter that the configuration declares stays.
#[utoipa::path(
    delete,
    path = "/v1/filters/{filter}",
    operation_id = "deleteFilter",
    tag = "filters",
    params(FilterInPath),
    responses((status = 204, description = "The filter is deleted"))
)]
pub async fn delete_filter(
    State(state): State<Arc<AppState>>,
    FilterInPath { filter }: FilterInPath,
) -> Result<StatusCode, Problem> {
    state.service.delete(&filter).await?;
    Ok(StatusCode::NO_CONTENT)
}
