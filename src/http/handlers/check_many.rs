//! Checking items of several filters.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use crate::http::AppState;
use crate::http::access::Admitted;
use crate::http::body::JsonBody;
use crate::http::problem::Problem;
use crate::http::refusal::in_check;
use crate::http::wire_many::{CheckManyAnswer, CheckManyRequest};

/// Check items of several filters
///
/// One answer a check, in the order of the request, each as `checkItem` gives it. `verdict` is
/// `definitely-not` only where it is said of each. One check that is refused refuses all; a key that
/// is limited to some filters must be allowed each that is named.
#[utoipa::path(
    post,
    path = "/v1/check",
    operation_id = "checkMany",
    tag = "items",
    request_body = CheckManyRequest<'_>,
    responses((status = 200, description = "What may be said of each item, and of all together",
        body = CheckManyAnswer<'_>))
)]
pub async fn check_many(
    State(state): State<Arc<AppState>>,
    Extension(admitted): Extension<Admitted>,
    body: JsonBody,
) -> Result<Response, Problem> {
    let request: CheckManyRequest<'_> = body.parse()?;
    let checks = request.checks();
    for (index, check) in checks.iter().enumerate() {
        // Before any filter is looked for: whether another is there at all is not told.
        let reached = admitted.reach(check.filter);
        reached.map_err(|problem| in_check(&problem, index, "filter"))?;
    }
    let confirm = request.confirm.unwrap_or_default();
    let answer = state.service.check_many(&checks, confirm).await?;
    Ok(Json(CheckManyAnswer::new(&checks, &answer)).into_response())
}
