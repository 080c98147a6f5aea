//! How a refusal looks: problem details (RFC 9457), one schema for every status.
//!
//! Failures come from five places, and each has one road to here:
//!
//! * the caller (no key, a scope that the key lacks, too many requests): the gate decides, before
//!   anything is read;
//! * the form of the request (no JSON, a wrong type, too large, too slow): the extractors decide;
//! * its meaning (an item that the profile refuses, a capacity out of range) and the state of
//!   things (no such filter, no memory left): the service decides, and `refusal` translates;
//! * the store: the service again. Nothing was acknowledged then;
//! * ourselves: a panic or a missed deadline, caught by the gate.
//!
//! What axum refuses by itself carries no [`Problem`]; the gate gives it one by its status.
//!
//! Invariants: no problem carries an item, a key or a value of the request; what is echoed is
//! at most the name of a field. A [`Problem`] becomes bytes in one place, [`Problem::render`],
//! because only the gate knows the request's id.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::problem_kind::ProblemKind;

/// The media type of every problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// A field at fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// A JSON pointer (RFC 6901) into the body; for a parameter of the path or the query, `/` and
    /// its name.
    #[schema(example = "/items/17")]
    pub pointer: String,
    /// What was expected.
    #[schema(example = "must be a string")]
    pub detail: String,
}

/// Members that some problems have beside the common ones. [`ProblemBody`] documents each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema documents each")]
pub struct Members {
    pub limit_bytes: Option<i64>,
    pub needed_bytes: Option<i64>,
    pub left_bytes: Option<i64>,
    pub line: Option<i64>,
    pub accepted: Option<i64>,
    pub blank: Option<i64>,
    pub watermark: Option<String>,
}

/// Why a request was refused (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody<'a> {
    /// Which kind of problem: a stable name, and the path of a page that explains it.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "/problems/invalid-field")]
    kind: String,
    /// What this kind of problem is, in a few words.
    #[schema(value_type = String)]
    title: &'static str,
    /// The status of the answer.
    #[schema(minimum = 400, maximum = 599)]
    status: i32,
    /// What was expected, what was found, what to do.
    #[schema(value_type = String)]
    detail: &'a str,
    /// The id of the request, as in the header `X-Request-Id`.
    #[schema(value_type = String, max_length = 128)]
    request_id: &'a str,
    /// The fields at fault.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(value_type = Vec<FieldError>, required = false)]
    errors: &'a [FieldError],
    /// The largest body that is read, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    limit_bytes: Option<i64>,
    /// Bytes that the filter needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    needed_bytes: Option<i64>,
    /// Bytes that are left of the memory budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    left_bytes: Option<i64>,
    /// The line of a bulk load at which it ended, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    line: Option<i64>,
    /// Items of a bulk load that were accepted before: they are durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    accepted: Option<i64>,
    /// Blank items of a bulk load that were passed over before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    blank: Option<i64>,
    /// The place of the last accepted item in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, max_length = 128)]
    watermark: Option<&'a str>,
}

/// Why a request was refused, on its way to the gate.
#[derive(Debug, Clone)]
pub struct Problem(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    kind: ProblemKind,
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    members: Members,
    challenge: Option<HeaderValue>,
    retry_after_seconds: Option<u64>,
}

impl Problem {
    /// A problem of a kind. `detail` says what was expected, what was found, what to do.
    pub fn new(kind: ProblemKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Parts {
            kind,
            detail: detail.into(),
            errors: Vec::new(),
            members: Members::default(),
            challenge: None,
            retry_after_seconds: kind.retry_after_seconds(),
        }))
    }

    /// A field at fault; an empty pointer is the body as a whole. The problem's own detail names
    /// the field and says the same.
    pub fn at(kind: ProblemKind, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let (pointer, detail) = (pointer.into(), detail.into());
        let whole = if pointer.is_empty() {
            detail.clone()
        } else {
            format!("{pointer}: {detail}")
        };
        let mut problem = Self::new(kind, whole);
        problem.0.errors.push(FieldError { pointer, detail });
        problem
    }

    /// The problem that stands for a status which was answered without one.
    #[must_use]
    pub fn of_status(status: StatusCode) -> Self {
        let kind = ProblemKind::of_status(status);
        Self::new(kind, kind.title())
    }

    /// What kind of problem it is.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.0.kind
    }

    /// What was expected, what was found, what to do.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The fields at fault.
    #[must_use]
    pub fn errors(&self) -> &[FieldError] {
        &self.0.errors
    }

    /// Members beside the common ones.
    pub fn members_mut(&mut self) -> &mut Members {
        &mut self.0.members
    }

    /// The same problem with the challenge that its `WWW-Authenticate` header gives.
    #[must_use]
    pub fn with_challenge(mut self, challenge: HeaderValue) -> Self {
        self.0.challenge = Some(challenge);
        self
    }

    /// The same problem with the seconds that its `Retry-After` header gives.
    #[must_use]
    pub fn with_retry_after_seconds(mut self, seconds: u64) -> Self {
        self.0.retry_after_seconds = Some(seconds);
        self
    }

    /// Writes body and headers into an answer that carries this problem.
    pub fn render(&self, response: &mut Response, request_id: &str) {
        let parts = &*self.0;
        let members = &parts.members;
        let body = ProblemBody {
            kind: parts.kind.type_path(),
            title: parts.kind.title(),
            status: i32::from(parts.kind.status().as_u16()),
            detail: &parts.detail,
            request_id,
            errors: &parts.errors,
            limit_bytes: members.limit_bytes,
            needed_bytes: members.needed_bytes,
            left_bytes: members.left_bytes,
            line: members.line,
            accepted: members.accepted,
            blank: members.blank,
            watermark: members.watermark.as_deref(),
        };
        // Strings and integers always serialize; an empty body is still a refusal.
        let bytes = serde_json::to_vec(&body).unwrap_or_default();
        *response.status_mut() = parts.kind.status();
        *response.body_mut() = Body::from(bytes);
        let headers = response.headers_mut();
        headers.remove(axum::http::header::CONTENT_LENGTH);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(challenge) = &parts.challenge {
            headers.insert(WWW_AUTHENTICATE, challenge.clone());
        }
        if let Some(seconds) = parts.retry_after_seconds {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
    }
}

impl IntoResponse for Problem {
    /// An answer without a body: the gate renders it.
    fn into_response(self) -> Response {
        let mut response = self.0.kind.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use super::*;

    async fn rendered(problem: Problem) -> (Response, Value) {
        let mut response = problem.clone().into_response();
        problem.render(&mut response, "id-1");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let value = serde_json::from_slice(&bytes).unwrap();
        (Response::from_parts(parts, Body::empty()), value)
    }

    #[tokio::test]
    async fn members_that_do_not_apply_are_left_out_rather_than_null() {
        let (_, body) = rendered(Problem::new(ProblemKind::NotFound, "nothing here")).await;
        assert_eq!(
            body,
            json!({
                "type": "/problems/not-found",
                "title": ProblemKind::NotFound.title(),
                "status": 404,
                "detail": "nothing here",
                "request_id": "id-1",
            })
        );
    }

    #[tokio::test]
    async fn members_stand_flat_beside_the_common_ones() {
        let mut problem = Problem::at(ProblemKind::InvalidItem, "/item", "is blank");
        problem.members_mut().line = Some(3);
        problem.members_mut().watermark = Some("w".into());
        let (_, body) = rendered(problem).await;
        assert_eq!(body["line"], 3);
        assert_eq!(body["watermark"], "w");
        assert_eq!(body["detail"], "/item: is blank");
        assert_eq!(
            body["errors"],
            json!([{"pointer": "/item", "detail": "is blank"}])
        );
    }

    #[tokio::test]
    async fn what_may_pass_says_when_to_come_again() {
        let (response, _) = rendered(Problem::new(ProblemKind::StoreUnavailable, "down")).await;
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert_eq!(response.headers()[CONTENT_TYPE], PROBLEM_JSON);
    }
}
