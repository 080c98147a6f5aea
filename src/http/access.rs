//! Who may ask what: the one piece of code that decides it.
//!
//! A key is known by its SHA-256 alone. Keys are long and random, so that neither a slow hash nor
//! a salt would add anything, and the digest of what a caller presents is nothing that the caller
//! can steer: it selects the candidate, and the candidate is compared in constant time.
//!
//! Invariant: with keys configured, nothing but an open route passes without a key. This module
//! must not know routes or handlers; a route says what it needs.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use subtle::ConstantTimeEq;

use super::problem::Problem;
use super::problem_kind::ProblemKind;
use crate::config::{ApiKey, Scope};

/// What a route needs of whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// Any known key.
    AnyKey,
    /// A key of this scope.
    Scope(Scope),
}

/// The keys that are known.
#[derive(Debug, Default)]
pub struct Access {
    /// By the first bytes of the digest. Empty: no key is configured and everything is allowed.
    callers: HashMap<[u8; 8], Vec<Arc<Caller>>>,
}

/// A known key, and what it has used.
#[derive(Debug)]
pub struct Caller {
    key: ApiKey,
    limiter: Option<DefaultDirectRateLimiter>,
}

/// Whoever asks, as admitted. None when no keys are configured or the route is open.
#[derive(Debug, Clone)]
pub struct Admitted(Option<Arc<Caller>>);

impl Admitted {
    /// The name of the key; `-` without one.
    #[must_use]
    pub fn key_id(&self) -> &str {
        self.0.as_ref().map_or("-", |caller| &caller.key.id)
    }

    /// Whether the caller may know of the filter.
    #[must_use]
    pub fn allows(&self, filter: &str) -> bool {
        let caller = self.0.as_ref();
        caller.is_none_or(|caller| caller.allows_filter(filter))
    }

    /// Decides whether the caller may ask a filter, for a request that names it elsewhere than in
    /// its path.
    ///
    /// # Errors
    /// 403 where its key is limited to others.
    pub fn reach(&self, filter: &str) -> Result<(), Problem> {
        if self.allows(filter) {
            return Ok(());
        }
        Err(other_filters())
    }
}

impl Access {
    /// Access by these keys; without any, everything is allowed.
    #[must_use]
    pub fn new(keys: Vec<ApiKey>) -> Self {
        let mut callers: HashMap<_, Vec<_>> = HashMap::new();
        for key in keys {
            let limiter = key
                .requests_per_second
                .map(|rate| RateLimiter::direct(Quota::per_second(rate)));
            let (prefix, _) = split_digest(&key.sha256);
            let caller = Arc::new(Caller { key, limiter });
            callers.entry(prefix).or_default().push(caller);
        }
        Self { callers }
    }

    /// Decides whether a request may pass. `filter` is the name in its path, as it stands there.
    ///
    /// # Errors
    /// 401, 403 and 429 as problems.
    pub fn admit(
        &self,
        need: Need,
        headers: &HeaderMap,
        filter: Option<&str>,
    ) -> Result<Admitted, Problem> {
        if need == Need::Nothing || self.callers.is_empty() {
            return Ok(Admitted(None));
        }
        let presented = presented_key(headers).ok_or_else(no_key)?;
        let caller = self.caller(presented).ok_or_else(unknown_key)?;
        caller.spend()?;
        if let Need::Scope(scope) = need {
            caller.hold_scope(scope)?;
        }
        let admitted = Admitted(Some(Arc::clone(caller)));
        if let Some(filter) = filter {
            admitted.reach(filter)?;
        }
        Ok(admitted)
    }

    fn caller(&self, presented: &[u8]) -> Option<&Arc<Caller>> {
        let digest = ApiKey::digest(presented);
        let (prefix, _) = split_digest(&digest);
        let candidates = self.callers.get(&prefix)?;
        candidates
            .iter()
            .find(|caller| bool::from(caller.key.sha256.ct_eq(&digest)))
    }
}

impl Caller {
    fn spend(&self) -> Result<(), Problem> {
        let Some(limiter) = &self.limiter else {
            return Ok(());
        };
        limiter.check().map_err(|not_until| {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            Problem::new(
                ProblemKind::TooManyRequests,
                "the key asks more often than its requests_per_second; wait, or send batches",
            )
            .with_retry_after_seconds(wait.as_secs() + 1)
        })
    }

    fn hold_scope(&self, scope: Scope) -> Result<(), Problem> {
        if self.key.scopes.allow(scope) {
            return Ok(());
        }
        let scope = scope.as_str();
        let problem = Problem::new(
            ProblemKind::Forbidden,
            format!("the key lacks the scope {scope}; use another key, or give it the scope"),
        );
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
        Err(match HeaderValue::try_from(challenge) {
            Ok(challenge) => problem.with_challenge(challenge),
            Err(_) => problem,
        })
    }

    fn allows_filter(&self, filter: &str) -> bool {
        let filters = self.key.filters.as_ref();
        filters.is_none_or(|filters| filters.iter().any(|allowed| allowed.as_str() == filter))
    }
}

fn split_digest(digest: &[u8; 32]) -> ([u8; 8], &[u8]) {
    let [a, b, c, d, e, f, g, h, rest @ ..] = digest;
    ([*a, *b, *c, *d, *e, *f, *g, *h], rest)
}

/// The key in `X-API-Key`, or else behind `Authorization: Bearer`.
fn presented_key(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(key) = headers.get("x-api-key") {
        return Some(key.as_bytes());
    }
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

/// RFC 6750 §3.1: whoever brings no token gets a challenge without an error code.
fn no_key() -> Problem {
    Problem::new(
        ProblemKind::Unauthenticated,
        "the request has no key; send it as X-API-Key or as Authorization: Bearer",
    )
    .with_challenge(HeaderValue::from_static("Bearer realm=\"bloomgate\""))
}

fn unknown_key() -> Problem {
    Problem::new(
        ProblemKind::Unauthenticated,
        "the key is not known here; `bloomgate key new` makes one",
    )
    .with_challenge(HeaderValue::from_static(
        "Bearer realm=\"bloomgate\", error=\"invalid_token\"",
    ))
}

fn other_filters() -> Problem {
    Problem::new(
        ProblemKind::Forbidden,
        "the key is limited to other filters; use another key, or add the filter to this one",
    )
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::service::declaration::FilterName;

    fn key(text: &str, scopes: &[Scope]) -> ApiKey {
        ApiKey {
            id: format!("id-of-{}", scopes.len()),
            sha256: ApiKey::digest(text.as_bytes()),
            scopes: scopes.iter().copied().collect(),
            filters: None,
            requests_per_second: None,
        }
    }

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            axum::http::HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        )])
    }

    fn kind(result: Result<Admitted, Problem>) -> Option<ProblemKind> {
        result.err().map(|problem| problem.kind())
    }

    const CHECK: Need = Need::Scope(Scope::Check);

    #[test]
    fn without_keys_everything_is_allowed() {
        let access = Access::new(vec![]);
        let admin = Need::Scope(Scope::Admin);
        assert!(access.admit(admin, &HeaderMap::new(), Some("f")).is_ok());
    }

    #[test]
    fn a_key_is_taken_from_either_header_and_no_other_text_is() {
        let access = Access::new(vec![key("secret", &[Scope::Check])]);
        for headers in [
            with("x-api-key", "secret"),
            with("authorization", "Bearer secret"),
            with("authorization", "bearer secret"),
        ] {
            assert_eq!(kind(access.admit(CHECK, &headers, None)), None);
        }
        for headers in [
            HeaderMap::new(),
            with("x-api-key", "Secret"),
            with("x-api-key", ""),
            with("x-api-key", "secret2"),
            with("authorization", "secret"),
            with("authorization", "Basic secret"),
            with("authorization", "Bearer"),
        ] {
            assert_eq!(
                kind(access.admit(CHECK, &headers, None)),
                Some(ProblemKind::Unauthenticated),
                "{headers:?}"
            );
        }
    }

    #[test]
    fn two_digests_that_begin_alike_are_two_keys() {
        let mut other = key("secret", &[Scope::Admin]);
        other.sha256[31] ^= 1;
        let access = Access::new(vec![other]);
        let presented = with("x-api-key", "secret");
        assert_eq!(
            kind(access.admit(CHECK, &presented, None)),
            Some(ProblemKind::Unauthenticated)
        );
    }

    #[test]
    fn a_scope_opens_its_own_operations_and_admin_opens_all() {
        let access = Access::new(vec![
            key("c", &[Scope::Check]),
            key("all", &[Scope::Admin, Scope::Check, Scope::Check]),
        ]);
        let asks = |text: &str, scope| {
            kind(access.admit(Need::Scope(scope), &with("x-api-key", text), None))
        };
        assert_eq!(asks("c", Scope::Check), None);
        for scope in [Scope::Add, Scope::Read, Scope::Admin] {
            assert_eq!(asks("c", scope), Some(ProblemKind::Forbidden), "{scope:?}");
            assert_eq!(asks("all", scope), None, "{scope:?}");
        }
    }

    #[test]
    fn a_key_of_some_filters_reaches_and_sees_no_other() {
        let mut limited = key("l", &[Scope::Check]);
        limited.filters = FilterName::parse("mine").map(|name| vec![name]);
        let access = Access::new(vec![limited]);
        let headers = with("x-api-key", "l");
        let admitted = access.admit(CHECK, &headers, Some("mine")).unwrap();
        for other in ["other", "min%65", "MINE", ""] {
            assert_eq!(
                kind(access.admit(CHECK, &headers, Some(other))),
                Some(ProblemKind::Forbidden)
            );
        }
        assert!(admitted.allows("mine") && !admitted.allows("other"));
        assert!(admitted.reach("mine").is_ok());
        let refused = admitted.reach("other").unwrap_err();
        assert_eq!(refused.kind(), ProblemKind::Forbidden);
    }

    #[test]
    fn a_key_that_asks_too_often_is_told_when_to_come_again() {
        let mut limited = key("l", &[Scope::Check]);
        limited.requests_per_second = NonZeroU32::new(2);
        let access = Access::new(vec![limited, key("free", &[Scope::Check])]);
        let headers = with("x-api-key", "l");
        let refused = (0..4).find_map(|_| access.admit(CHECK, &headers, None).err());
        let problem = refused.expect("four at once are more than two a second");
        assert_eq!(problem.kind(), ProblemKind::TooManyRequests);
        let free = with("x-api-key", "free");
        assert_eq!(kind(access.admit(CHECK, &free, None)), None);
    }

    #[test]
    fn an_open_route_needs_nothing_and_any_key_is_any_known_key() {
        let access = Access::new(vec![key("c", &[])]);
        assert_eq!(
            kind(access.admit(Need::Nothing, &HeaderMap::new(), None)),
            None
        );
        assert_eq!(
            kind(access.admit(Need::AnyKey, &with("x-api-key", "c"), None)),
            None
        );
        assert_eq!(
            kind(access.admit(Need::AnyKey, &HeaderMap::new(), None)),
            Some(ProblemKind::Unauthenticated)
        );
    }
}
