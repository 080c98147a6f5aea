//! The `text` profile: exact bytes, for whatever has no rules of its own.
//!
//! Invariant: canonical bytes are the item's own. Case, white space and Unicode form all tell.

use std::borrow::Cow;

/// Raise it with any change that alters the canonical bytes of any item.
pub(super) const VERSION: u32 = 1;

/// The longest item the API takes, in bytes.
pub(super) const MAX_ITEM_BYTES: usize = 4_096;

/// The item's own bytes.
pub(super) fn canonical(text: &str) -> Cow<'_, [u8]> {
    Cow::Borrowed(text.as_bytes())
}
