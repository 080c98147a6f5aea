//! What a filter is declared to be: its name, profile, capacity and rate, and who declared it.
//!
//! Invariant: a value of these types is within bounds; the constructors are the only way in.
//! This module must not know where a declaration is written down.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::filter::profile::Profile;
use crate::filter::sizing::{Sizing, SizingError};

/// The name of a filter: `[a-z0-9][a-z0-9_-]{0,63}`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilterName(Arc<str>);

impl FilterName {
    /// Longest name, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Takes a name that is in form; none otherwise.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let bytes = name.as_bytes();
        let first = *bytes.first()?;
        let in_form = bytes.len() <= Self::MAX_BYTES
            && (first.is_ascii_lowercase() || first.is_ascii_digit())
            && bytes.iter().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-')
            });
        in_form.then(|| Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// So that a name from a request finds its entry without a copy.
impl Borrow<str> for FilterName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FilterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What a filter is declared to be. Two equal declarations give the same filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// How an item becomes canonical bytes, options included.
    pub profile: Profile,
    /// What the filter is sized for.
    pub sizing: Sizing,
    /// The sources that feed it, sorted by name. Whoever has no such sources configured cannot know
    /// their rows and must not say `definitely-not`.
    pub sources: Vec<DeclaredSource>,
}

/// A source, as far as a declaration tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredSource {
    /// Its name, unique within the filter.
    pub name: String,
    /// SHA-256 of its query.
    pub query_digest: [u8; 32],
}

impl Declaration {
    /// A declaration without sources.
    ///
    /// # Errors
    /// When capacity or rate are out of range.
    pub fn new(
        profile: Profile,
        capacity: u64,
        false_positive_rate: f64,
    ) -> Result<Self, SizingError> {
        Ok(Self {
            profile,
            sizing: Sizing::new(capacity, false_positive_rate)?,
            sources: Vec::new(),
        })
    }

    /// Whether a generation that was built for this has every item of one that is built for
    /// `other`: the same profile and the same sources. Sizes are each process' own.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.profile == other.profile && self.sources == other.sources
    }
}

/// Who declared a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclaredBy {
    /// The configuration: it cannot be deleted through the API.
    Config,
    /// A PUT.
    Api,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_form_are_taken_and_others_are_not() {
        let longest = "a".repeat(64);
        for name in ["a", "0", "revoked-jti", "a_b-c9", longest.as_str()] {
            assert!(FilterName::parse(name).is_some(), "{name}");
        }
        let too_long = "a".repeat(65);
        for name in [
            "",
            "-a",
            "_a",
            "A",
            "a b",
            "é",
            "a/b",
            "a.b",
            too_long.as_str(),
        ] {
            assert!(FilterName::parse(name).is_none(), "{name}");
        }
    }
}
