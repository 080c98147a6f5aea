//! `[authz.NAME]`: which claims of a token are looked for in which filters.
//!
//! Invariant: what is read is a [`Policy`] within its bounds. A filter that is named need not be
//! declared: it may be made through the API, and until then no token passes. This module must not know
//! how a token is read.

use toml::Value;

use super::filters::NAME_FORM;
use super::problems::{ProblemKind, shown};
use super::section::{Section, text};
use crate::service::authz::{ClaimFilter, OnMaybe, Policy};
use crate::service::declaration::FilterName;

/// Reads `[authz]`; none when it is left out.
pub(super) fn read_authz(section: &mut Section<'_>) -> Vec<Policy> {
    let mut policies = section.named("authz", read_policy).unwrap_or_default();
    policies.sort_by(|left, right| left.name.cmp(&right.name));
    policies
}

fn read_policy(name: &str, section: &mut Section<'_>) -> Option<Policy> {
    // The name stands in a path, as a filter's does.
    let is_in_form = FilterName::parse(name).is_some();
    if !is_in_form {
        let expected = format!("a name of {NAME_FORM}");
        section.own_problem(ProblemKind::unexpected(expected, shown(name)));
    }
    let on_maybe = section.optional("on_maybe", on_maybe).unwrap_or_default();
    let rest = section.take_rest();
    let found = rest.len();
    if found == 0 {
        section.own_problem(ProblemKind::missing(
            "say which claim is looked for in which filter, such as jti = \"revoked-jti\"",
        ));
    }
    if found > Policy::MAX_CLAIMS {
        let expected = format!("at most {} claims", Policy::MAX_CLAIMS);
        section.own_problem(ProblemKind::unexpected(expected, found.to_string()));
    }
    let mut claims = Vec::new();
    for (claim, value) in rest {
        match filter_name(value) {
            Ok(filter) => claims.push(ClaimFilter { claim, filter }),
            Err(kind) => section.problem(&claim, kind),
        }
    }
    is_in_form.then(|| Policy {
        name: name.to_owned(),
        claims,
        on_maybe,
    })
}

fn on_maybe(value: Value) -> Result<OnMaybe, ProblemKind> {
    let text = text(value)?;
    [OnMaybe::Confirm, OnMaybe::Deny]
        .into_iter()
        .find(|on_maybe| on_maybe.as_str() == text)
        .ok_or_else(|| ProblemKind::unexpected("\"confirm\" or \"deny\"", shown(&text)))
}

fn filter_name(value: Value) -> Result<FilterName, ProblemKind> {
    let name = text(value)?;
    FilterName::parse(&name).ok_or_else(|| {
        ProblemKind::unexpected(format!("the name of a filter, {NAME_FORM}"), shown(&name))
    })
}
