//! `[authz.NAME]`.

use super::*;
use crate::service::authz::OnMaybe;

/// The claims of a policy, each with its filter.
fn claims(policy: &Policy) -> Vec<(&str, &str)> {
    let claims = policy.claims.iter();
    claims
        .map(|claim| (claim.claim.as_str(), claim.filter.as_str()))
        .collect()
}

#[test]
fn claims_of_any_name_are_looked_for_in_filters_declared_or_not() {
    let config = World::with_file(
        "[authz.web]\nsub = \"revoked-subject\"\n\"https://a.example/id\" = \"made-later\"\n\
         on_maybe = \"deny\"\n[authz.api]\njti = \"revoked-jti\"",
    )
    .config();
    let [api, web] = &config.authz[..] else {
        panic!("{:?}", config.authz)
    };
    assert_eq!((api.name.as_str(), api.on_maybe), ("api", OnMaybe::Confirm));
    assert_eq!(claims(api), [("jti", "revoked-jti")]);
    assert_eq!((web.name.as_str(), web.on_maybe), ("web", OnMaybe::Deny));
    let mut of_web = claims(web);
    of_web.sort_unstable();
    let expected = [
        ("https://a.example/id", "made-later"),
        ("sub", "revoked-subject"),
    ];
    assert_eq!(of_web, expected);
    assert!(World::default().config().authz.is_empty());
}

#[test]
fn what_takes_effect_reads_back_to_the_same() {
    let file =
        "[authz.api]\njti = \"revoked-jti\"\n\"a \\\"b\\\"\\n=c\" = \"x\"\non_maybe = \"deny\"";
    let config = World::with_file(file).config();
    let shown = config.effective();
    let again = World::with_file(&shown).config();
    assert_eq!(again.authz, config.authz, "{shown}");
}

#[test]
fn a_fault_has_its_key() {
    let many: String = (0..17)
        .map(|number| format!("c{number} = \"revoked-jti\"\n"))
        .collect();
    let many = format!("[authz.api]\n{many}");
    for (file, keys) in [
        ("authz = 3", &["authz"][..]),
        ("authz.api = 3", &["authz.api"]),
        ("[authz.api]", &["authz.api"]),
        ("[authz.api]\non_maybe = \"deny\"", &["authz.api"]),
        ("[authz.API]\njti = \"revoked-jti\"", &["authz.API"]),
        ("[authz.api]\njti = 3", &["authz.api.jti"]),
        ("[authz.api]\njti = \"Revoked\"", &["authz.api.jti"]),
        ("[authz.api]\njti = [\"revoked-jti\"]", &["authz.api.jti"]),
        (
            "[authz.api]\njti = \"revoked-jti\"\non_maybe = \"allow\"",
            &["authz.api.on_maybe"],
        ),
        (
            "[authz.api]\njti = \"revoked-jti\"\non_mayb = \"deny\"",
            &["authz.api.on_mayb"],
        ),
        (&many, &["authz.api"]),
    ] {
        assert_eq!(World::with_file(file).faulty_keys(), keys, "{file}");
    }
}
