//! The watermark: an opaque token that names a store and a place in it.
//!
//! Invariant: what [`Watermark::encode`] gives, [`Watermark::parse`] takes, on every replica and
//! after every restart. Nothing but these two may look inside the text.
//!
//! Grammar, before base64url without padding (RFC 4648 §5), numbers big-endian:
//!
//! ```text
//! watermark = version identity place
//! version   = %x01
//! identity  = 16OCTET   ; the store's UUID
//! place     = 8OCTET    ; the place of the add in the store
//! ```

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use super::ports::{Place, StoreIdentity};

const VERSION: u8 = 1;
const BYTES: usize = 1 + 16 + 8;

/// Where an add stands, and in which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermark {
    /// The store that the add was written to.
    pub store: StoreIdentity,
    /// The place of the add in it.
    pub place: Place,
}

impl Watermark {
    /// The longest text that is looked at, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// The token: URL-safe text of at most [`Watermark::MAX_BYTES`].
    #[must_use]
    pub fn encode(self) -> String {
        let mut bytes = [0; BYTES];
        bytes[0] = VERSION;
        bytes[1..17].copy_from_slice(self.store.0.as_bytes());
        bytes[17..].copy_from_slice(&self.place.0.to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a token; none when it is malformed.
    #[must_use]
    pub fn parse(token: &str) -> Option<Self> {
        if token.len() > Self::MAX_BYTES {
            return None;
        }
        let bytes: [u8; BYTES] = URL_SAFE_NO_PAD.decode(token).ok()?.try_into().ok()?;
        let (version, rest) = bytes.split_first()?;
        let (identity, place) = rest.split_first_chunk::<16>()?;
        (*version == VERSION).then_some(())?;
        Some(Self {
            store: StoreIdentity(Uuid::from_bytes(*identity)),
            place: Place(u64::from_be_bytes(*place.first_chunk()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watermark(place: u64) -> Watermark {
        Watermark {
            store: StoreIdentity(Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef)),
            place: Place(place),
        }
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        for place in [0, 1, u64::from(u32::MAX), u64::MAX] {
            let token = watermark(place).encode();
            assert!(token.len() <= Watermark::MAX_BYTES);
            assert!(
                token
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            );
            assert_eq!(Watermark::parse(&token), Some(watermark(place)));
        }
    }

    #[test]
    fn the_format_is_pinned_since_callers_keep_tokens_across_upgrades() {
        assert_eq!(
            watermark(731).encode(),
            "AQEjRWeJq83vASNFZ4mrze8AAAAAAAAC2w"
        );
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let token = watermark(5).encode();
        let other_version = format!("B{}", &token[1..]);
        let too_long = "A".repeat(129);
        for malformed in [
            "",
            "A",
            "not a token",
            &token[1..],
            &other_version,
            &too_long,
        ] {
            assert_eq!(Watermark::parse(malformed), None, "{malformed}");
        }
    }
}
