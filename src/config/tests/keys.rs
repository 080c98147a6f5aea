//! What keys are good for, and that a new one works.

use super::*;
use crate::service::declaration::FilterName;

fn scopes(scopes: &[Scope]) -> Scopes {
    scopes.iter().copied().collect()
}

#[test]
fn a_key_is_good_for_its_scopes_and_an_admin_for_all() {
    let gateway = scopes(&[Scope::Check, Scope::Read]);
    assert!(gateway.allow(Scope::Check) && gateway.allow(Scope::Read));
    assert!(!gateway.allow(Scope::Add) && !gateway.allow(Scope::Admin));
    let admin = scopes(&[Scope::Admin]);
    assert!(Scope::ALL.into_iter().all(|scope| admin.allow(scope)));
    let none = scopes(&[]);
    assert!(!Scope::ALL.into_iter().any(|scope| none.allow(scope)));
}

#[test]
fn the_block_of_a_new_key_configures_that_key() {
    let filter = FilterName::parse("revoked-jti").expect("in form");
    let granted = scopes(&[Scope::Check, Scope::Add]);
    let key =
        new_key("signup.v1", granted, Some(std::slice::from_ref(&filter))).expect("randomness");
    assert!(!key.block.contains(exposed(&key.secret)));
    let config = World::with_file(&key.block).config();
    let expected = ApiKey {
        id: "signup.v1".to_owned(),
        sha256: ApiKey::digest(exposed(&key.secret).as_bytes()),
        scopes: granted,
        filters: Some(vec![filter]),
        requests_per_second: None,
    };
    assert!(config.keys == [expected], "{:?}", config.keys);
}

#[test]
fn a_new_key_is_marked_long_and_never_the_same() {
    let make = || new_key("a", scopes(&[Scope::Check]), None).expect("randomness");
    let (one, other) = (make(), make());
    let secret = exposed(&one.secret);
    // 32 bytes are 43 characters of base64.
    assert_eq!(secret.len(), SECRET_PREFIX.len() + 43);
    assert!(secret.starts_with("bg_"));
    assert_ne!(secret, exposed(&other.secret));
}

#[test]
fn a_configured_key_has_what_its_block_says() {
    let file = format!(
        "[[keys]]\nid = \"gateway\"\nsha256 = \"{}\"\nscopes = [\"check\", \"read\"]\n\
         filters = [\"not-yet-made\"]\nrequests_per_second = 250",
        SHA256.to_uppercase()
    );
    let config = World::with_file(&file).config();
    let key = &config.keys[0];
    assert_eq!(key.sha256, ApiKey::digest(b"test"));
    assert_eq!(key.scopes, scopes(&[Scope::Check, Scope::Read]));
    let filters = key.filters.as_ref().expect("filters");
    assert_eq!(filters[0].as_str(), "not-yet-made");
    assert_eq!(key.requests_per_second.map(u32::from), Some(250));
}
