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
use axum::http::{HeaderMap, HeaderValue, StatusCode};
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
    /// A gateway's key, of the scope `check`, and in `X-API-Key` alone: `Authorization` is the end
    /// user's, who gets the answer too. Therefore whoever may not ask gets 403 and no challenge.
    Gateway,
}

impl Need {
    /// The scope that the key must have, where one must be had.
    #[must_use]
    pub const fn scope(self) -> Option<Scope> {
        match self {
            Self::Nothing | Self::AnyKey => None,
            Self::Scope(scope) => Some(scope),
            Self::Gateway => Some(Scope::Check),
        }
    }
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
    /// 401, 403 and 429 as problems; of a gateway 403 alone.
    pub fn admit(
        &self,
        need: Need,
        headers: &HeaderMap,
        filter: Option<&str>,
    ) -> Result<Admitted, Problem> {
        if need == Need::Nothing || self.callers.is_empty() {
            return Ok(Admitted(None));
        }
        match need {
            Need::Gateway => self
                .admit_by(gateway_key(headers), need, filter)
                .map_err(|problem| of_gateway(&problem)),
            Need::Nothing | Need::AnyKey | Need::Scope(_) => {
                self.admit_by(presented_key(headers), need, filter)
            }
        }
    }

    fn admit_by(
        &self,
        presented: Option<&[u8]>,
        need: Need,
        filter: Option<&str>,
    ) -> Result<Admitted, Problem> {
        let presented = presented.ok_or_else(no_key)?;
        let caller = self.caller(presented).ok_or_else(unknown_key)?;
        caller.spend()?;
        if let Some(scope) = need.scope() {
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

/// The one key in `X-API-Key`. Where there are two, one may be the end user's.
fn gateway_key(headers: &HeaderMap) -> Option<&[u8]> {
    let mut keys = headers.get_all("x-api-key").iter();
    let key = keys.next()?;
    keys.next().is_none().then(|| key.as_bytes())
}

/// The refusal of a gateway, which must not challenge the end user.
fn of_gateway(problem: &Problem) -> Problem {
    let reason = match problem.kind().status() {
        StatusCode::UNAUTHORIZED => "it has sent no key that is known here, once, in X-API-Key",
        StatusCode::TOO_MANY_REQUESTS => "its key asks more often than its requests_per_second",
        _ => "its key lacks the scope check, or is limited to other filters",
    };
    Problem::new(
        ProblemKind::Forbidden,
        format!("the gateway may not ask: {reason}"),
    )
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
mod tests;
