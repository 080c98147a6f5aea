//! The handlers: each takes what it needs out of the request, makes one call to the service, and
//! answers with a type of the wire.

pub mod add;
pub mod authz;
pub mod bulk_load;
pub mod check;
pub mod check_many;
pub mod docs;
pub mod filters;
pub mod metrics;
pub mod plan;
pub mod probes;
pub mod remove;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use utoipa::IntoParams;

use super::problem::Problem;
use crate::service::error::ServiceError;

/// The name of a filter, as it stands in the path. Whether it is in form is for the service.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct FilterInPath {
    /// The name of the filter.
    #[param(
        pattern = "^[a-z0-9][a-z0-9_-]{0,63}$",
        max_length = 64,
        example = "revoked-jti"
    )]
    pub filter: String,
}

impl<S: Send + Sync> FromRequestParts<S> for FilterInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(filter)) => Ok(Self { filter }),
            // What cannot be taken out of the path, such as bytes that are no UTF-8.
            Err(_) => Err(ServiceError::InvalidFilterName.into()),
        }
    }
}
