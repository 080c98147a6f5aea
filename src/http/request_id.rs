//! The id of a request: taken from the caller when it is in form, made otherwise.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The header that carries the id, in and out.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken from a caller.
const MAX_BYTES: usize = 128;

/// Tells the ids of this process from those of another. Random, but never a secret.
static PROCESS: LazyLock<u32> =
    LazyLock::new(|| getrandom::u32().unwrap_or_else(|_| std::process::id()));
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The id of a request: 1 to 128 of `[A-Za-z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The id that the caller gave, or a new one.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(X_REQUEST_ID);
        match given.filter(|given| in_form(given.as_bytes())) {
            Some(given) => Self(given.clone()),
            None => Self::new(),
        }
    }

    /// A prefix and a counter: unique, and much cheaper than a UUID for each request.
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:08x}-{number:x}", *PROCESS);
        // Hexadecimal digits and a hyphen are always a header value.
        Self(HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("-")))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or("-")
    }

    /// As the value of the header.
    #[must_use]
    pub fn into_header(self) -> HeaderValue {
        self.0
    }
}

fn in_form(id: &[u8]) -> bool {
    (1..=MAX_BYTES).contains(&id.len())
        && id
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[u8]) -> RequestId {
        let value = HeaderValue::from_bytes(given).unwrap();
        RequestId::of(&HeaderMap::from_iter([(X_REQUEST_ID, value)]))
    }

    #[test]
    fn an_id_in_form_is_kept_and_any_other_is_replaced() {
        let longest = "a".repeat(128);
        for given in ["a", "AZaz09._-", &longest] {
            assert_eq!(of(given.as_bytes()).as_str(), given);
        }
        let too_long = "a".repeat(129);
        for given in ["", "a b", "ann@x.com", "a\"b", "{}", &too_long, "é"] {
            assert_ne!(of(given.as_bytes()).as_str(), given);
            assert!(in_form(of(given.as_bytes()).as_str().as_bytes()));
        }
    }

    #[test]
    fn made_ids_differ() {
        let headers = HeaderMap::new();
        assert_ne!(RequestId::of(&headers), RequestId::of(&headers));
    }
}
