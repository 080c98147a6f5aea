//! What a filter makes of an item: the canonical bytes that are hashed.
//!
//! Two ways lead in, and they meet in the same bytes:
//!
//! * [`Profile::canonicalize`] takes a row of a database. It is total: a row that is not blank
//!   always has canonical bytes, however odd it looks, for a skipped row would be answered
//!   `definitely-not`.
//! * [`Profile::accept`] takes an item from a caller, who can be told of a mistake. It refuses
//!   what cannot be meant, and canonicalizes the rest exactly as a row.
//!
//! Invariants: whatever `accept` takes has the canonical bytes that `canonicalize` gives for the
//! same text; canonicalizing canonical bytes changes nothing. Whenever a change alters the bytes
//! of any item, the version of its profile is raised, so that no filter mixes the two.
//!
//! This module must not know where items come from or where they go, and puts none of them into
//! a message or into `Debug` output.

mod email;
mod identity;
mod jti;
mod text;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::str;

pub use email::EmailOptions;
pub use identity::ProfileIdentity;

/// How a filter turns an item into its canonical bytes. Name, version and options together are
/// part of a filter's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// JWT IDs: exact bytes, save that every spelling of a UUID meets in one.
    Jti,
    /// Addresses: at least as coarse as any unique index over them.
    Email(EmailOptions),
    /// Any text: exact bytes.
    Text,
}

/// The canonical bytes of an item.
#[derive(Clone, PartialEq, Eq)]
pub struct Canonical<'a> {
    /// What is hashed. Borrowed from the item where nothing had to change.
    pub bytes: Cow<'a, [u8]>,
    /// Whether a fallback was taken: bytes that are no UTF-8, or what is no address under the
    /// `email` profile. Such an item is found by the same text all the same.
    pub odd: bool,
}

impl fmt::Debug for Canonical<'_> {
    /// Shows the length alone: canonical bytes are as private as the item they come from.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Canonical")
            .field("length_bytes", &self.bytes.len())
            .field("odd", &self.odd)
            .finish()
    }
}

/// Why an item is refused at the API. No message holds any part of the item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// Nothing would be left of it.
    #[error("expected an item, found nothing but white space; send the value to look for")]
    Blank,
    /// Over the bound of its profile.
    #[error(
        "expected at most {limit_bytes} bytes of UTF-8, found {found_bytes}; \
         send the value itself, without anything around it"
    )]
    TooLong {
        /// [`Profile::max_item_bytes`].
        limit_bytes: usize,
        /// How long the item is.
        found_bytes: usize,
    },
    /// A character that no text column can hold, so that no row could ever match it.
    #[error("expected text, found the character U+0000 in it; send the value without it")]
    Nul,
    /// A whole token in place of its ID.
    #[error(
        "expected a token's ID, found what is shaped like a whole token (base64url parts with \
         dots between); decode the token and send the value of its `jti` claim"
    )]
    WholeToken,
    /// The value of an Authorization header in place of a token's ID.
    #[error(
        "expected a token's ID, found the authorization scheme Bearer; take the token from the \
         header, decode it and send the value of its `jti` claim"
    )]
    BearerScheme,
}

impl Profile {
    /// The name that stands in configuration, API and snapshots.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Jti => "jti",
            Self::Email(_) => "email",
            Self::Text => "text",
        }
    }

    /// The version of the rules. Canonical bytes of different versions must never be mixed in
    /// one filter.
    #[must_use]
    pub fn version(&self) -> u32 {
        match self {
            Self::Jti => jti::VERSION,
            Self::Email(_) => email::VERSION,
            Self::Text => text::VERSION,
        }
    }

    /// The longest item that [`Self::accept`] takes, in bytes of UTF-8. Rows know no such bound.
    #[must_use]
    pub fn max_item_bytes(&self) -> usize {
        match self {
            Self::Jti => jti::MAX_ITEM_BYTES,
            Self::Email(_) => email::MAX_ITEM_BYTES,
            Self::Text => text::MAX_ITEM_BYTES,
        }
    }

    /// The canonical bytes of a row; none exactly when it is blank, that is empty, white space
    /// alone, or (for `email`) nothing that would leave a canonical form.
    ///
    /// Bytes that are no UTF-8 are read as Latin-1, which has a character for each of them, and
    /// the row counts as odd. Takes time in proportion to the row's length and never panics.
    #[must_use]
    pub fn canonicalize<'a>(&self, row: &'a [u8]) -> Option<Canonical<'a>> {
        if let Ok(text) = str::from_utf8(row) {
            return self.canonical_text(text);
        }
        let latin1: String = row.iter().copied().map(char::from).collect();
        self.canonical_text(&latin1).map(|canonical| Canonical {
            bytes: Cow::Owned(canonical.bytes.into_owned()),
            odd: true,
        })
    }

    /// The canonical bytes of a caller's item: the same that [`Self::canonicalize`] gives for it.
    ///
    /// # Errors
    /// When the item is blank, longer than [`Self::max_item_bytes`], holds U+0000, or, for `jti`,
    /// is a whole token or the value of an Authorization header.
    pub fn accept<'a>(&self, item: &'a str) -> Result<Canonical<'a>, ItemError> {
        if item.as_bytes().contains(&0) {
            return Err(ItemError::Nul);
        }
        // Before the length: a whole token is often over it, and the hint helps more.
        if matches!(self, Self::Jti) {
            jti::refuse_token(item)?;
        }
        let limit_bytes = self.max_item_bytes();
        if item.len() > limit_bytes {
            return Err(ItemError::TooLong {
                limit_bytes,
                found_bytes: item.len(),
            });
        }
        self.canonical_text(item).ok_or(ItemError::Blank)
    }

    fn canonical_text<'a>(&self, text: &'a str) -> Option<Canonical<'a>> {
        if text.trim_start().is_empty() {
            return None;
        }
        match self {
            Self::Jti => Some(Canonical {
                bytes: jti::canonical(text),
                odd: false,
            }),
            Self::Email(options) => email::canonical(text, *options),
            Self::Text => Some(Canonical {
                bytes: text::canonical(text),
                odd: false,
            }),
        }
    }
}
