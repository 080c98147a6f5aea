//! API keys: who may do what, and how a new one is made.
//!
//! Invariants: the configuration holds a key's SHA-256 and never the key; a key is made of 32
//! random bytes, so that a plain digest is enough. This module must not know how a request
//! carries its key.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use toml::Value;

use super::filters::NAME_FORM;
use super::problems::{ProblemKind, shown};
use super::section::{Section, number, text, texts};
use crate::service::declaration::FilterName;

/// What every key that [`new_key`] makes begins with, so that scanners for leaked secrets and
/// people know one when they see it.
pub const SECRET_PREFIX: &str = "bg_";

const SECRET_RANDOM_BYTES: usize = 32;
const MAX_ID_BYTES: usize = 64;
const MAX_REQUESTS_PER_SECOND: u32 = 1_000_000;

/// The form of a key's id, for messages.
pub const KEY_ID_FORM: &str = "1 to 64 of A-Z, a-z, 0-9, -, _ and ., not beginning with bg_";

/// One thing that a key may be good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Ask whether items may be in a filter.
    Check,
    /// Add items.
    Add,
    /// Read descriptions, plans, metrics and the document.
    Read,
    /// Everything, with making, emptying and deleting filters.
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 4] = [Self::Check, Self::Add, Self::Read, Self::Admin];

    /// The scope as configuration and messages write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Add => "add",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Check => 1,
            Self::Add => 2,
            Self::Read => 4,
            Self::Admin => 8,
        }
    }
}

/// A text that is no scope.
#[derive(Debug, thiserror::Error)]
#[error("expected check, add, read or admin, found {found}")]
pub struct UnknownScope {
    found: String,
}

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.as_str() == text)
            .ok_or_else(|| UnknownScope { found: shown(text) })
    }
}

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// Whether the set is good for this: it has the scope, or `admin`, which has all.
    #[must_use]
    pub const fn allow(self, scope: Scope) -> bool {
        self.0 & (scope.bit() | Scope::Admin.bit()) != 0
    }

    /// The scopes as they were given, in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL
            .into_iter()
            .filter(move |scope| self.0 & scope.bit() != 0)
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

/// A key that may be used. Debug shows no digest.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// What logs call it; unique.
    pub id: String,
    /// SHA-256 of the whole key, prefix included; unique.
    pub sha256: [u8; 32],
    /// What it is good for.
    pub scopes: Scopes,
    /// The filters that it is good for; none means all. A filter that is not declared may be
    /// made later.
    pub filters: Option<Vec<FilterName>>,
    /// Most requests a second; none means no bound.
    pub requests_per_second: Option<NonZeroU32>,
}

impl ApiKey {
    /// The digest under which a key is configured and looked up.
    #[must_use]
    pub fn digest(secret: &[u8]) -> [u8; 32] {
        Sha256::digest(secret).into()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ApiKey")
            .field("id", &self.id)
            .field("scopes", &self.scopes)
            .field("filters", &self.filters)
            .field("requests_per_second", &self.requests_per_second)
            .finish_non_exhaustive()
    }
}

/// A key that was just made.
#[derive(Debug)]
pub struct NewKey {
    /// The key itself: to be shown once, and kept nowhere.
    pub secret: SecretString,
    /// The `[[keys]]` block to paste into the configuration.
    pub block: String,
}

/// Whether a text may be a key's id. It stands in logs, and so must not be the key itself.
#[must_use]
pub fn is_key_id(text: &str) -> bool {
    let in_form = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_ID_BYTES).contains(&text.len())
        && text.bytes().all(in_form)
        && !text.starts_with(SECRET_PREFIX)
}

/// Makes a key from 32 bytes of the system's randomness. `id` must satisfy [`is_key_id`];
/// `filters` none means all.
///
/// # Errors
/// When the system gives no randomness.
pub fn new_key(
    id: &str,
    scopes: Scopes,
    filters: Option<&[FilterName]>,
) -> Result<NewKey, getrandom::Error> {
    let mut random = [0; SECRET_RANDOM_BYTES];
    getrandom::fill(&mut random)?;
    let secret = format!("{SECRET_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random));
    let digest = hex::encode(ApiKey::digest(secret.as_bytes()));
    let mut block = format!(
        "[[keys]]\nid = \"{id}\"\nsha256 = \"{digest}\"\nscopes = {}\n",
        quoted_list(scopes.iter().map(Scope::as_str))
    );
    if let Some(filters) = filters {
        let names = quoted_list(filters.iter().map(FilterName::as_str));
        block.push_str(&format!("filters = {names}\n"));
    }
    Ok(NewKey {
        secret: secret.into(),
        block,
    })
}

/// A TOML array of names that need no escape.
pub(super) fn quoted_list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

/// Reads `[[keys]]`.
pub(super) fn read_keys(section: &mut Section<'_>) -> Vec<ApiKey> {
    let mut ids: Vec<String> = Vec::new();
    let mut digests: Vec<[u8; 32]> = Vec::new();
    section.tables("keys", |key| read_key(key, &mut ids, &mut digests))
}

fn read_key(
    section: &mut Section<'_>,
    ids: &mut Vec<String>,
    digests: &mut Vec<[u8; 32]>,
) -> Option<ApiKey> {
    let id = section.required("id", "give the key a name for the logs", |value| {
        unique(key_id(value)?, ids, "another key has this id")
    });
    let sha256 = section.required(
        "sha256",
        "give the SHA-256 that `bloomgate key new` prints",
        |value| unique(digest(value)?, digests, "another key has this digest"),
    );
    let scopes = section.required("scopes", "state what the key is good for", scopes);
    let filters = section.optional("filters", filter_names);
    let requests_per_second = section
        .optional("requests_per_second", |value| {
            number(value, &(1..=MAX_REQUESTS_PER_SECOND))
        })
        .and_then(NonZeroU32::new);
    Some(ApiKey {
        id: id?,
        sha256: sha256?,
        scopes: scopes?,
        filters,
        requests_per_second,
    })
}

fn unique<T: PartialEq + Clone>(
    value: T,
    taken: &mut Vec<T>,
    found: &str,
) -> Result<T, ProblemKind> {
    if taken.contains(&value) {
        return Err(ProblemKind::conflict(found, "remove one of the two"));
    }
    taken.push(value.clone());
    Ok(value)
}

fn key_id(value: Value) -> Result<String, ProblemKind> {
    let id = text(value)?;
    if is_key_id(&id) {
        Ok(id)
    } else {
        Err(ProblemKind::unexpected(KEY_ID_FORM, shown(&id)))
    }
}

/// Whoever pastes the key itself in here must not find it in a log: the text is never shown.
fn digest(value: Value) -> Result<[u8; 32], ProblemKind> {
    let text = text(value)?;
    let mut digest = [0; 32];
    if hex::decode_to_slice(&text, &mut digest).is_err() {
        return Err(ProblemKind::unexpected(
            "the key's SHA-256 as 64 hexadecimal digits, as `bloomgate key new` prints it",
            format!("{} characters (not shown)", text.chars().count()),
        ));
    }
    if digest == ApiKey::digest(b"") {
        let found = "this is the digest of an empty key";
        let remedy = "make one with `bloomgate key new`";
        return Err(ProblemKind::conflict(found, remedy));
    }
    Ok(digest)
}

fn scopes(value: Value) -> Result<Scopes, ProblemKind> {
    let expected = "an array of check, add, read and admin";
    let names = texts(value)?;
    if names.is_empty() {
        return Err(ProblemKind::unexpected(expected, "an empty one"));
    }
    names
        .iter()
        .map(|name| {
            name.parse::<Scope>()
                .map_err(|unknown| ProblemKind::unexpected(expected, unknown.found))
        })
        .collect()
}

fn filter_names(value: Value) -> Result<Vec<FilterName>, ProblemKind> {
    let names = texts(value)?;
    if names.is_empty() {
        let remedy = "leave it out for all filters, or name some";
        return Err(ProblemKind::conflict("names no filter", remedy));
    }
    names
        .iter()
        .map(|name| {
            FilterName::parse(name).ok_or_else(|| {
                ProblemKind::unexpected(format!("filter names of {NAME_FORM}"), shown(name))
            })
        })
        .collect()
}
