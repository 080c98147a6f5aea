//! Who may ask, and who may not.

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
    let asks =
        |text: &str, scope| kind(access.admit(Need::Scope(scope), &with("x-api-key", text), None));
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

#[test]
fn a_gateway_has_its_key_in_one_header_alone_and_is_refused_without_a_challenge() {
    let mut limited = key("limited", &[Scope::Check]);
    limited.filters = FilterName::parse("mine").map(|name| vec![name]);
    let access = Access::new(vec![
        key("check", &[Scope::Check]),
        key("add", &[Scope::Add]),
        limited,
    ]);
    let asks = |headers: &HeaderMap, filter| access.admit(Need::Gateway, headers, filter);
    assert!(asks(&with("x-api-key", "check"), None).is_ok());
    assert!(asks(&with("x-api-key", "limited"), Some("mine")).is_ok());
    let mut twice = with("x-api-key", "check");
    twice.append("x-api-key", HeaderValue::from_static("check"));
    for (headers, filter) in [
        (HeaderMap::new(), None),
        (with("authorization", "Bearer check"), None),
        (with("x-api-key", "unknown"), None),
        (with("x-api-key", "add"), None),
        (with("x-api-key", "limited"), Some("other")),
        (twice, None),
    ] {
        let problem = asks(&headers, filter).unwrap_err();
        assert_eq!(problem.kind(), ProblemKind::Forbidden, "{headers:?}");
        let mut response = axum::response::Response::default();
        problem.render(&mut response, "id");
        assert!(!response.headers().contains_key("www-authenticate"));
    }
    // The other key beside the end user's token, which is none of ours.
    let mut both = with("authorization", "Bearer of-the-end-user");
    both.append("x-api-key", HeaderValue::from_static("check"));
    assert!(asks(&both, None).is_ok());
}
