//! The watermark: an opaque token that names a store and a place in it.
//!
//! Invariant: what [`Watermark::encode`] gives, [`Watermark::parse`] takes, on every replica and
//! after every restart. Nothing but these two may look inside the text.
//!
//! Grammar, before base64url without padding (RFC 4648 §5), numbers big-endian:
//!
//! ```text
//! watermark = version timeline place
//! version   = %x02
//! timeline  = 16OCTET   ; what the place counts within: the store, and the state that it is in
//! place     = 8OCTET    ; the place of the add in the store
//! ```
//!
//! Version 1 had the store's identity alone, and said nothing about a store that was put back to an
//! earlier state. Such a watermark is of another timeline than any.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::cursor::Timeline;
use super::ingest::Position;
use super::ports::Place;

const VERSION: u8 = 2;
/// The version before, which callers may still have.
const STORE_ALONE: u8 = 1;
const BYTES: usize = 1 + 16 + 8;

/// Where an add stands, and in which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermark(pub Position);

impl Watermark {
    /// The longest text that is looked at, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// The token: URL-safe text of at most [`Watermark::MAX_BYTES`].
    #[must_use]
    pub fn encode(self) -> String {
        let mut bytes = [0; BYTES];
        bytes[0] = VERSION;
        let Position { timeline, place } = self.0;
        bytes[1..17].copy_from_slice(&timeline.0);
        bytes[17..].copy_from_slice(&place.0.to_be_bytes());
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
        let (timeline, place) = rest.split_first_chunk::<16>()?;
        let place = Place(u64::from_be_bytes(*place.first_chunk()?));
        let timeline = match *version {
            VERSION => Timeline(*timeline),
            // Its sixteen bytes mean something else; these are no timeline's but by a chance of 2^-128.
            STORE_ALONE => Timeline([0; 16]),
            _ => return None,
        };
        Some(Self(Position { timeline, place }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watermark(place: u64) -> Watermark {
        let timeline = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128;
        Watermark(Position {
            timeline: Timeline(timeline.to_be_bytes()),
            place: Place(place),
        })
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
            "AgEjRWeJq83vASNFZ4mrze8AAAAAAAAC2w"
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
