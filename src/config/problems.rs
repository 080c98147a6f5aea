//! What can be wrong with a configuration, and the list of everything that is.
//!
//! Invariants: a problem names its key and the remedy; no message carries a secret. A value that
//! may hold one (it looks like a URL or an API key, or stands under a key that takes one) is
//! described and not shown. This module must not know which keys there are.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::filter::sizing::SizingError;

/// What is wrong with one key.
#[derive(Debug, thiserror::Error)]
pub enum ProblemKind {
    /// The file is no TOML.
    #[error("line {line}, column {column}: {detail}; correct the TOML there")]
    Syntax {
        /// Line of the first fault, from 1.
        line: usize,
        /// Column of the first fault, in characters from 1.
        column: usize,
        /// What the parser says.
        detail: String,
    },
    /// A file that is named could not be read.
    #[error("{} cannot be read ({source}): name a file that this user may read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A key that has no meaning.
    #[error("there is no such key; {}", remedy_for_unknown(*nearest))]
    UnknownKey {
        /// A known key that is written much the same.
        nearest: Option<&'static str>,
    },
    /// A key that must be there is not.
    #[error("is missing: {remedy}")]
    Missing {
        /// What to do.
        remedy: String,
    },
    /// A value of the wrong type, out of form or out of bounds.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What is accepted.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// A capacity or a rate that no filter can be sized for.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// A value that is well formed and cannot hold together with the rest.
    #[error("{found}: {remedy}")]
    Conflict {
        /// What does not go together.
        found: String,
        /// What to do.
        remedy: String,
    },
}

impl ProblemKind {
    pub(super) fn unexpected(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Unexpected {
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(super) fn conflict(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Conflict {
            found: found.into(),
            remedy: remedy.into(),
        }
    }

    pub(super) fn missing(remedy: impl Into<String>) -> Self {
        Self::Missing {
            remedy: remedy.into(),
        }
    }
}

fn remedy_for_unknown(nearest: Option<&str>) -> String {
    match nearest {
        Some(known) => format!("did you mean {known}?"),
        None => "remove it".to_owned(),
    }
}

/// One thing that is wrong with the configuration.
#[derive(Debug)]
pub struct Problem {
    key: String,
    origin: Option<String>,
    kind: ProblemKind,
}

impl Problem {
    /// The key at fault, as a path: `filters.revoked-jti.sources[0].query`.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is wrong with it.
    #[must_use]
    pub fn kind(&self) -> &ProblemKind {
        &self.kind
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(formatter, "{} (from {origin}): {}", self.key, self.kind),
            None => write!(formatter, "{}: {}", self.key, self.kind),
        }
    }
}

/// Everything that is wrong with a configuration: at least one problem. Prints one a line.
#[derive(Debug, thiserror::Error)]
#[error("{}", lines(problems))]
pub struct ConfigErrors {
    problems: Vec<Problem>,
}

impl ConfigErrors {
    /// The problems, in the order in which they were found.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

/// Gathers problems while a configuration is read.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: Vec<Problem>,
    origins: BTreeMap<&'static str, &'static str>,
}

impl Problems {
    /// Notes that a top-level key was set by a flag or a variable and not by the file, so that
    /// its problems say where to look.
    pub(super) fn note_origin(&mut self, key: &'static str, origin: &'static str) {
        self.origins.insert(key, origin);
    }

    /// Adds a problem with the key.
    pub(super) fn add(&mut self, key: impl Into<String>, kind: ProblemKind) {
        let key = key.into();
        let origin = self
            .origins
            .get(key.as_str())
            .map(|origin| (*origin).to_owned());
        self.found.push(Problem { key, origin, kind });
    }

    /// Whether the key, or one below it, has a problem already.
    pub(super) fn concern(&self, key: &str) -> bool {
        self.found.iter().any(|problem| {
            let rest = problem.key.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    /// The value, if nothing was wrong.
    pub(super) fn or_value<T>(self, value: T) -> Result<T, ConfigErrors> {
        if self.found.is_empty() {
            Ok(value)
        } else {
            Err(self.into_errors())
        }
    }

    /// The problems as an error.
    pub(super) fn into_errors(self) -> ConfigErrors {
        ConfigErrors {
            problems: self.found,
        }
    }
}

/// A text as a message may show it: quoted, escaped and cut short, or only described when it may
/// hold a secret (a URL with a password, an address, an API key in the wrong place).
pub(super) fn shown(text: &str) -> String {
    const LONGEST_CHARACTERS: usize = 40;
    let length = text.chars().count();
    let may_be_secret = text.contains('@')
        || text.contains("://")
        || text.starts_with(super::keys::SECRET_PREFIX)
        || length > LONGEST_CHARACTERS;
    if may_be_secret {
        format!("a text of {length} characters (not shown)")
    } else {
        format!("{text:?}")
    }
}
