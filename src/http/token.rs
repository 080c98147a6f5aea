//! Tokens: the values of the claims that are asked about, and when the token was issued.
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
use serde_json::value::RawValue;

use super::numeric_date::whole_seconds;

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

/// When the token was issued (RFC 7519, section 4.1.6).
const ISSUED_AT: &str = "iat";

/// What a token says.
#[derive(Clone)]
pub struct Claims {
    /// The values of the claims that were asked about, in the order of their names.
    pub values: Vec<ClaimValue>,
    /// When it was issued, in seconds since 1970-01-01 UTC, downwards. None where it does not say so by a
    /// number, or by one past the range of 64 bits.
    pub issued_at_seconds: Option<i64>,
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

/// The values of the claims of these names, and when the token was issued.
///
/// # Errors
/// Where the text is no token, a claim does not stand in it exactly once and as a string, or `iat` stands
/// there twice.
pub fn claims(token: &[u8], names: &[&str]) -> Result<Claims, TokenError> {
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
fn read(json: &str, names: &[&str]) -> serde_json::Result<Claims> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let claims = deserializer.deserialize_map(ClaimsVisitor { names })?;
    deserializer.end()?;
    Ok(claims)
}

struct ClaimsVisitor<'n> {
    names: &'n [&'n str],
}

impl<'de> Visitor<'de> for ClaimsVisitor<'_> {
    type Value = Claims;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = vec![None; self.names.len()];
        let mut issued_at: Option<&RawValue> = None;
        while let Some(name) = map.next_key_seed(Name { asked: self.names })? {
            let is_there_twice = match name {
                Claim::Asked(place) => {
                    let value = ClaimValue(map.next_value()?);
                    found[place].replace(value).is_some()
                }
                Claim::IssuedAt => issued_at.replace(map.next_value()?).is_some(),
                Claim::Other => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
            if is_there_twice {
                return Err(A::Error::custom("a claim stands there twice"));
            }
        }
        let all: Option<Vec<_>> = found.into_iter().collect();
        Ok(Claims {
            values: all.ok_or_else(|| A::Error::custom("a claim is missing"))?,
            issued_at_seconds: issued_at.and_then(|json| whole_seconds(json.get())),
        })
    }
}

/// Which claim a name is of.
enum Claim {
    /// One that is asked about, in this place.
    Asked(usize),
    IssuedAt,
    Other,
}

/// Reads a claim's name, escapes resolved.
struct Name<'n> {
    asked: &'n [&'n str],
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Claim;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Claim;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(match self.asked.iter().position(|asked| *asked == name) {
            Some(place) => Claim::Asked(place),
            None if name == ISSUED_AT => Claim::IssuedAt,
            None => Claim::Other,
        })
    }
}
