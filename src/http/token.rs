//! Tokens: the values of the claims that are asked about.
//!
//! A token is a JWT in the compact form of RFC 7515: three parts in base64url. Its signature is not
//! verified; that is for whoever takes the token.
//!
//! Invariants:
//!
//! * what cannot be read in exactly one way is no token. A library that takes padding, or the last
//!   of two claims, may see another token than this does; it is refused, never guessed at;
//! * no fault holds anything of the token.
//!
//! This module must not know how a token comes, nor what its claims are asked for.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// The longest token that is read, in bytes.
pub const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// The value of a claim. It has no `Debug`, for it is an item.
#[derive(Clone)]
pub struct ClaimValue(pub String);

impl AsRef<str> for ClaimValue {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Why a text is no token that can be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is over [`MAX_TOKEN_BYTES`].
    #[error("the token is longer than {MAX_TOKEN_BYTES} bytes")]
    TooLong,
    /// It has five parts.
    #[error("the token is encrypted (five parts), so that its claims cannot be read")]
    Encrypted,
    /// It is not three parts in base64url, of which the first holds an object.
    #[error("what stands behind Bearer is no signed JWT (three parts in base64url)")]
    Malformed,
    /// Its second part is no object that has each claim.
    #[error("the token does not have each claim that is asked about exactly once, as a string")]
    Claims,
}

/// The values of the claims of these names, in their order.
///
/// # Errors
/// Where the text is no token, or a claim does not stand in it exactly once and as a string.
pub fn claims(token: &[u8], names: &[&str]) -> Result<Vec<ClaimValue>, TokenError> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TokenError::TooLong);
    }
    let mut parts = token.split(|byte| *byte == b'.');
    let (Some(header), Some(payload), Some(signature)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenError::Malformed);
    };
    match parts.count() {
        0 => {}
        2 => return Err(TokenError::Encrypted),
        _ => return Err(TokenError::Malformed),
    }
    // Without a signature nobody can have verified it.
    if signature.is_empty() || BASE64_URL_SAFE_NO_PAD.decode(signature).is_err() {
        return Err(TokenError::Malformed);
    }
    let header = decoded(header)?;
    read(&header, &[]).map_err(|_| TokenError::Malformed)?;
    read(&decoded(payload)?, names).map_err(|_| TokenError::Claims)
}

/// The text of a part.
fn decoded(part: &[u8]) -> Result<String, TokenError> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(part);
    let bytes = bytes.map_err(|_| TokenError::Malformed)?;
    String::from_utf8(bytes).map_err(|_| TokenError::Malformed)
}

/// Reads a JSON object, and of it what is asked about.
fn read(json: &str, names: &[&str]) -> serde_json::Result<Vec<ClaimValue>> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let values = deserializer.deserialize_map(Claims { names })?;
    deserializer.end()?;
    Ok(values)
}

struct Claims<'n> {
    names: &'n [&'n str],
}

impl<'de> Visitor<'de> for Claims<'_> {
    type Value = Vec<ClaimValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = vec![None; self.names.len()];
        while let Some(place) = map.next_key_seed(Place { names: self.names })? {
            let Some(place) = place else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = ClaimValue(map.next_value()?);
            if found[place].replace(value).is_some() {
                return Err(A::Error::custom("a claim stands there twice"));
            }
        }
        let all: Option<Vec<_>> = found.into_iter().collect();
        all.ok_or_else(|| A::Error::custom("a claim is missing"))
    }
}

/// Reads a claim's name, escapes resolved: where it stands among those that are asked about.
struct Place<'n> {
    names: &'n [&'n str],
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Place<'_> {
    type Value = Option<usize>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.names.iter().position(|asked| *asked == name))
    }
}
