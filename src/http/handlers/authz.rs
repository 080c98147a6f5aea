//! Forward-auth: a gateway asks whether the end user's token may pass.
//!
//! Invariant: nothing but the token in `Authorization` decides. Gateways pass the end user's own method,
//! path and query on, and may pass the body: none of them is looked at, and what stands behind the
//! name in the path counts for nothing.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;

use crate::http::AppState;
use crate::http::access::Admitted;
use crate::http::bearer::{BearerError, claims};
use crate::http::body::pass_over;
use crate::http::problem::Problem;
use crate::http::problem_kind::ProblemKind;
use crate::service::authz::Decision;

/// The path of the operation; anything may stand behind it.
pub const PATH: &str = "/authz/{name}";

/// What else its requests may come to: gateways append the end user's path.
pub const PATHS_BESIDE: [&str; 4] = [
    "/authz",
    "/authz/",
    "/authz/{name}/",
    "/authz/{name}/{*rest}",
];

/// Decide whether a token may pass
///
/// For gateways. The token is the JWT in `Authorization: Bearer`; its signature must have been verified
/// by whoever asks. `[authz.NAME]` in the configuration says which of its claims are looked for in which
/// filters; its `iat` says when it was issued, for what is revoked up to a time. The status decides: 200
/// lets it pass, 401 says that it is not valid or there is none, 403 that it cannot be told. Any method
/// will do, and whatever follows the name in the path counts for nothing. The gateway's own key is taken
/// from `X-API-Key` alone.
#[utoipa::path(
    get,
    path = "/authz/{name}",
    operation_id = "authorize",
    tag = "gateways",
    params(("name" = String, Path, description = "The name behind `authz.` in the configuration",
        pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", max_length = 64, example = "api")),
    responses((status = 200, description = "The token may pass"))
)]
pub async fn authorize(
    State(state): State<Arc<AppState>>,
    Extension(admitted): Extension<Admitted>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let decided = decide(&state, &admitted, &parts).await;
    pass_over(&parts.headers, body).await;
    match decided {
        Ok(()) => StatusCode::OK.into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn decide(state: &AppState, admitted: &Admitted, parts: &Parts) -> Result<(), Problem> {
    let name = name_in(parts.uri.path());
    let policy = state.authz.iter().find(|policy| policy.name == name);
    let policy = policy.ok_or_else(no_policy)?;
    for claim in &policy.claims {
        admitted.reach(claim.filter.as_str())?;
    }
    let names: Vec<_> = policy
        .claims
        .iter()
        .map(|claim| claim.claim.as_str())
        .collect();
    let claims = claims(&parts.headers, &names).map_err(no_claims)?;
    let issued_at = claims.issued_at_seconds;
    let issued_at = issued_at.and_then(|seconds| Timestamp::from_second(seconds).ok());
    let decided = state
        .service
        .authorize(policy, &claims.values, issued_at)
        .await;
    match decided {
        Decision::Pass => Ok(()),
        Decision::Revoked => Err(invalid_token("the token is revoked")),
        Decision::Refused => Err(invalid_token(
            "a claim of the token is blank, too long, or otherwise none that its filter takes",
        )),
        Decision::Undecided => Err(undecided()),
    }
}

/// The name in a path, as it stands there: one in form needs no escapes.
fn name_in(path: &str) -> &str {
    let rest = path.strip_prefix("/authz/").unwrap_or_default();
    rest.split('/').next().unwrap_or_default()
}

fn no_policy() -> Problem {
    Problem::new(
        ProblemKind::Undecided,
        "the configuration has no [authz.NAME] of the name in the path",
    )
}

fn no_claims(error: BearerError) -> Problem {
    let why = error.to_string();
    match error {
        // RFC 6750 §3.1: whoever brings no token gets a challenge without an error code.
        BearerError::Absent => Problem::new(ProblemKind::MissingToken, why)
            .with_challenge(HeaderValue::from_static("Bearer")),
        BearerError::TwoHeaders | BearerError::Token(_) => invalid_token(why),
    }
}

fn invalid_token(why: impl Into<Cow<'static, str>>) -> Problem {
    Problem::new(ProblemKind::InvalidToken, why)
        .with_challenge(HeaderValue::from_static("Bearer error=\"invalid_token\""))
}

/// The answer where nothing lets the token pass, and nothing speaks against it.
pub fn undecided() -> Problem {
    Problem::new(
        ProblemKind::Undecided,
        "whether the token is revoked cannot be told at the moment; try again",
    )
}
