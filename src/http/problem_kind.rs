//! Every kind of problem: its name, status and title, and the page that explains it.
//!
//! The names are part of the interface: callers branch on them. The table feeds the answers, the
//! pages under `/problems/` and the document.

use axum::http::StatusCode;

/// A kind of problem. [`ProblemKind::row`] documents each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the table below documents each")]
pub enum ProblemKind {
    MalformedBody,
    Unauthenticated,
    MissingToken,
    InvalidToken,
    Forbidden,
    Undecided,
    NotFound,
    UnknownFilter,
    MethodNotAllowed,
    BodyTimeout,
    DeclaredOtherwise,
    DeclaredByConfig,
    BodyTooLarge,
    UnsupportedMediaType,
    InvalidField,
    InvalidItem,
    OverMemoryBudget,
    TooManyRequests,
    InternalError,
    StoreUnavailable,
    TooManyAdds,
    RequestTimeout,
}

/// A line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name: the last part of `type`.
    pub name: &'static str,
    /// The status of the answer.
    pub status: StatusCode,
    /// What it is, in a few words.
    pub title: &'static str,
    /// What it means and what to do.
    pub explanation: &'static str,
}

const fn row(
    name: &'static str,
    status: StatusCode,
    title: &'static str,
    explanation: &'static str,
) -> Row {
    Row {
        name,
        status,
        title,
        explanation,
    }
}

impl ProblemKind {
    /// Every kind, by status.
    pub const ALL: [Self; 22] = [
        Self::MalformedBody,
        Self::Unauthenticated,
        Self::MissingToken,
        Self::InvalidToken,
        Self::Forbidden,
        Self::Undecided,
        Self::NotFound,
        Self::UnknownFilter,
        Self::MethodNotAllowed,
        Self::BodyTimeout,
        Self::DeclaredOtherwise,
        Self::DeclaredByConfig,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::InvalidField,
        Self::InvalidItem,
        Self::OverMemoryBudget,
        Self::TooManyRequests,
        Self::InternalError,
        Self::StoreUnavailable,
        Self::TooManyAdds,
        Self::RequestTimeout,
    ];

    /// The table.
    #[must_use]
    pub const fn row(self) -> Row {
        match self {
            Self::MalformedBody => row(
                "malformed-body",
                StatusCode::BAD_REQUEST,
                "The body cannot be read",
                "The body is no JSON, or it ended early. Send one JSON value in UTF-8.",
            ),
            Self::Unauthenticated => row(
                "unauthenticated",
                StatusCode::UNAUTHORIZED,
                "A valid key is needed",
                "The request has no key, or one that is not known here. Send it as X-API-Key, or \
                 as Authorization: Bearer. `bloomgate key new` makes one.",
            ),
            Self::MissingToken => row(
                "missing-token",
                StatusCode::UNAUTHORIZED,
                "A token is needed",
                "The end user's request has no token. It is sent as Authorization: Bearer.",
            ),
            Self::InvalidToken => row(
                "invalid-token",
                StatusCode::UNAUTHORIZED,
                "The token is not valid",
                "The token is revoked, is no signed JWT, is there twice, or lacks a claim that is \
                 asked about: each must stand in it once, as a string.",
            ),
            Self::Forbidden => row(
                "forbidden",
                StatusCode::FORBIDDEN,
                "The key does not allow this",
                "The key is known and lacks the scope of the operation, or is limited to other \
                 filters. Use another key, or widen this one in the configuration.",
            ),
            Self::Undecided => row(
                "undecided",
                StatusCode::FORBIDDEN,
                "Whether the token is revoked cannot be told",
                "The filter is loading or stale and what it says could not be looked up, or there \
                 is no such filter or no such [authz.NAME]. Nothing is known against the token; \
                 trying again may help.",
            ),
            Self::NotFound => row(
                "not-found",
                StatusCode::NOT_FOUND,
                "There is nothing at this path",
                "No operation has this path. /openapi.json lists those that there are.",
            ),
            Self::UnknownFilter => row(
                "unknown-filter",
                StatusCode::NOT_FOUND,
                "No such filter",
                "No filter of this name is hosted here. GET /v1/filters lists those that are; PUT \
                 /v1/filters/{filter} makes one. Never read this as `definitely-not`.",
            ),
            Self::MethodNotAllowed => row(
                "method-not-allowed",
                StatusCode::METHOD_NOT_ALLOWED,
                "The path does not take this method",
                "The header Allow lists the methods that the path takes.",
            ),
            Self::BodyTimeout => row(
                "body-timeout",
                StatusCode::REQUEST_TIMEOUT,
                "The body came too slowly",
                "No byte of the body arrived for too long. What a bulk load had accepted before is \
                 durable; the answer says how much that is.",
            ),
            Self::DeclaredOtherwise => row(
                "declared-otherwise",
                StatusCode::CONFLICT,
                "The filter is declared otherwise",
                "A filter of this name is there with another profile, capacity or rate. A \
                 declaration is not changed in place: delete the filter first, or declare it as \
                 it is.",
            ),
            Self::DeclaredByConfig => row(
                "declared-by-config",
                StatusCode::CONFLICT,
                "The configuration declares the filter",
                "A filter that the configuration declares is not deleted through the API. Take it \
                 out of the configuration and restart.",
            ),
            Self::BodyTooLarge => row(
                "body-too-large",
                StatusCode::PAYLOAD_TOO_LARGE,
                "The body is too large",
                "The member limit_bytes gives the largest body that is read. Send smaller batches, \
                 or stream through bulk-load, which takes any length.",
            ),
            Self::UnsupportedMediaType => row(
                "unsupported-media-type",
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "The media type is not supported",
                "Operations take Content-Type: application/json; bulk-load takes \
                 application/x-ndjson or text/plain. The text is UTF-8 and not compressed.",
            ),
            Self::InvalidField => row(
                "invalid-field",
                StatusCode::UNPROCESSABLE_ENTITY,
                "A field is not as it must be",
                "A field of the body, or a parameter of the path or query, is missing, unknown, \
                 given twice, of the wrong type or out of range. The member errors points to it. \
                 Nothing was changed.",
            ),
            Self::InvalidItem => row(
                "invalid-item",
                StatusCode::UNPROCESSABLE_ENTITY,
                "An item is refused",
                "An item is blank, too long, holds U+0000, or is not what the filter's profile \
                 takes: a jti is the token's ID, never the whole token. The member errors points \
                 to it. But for what a bulk load says it accepted, nothing was changed.",
            ),
            Self::OverMemoryBudget => row(
                "over-memory-budget",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The filter does not fit into memory",
                "The members needed_bytes and left_bytes say by how much. Declare less capacity or \
                 a higher rate, delete a filter, or raise memory_budget.",
            ),
            Self::TooManyRequests => row(
                "too-many-requests",
                StatusCode::TOO_MANY_REQUESTS,
                "The key asks too often",
                "The key has a limit of requests a second. The header Retry-After says when to \
                 come again; the batch operations need fewer requests.",
            ),
            Self::InternalError => row(
                "internal-error",
                StatusCode::INTERNAL_SERVER_ERROR,
                "Something went wrong in bloomgate",
                "This is a defect. The log has a line with the request's id. Whether an add was \
                 taken is not known: repeat it, which does no harm.",
            ),
            Self::StoreUnavailable => row(
                "store-unavailable",
                StatusCode::SERVICE_UNAVAILABLE,
                "The store cannot take this at the moment",
                "The store was not reached yet, or cannot be written. Nothing was acknowledged: \
                 repeat the request later. Checks do not depend on it.",
            ),
            Self::TooManyAdds => row(
                "too-many-adds",
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many adds are waiting for the store",
                "The queue to the store is full and nothing was acknowledged. Repeat the request \
                 after the seconds in Retry-After.",
            ),
            Self::RequestTimeout => row(
                "request-timeout",
                StatusCode::SERVICE_UNAVAILABLE,
                "The request took too long",
                "The answer was not ready within request_timeout. Whether an add was taken is not \
                 known: repeat it, which does no harm.",
            ),
        }
    }

    /// The name: the last part of `type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// What stands in `type`: the path of the page.
    #[must_use]
    pub fn type_path(self) -> String {
        format!("/problems/{}", self.name())
    }

    /// The status of the answer.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        self.row().status
    }

    /// What it is, in a few words.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.row().title
    }

    /// The kind of a name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind that stands for a status which was answered without a problem.
    #[must_use]
    pub fn of_status(status: StatusCode) -> Self {
        let first_of_status = Self::ALL.into_iter().find(|kind| kind.status() == status);
        first_of_status.unwrap_or(if status.is_server_error() {
            Self::InternalError
        } else {
            Self::MalformedBody
        })
    }

    /// The least seconds after which trying again may help; none where it will not.
    #[must_use]
    pub const fn retry_after_seconds(self) -> Option<u64> {
        match self {
            Self::TooManyRequests
            | Self::StoreUnavailable
            | Self::TooManyAdds
            | Self::RequestTimeout => Some(1),
            Self::MalformedBody
            | Self::Unauthenticated
            | Self::MissingToken
            | Self::InvalidToken
            | Self::Forbidden
            | Self::Undecided
            | Self::NotFound
            | Self::UnknownFilter
            | Self::MethodNotAllowed
            | Self::BodyTimeout
            | Self::DeclaredOtherwise
            | Self::DeclaredByConfig
            | Self::BodyTooLarge
            | Self::UnsupportedMediaType
            | Self::InvalidField
            | Self::InvalidItem
            | Self::OverMemoryBudget
            | Self::InternalError => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_kebab_case_and_each_its_own() {
        let names: HashSet<_> = ProblemKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), ProblemKind::ALL.len());
        for name in names {
            assert!(
                name.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-'),
                "{name}"
            );
        }
    }

    #[test]
    fn the_names_and_statuses_that_callers_branch_on_are_pinned() {
        let table: Vec<_> = ProblemKind::ALL
            .iter()
            .map(|kind| (kind.status().as_u16(), kind.name()))
            .collect();
        assert_eq!(
            table,
            [
                (400, "malformed-body"),
                (401, "unauthenticated"),
                (401, "missing-token"),
                (401, "invalid-token"),
                (403, "forbidden"),
                (403, "undecided"),
                (404, "not-found"),
                (404, "unknown-filter"),
                (405, "method-not-allowed"),
                (408, "body-timeout"),
                (409, "declared-otherwise"),
                (409, "declared-by-config"),
                (413, "body-too-large"),
                (415, "unsupported-media-type"),
                (422, "invalid-field"),
                (422, "invalid-item"),
                (422, "over-memory-budget"),
                (429, "too-many-requests"),
                (500, "internal-error"),
                (503, "store-unavailable"),
                (503, "too-many-adds"),
                (503, "request-timeout"),
            ]
        );
    }
}
