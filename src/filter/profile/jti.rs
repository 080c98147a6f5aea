//! The `jti` profile: token IDs, compared as exact bytes, case kept (RFC 7519, section 4.1.7).
//!
//! One widening: whatever PostgreSQL reads as a `uuid` becomes lower-case and hyphenated, for
//! that is how a `uuid` column prints it, whichever spelling the issuer put into the token.
//!
//! Invariant: two items that differ have different canonical bytes unless both spell one UUID.

use std::borrow::Cow;

use super::ItemError;

/// Raise it with any change that alters the canonical bytes of any item.
pub(super) const VERSION: u32 = 1;

/// The longest item the API takes, in bytes.
pub(super) const MAX_ITEM_BYTES: usize = 1_024;

const URN_PREFIX: &[u8] = b"urn:uuid:";
const UUID_DIGITS: usize = 32;
/// The URN prefix, two braces, the digits, and a hyphen between each two groups of four.
const MAX_UUID_BYTES: usize = URN_PREFIX.len() + 2 + UUID_DIGITS + UUID_DIGITS / 4 - 1;

/// The item's own bytes, or the lower-case hyphenated form of the UUID that it spells.
pub(super) fn canonical(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    // Most IDs are canonical already: a look at each byte tells, without taking them apart.
    if is_canonical_uuid(bytes) {
        return Cow::Borrowed(bytes);
    }
    match hyphenated_uuid(bytes) {
        Some(uuid) => Cow::Owned(uuid.to_vec()),
        None => Cow::Borrowed(bytes),
    }
}

/// Refuses what is sent in place of a token's ID by mistake: such an item would never match, and
/// every revoked token would pass.
///
/// # Errors
/// [`ItemError::BearerScheme`] and [`ItemError::WholeToken`].
pub(super) fn refuse_token(item: &str) -> Result<(), ItemError> {
    let item = item.trim();
    if let Some((scheme, rest)) = item.split_at_checked("Bearer".len())
        && scheme.eq_ignore_ascii_case("bearer")
        && rest.starts_with(char::is_whitespace)
    {
        return Err(ItemError::BearerScheme);
    }
    if is_whole_token(item) {
        return Err(ItemError::WholeToken);
    }
    Ok(())
}

/// Three base64url parts with dots between (RFC 7515, section 7.1). What begins as a JSON object
/// does in base64url may also lack its signature or be encrypted, in five parts, some of them
/// empty (RFC 7516, section 7.1).
fn is_whole_token(item: &str) -> bool {
    let dots = item.bytes().filter(|&byte| byte == b'.').count();
    let begins_as_object = item.starts_with("eyJ");
    if dots != 2 && !(dots == 4 && begins_as_object) {
        return false;
    }
    item.split('.')
        .all(|part| is_base64url(part) && (begins_as_object || !part.is_empty()))
}

fn is_base64url(part: &str) -> bool {
    part.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn is_canonical_uuid(bytes: &[u8]) -> bool {
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

/// The UUID that the bytes spell, lower-case and hyphenated. Takes what PostgreSQL's `uuid` input
/// takes: 32 hexadecimal digits of either case, a hyphen or none after each group of four, braces
/// around or none; and the URN of RFC 9562, section 4.
fn hyphenated_uuid(bytes: &[u8]) -> Option<[u8; 36]> {
    if !(UUID_DIGITS..=MAX_UUID_BYTES).contains(&bytes.len()) {
        return None;
    }
    let bytes = match bytes.split_at_checked(URN_PREFIX.len()) {
        Some((prefix, rest)) if prefix.eq_ignore_ascii_case(URN_PREFIX) => rest,
        Some(_) | None => bytes,
    };
    let bytes = match bytes {
        [b'{', inside @ .., b'}'] => inside,
        bare => bare,
    };

    let mut uuid = [b'-'; 36];
    let mut places = (0..36).filter(|place| !matches!(place, 8 | 13 | 18 | 23));
    let mut digits = 0;
    let mut after_hyphen = true;
    for byte in bytes {
        if *byte == b'-' {
            if after_hyphen || digits % 4 != 0 || digits == UUID_DIGITS {
                return None;
            }
            after_hyphen = true;
        } else if byte.is_ascii_hexdigit() {
            uuid[places.next()?] = byte.to_ascii_lowercase();
            digits += 1;
            after_hyphen = false;
        } else {
            return None;
        }
    }
    (digits == UUID_DIGITS).then_some(uuid)
}
