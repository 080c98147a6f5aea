//! The end user's token, as a gateway passes it on.
//!
//! Invariant: a request that brings two brings none, whichever of them is good.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use super::token::{self, Claims, TokenError};

/// Why no claims were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BearerError {
    /// There is none.
    #[error("the request has no token; it is sent as Authorization: Bearer")]
    Absent,
    /// There may be two.
    #[error("the request has more than one header Authorization")]
    TwoHeaders,
    /// What there is is none that can be judged.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// The claims of these names of the one token that the request brings behind `Authorization: Bearer`.
///
/// # Errors
/// Where there is no token, or none that can be judged ([`token::claims`]).
pub fn claims(headers: &HeaderMap, names: &[&str]) -> Result<Claims, BearerError> {
    Ok(token::claims(presented(headers)?, names)?)
}

/// What stands behind `Bearer`. Another scheme brings no token (RFC 6750, section 3.1).
fn presented(headers: &HeaderMap) -> Result<&[u8], BearerError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(BearerError::Absent)?.as_bytes();
    if values.next().is_some() {
        return Err(BearerError::TwoHeaders);
    }
    let end_of_scheme = value.iter().position(|byte| *byte == b' ');
    let (scheme, rest) = value.split_at(end_of_scheme.unwrap_or(value.len()));
    let begin = rest.iter().position(|byte| *byte != b' ');
    match begin.map(|begin| &rest[begin..]) {
        Some(token) if scheme.eq_ignore_ascii_case(b"Bearer") => Ok(token),
        Some(_) | None => Err(BearerError::Absent),
    }
}

#[cfg(test)]
mod tests;
