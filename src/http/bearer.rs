//! The end user's token, as a gateway passes it on: the values of the claims that are asked about.
//!
//! The token is a JWT in the compact form of RFC 7515: three parts in base64url. Its signature is
//! not verified; that is the gateway's.
//!
//! Invariants:
//!
//! * what cannot be read in exactly one way is no token. A library that takes padding, or the last
//!   of two claims, may see another token than this does; it is refused, never guessed at;
//! * no fault holds anything of the token.
//!
//! This module must not know what the values are asked for.

use std::borrow::Cow;
use std::fmt;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::parse::Text;

/// The longest token that is read, in bytes.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// Why no claims were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFault {
    /// The request brings no token.
    Absent,
    /// What it brings is none that can be judged; says why.
    Invalid(&'static str),
}

const TWO_HEADERS: TokenFault =
    TokenFault::Invalid("the request has more than one header Authorization");
const TOO_LONG: TokenFault = TokenFault::Invalid("the token is too long");
const ENCRYPTED: TokenFault =
    TokenFault::Invalid("the token is encrypted (five parts), so that its claims cannot be read");
const NO_TOKEN: TokenFault =
    TokenFault::Invalid("what stands behind Bearer is no signed JWT (three parts in base64url)");
const NO_CLAIMS: TokenFault = TokenFault::Invalid(
    "the token does not have each claim that is asked about exactly once, as a string",
);

/// The values of the claims of these names, in their order, of the one token that the request
/// brings behind `Authorization: Bearer`.
///
/// # Errors
/// Where there is no token, or none that has each claim exactly once and as a string.
pub fn claims(headers: &HeaderMap, names: &[&str]) -> Result<Vec<Text<'static>>, TokenFault> {
    claims_of(presented(headers)?, names)
}

/// What stands behind `Bearer`. Another scheme brings no token (RFC 6750, section 3.1).
fn presented(headers: &HeaderMap) -> Result<&[u8], TokenFault> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(TokenFault::Absent)?.as_bytes();
    if values.next().is_some() {
        return Err(TWO_HEADERS);
    }
    let end_of_scheme = value.iter().position(|byte| *byte == b' ');
    let (scheme, rest) = value.split_at(end_of_scheme.unwrap_or(value.len()));
    let begin = rest.iter().position(|byte| *byte != b' ');
    match begin.map(|begin| &rest[begin..]) {
        Some(token) if scheme.eq_ignore_ascii_case(b"Bearer") => Ok(token),
        Some(_) | None => Err(TokenFault::Absent),
    }
}

fn claims_of(token: &[u8], names: &[&str]) -> Result<Vec<Text<'static>>, TokenFault> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TOO_LONG);
    }
    let mut parts = token.split(|byte| *byte == b'.');
    let (Some(header), Some(payload), Some(signature)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err(NO_TOKEN);
    };
    match parts.count() {
        0 => {}
        2 => return Err(ENCRYPTED),
        _ => return Err(NO_TOKEN),
    }
    // Without a signature nobody can have verified it.
    if signature.is_empty() || BASE64_URL_SAFE_NO_PAD.decode(signature).is_err() {
        return Err(NO_TOKEN);
    }
    let anything = Claims { names: &[] };
    anything.read(&decoded(header)?).map_err(|_| NO_TOKEN)?;
    let claims = Claims { names };
    claims.read(&decoded(payload)?).map_err(|_| NO_CLAIMS)
}

/// The text of a part.
fn decoded(part: &[u8]) -> Result<String, TokenFault> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| NO_TOKEN)?;
    String::from_utf8(bytes).map_err(|_| NO_TOKEN)
}

/// Reads a JSON object, and of it what is asked about.
struct Claims<'n> {
    names: &'n [&'n str],
}

impl Claims<'_> {
    fn read(self, json: &str) -> serde_json::Result<Vec<Text<'static>>> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let values = self.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(values)
    }
}

impl<'de> DeserializeSeed<'de> for Claims<'_> {
    type Value = Vec<Text<'static>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Claims<'_> {
    type Value = Vec<Text<'static>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = vec![None; self.names.len()];
        while let Some(name) = map.next_key::<Text<'de>>()? {
            match self.names.iter().position(|asked| *asked == name.as_ref()) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(index) => {
                    let Text(value) = map.next_value::<Text<'de>>()?;
                    let value = Text(Cow::Owned(value.into_owned()));
                    if found[index].replace(value).is_some() {
                        return Err(A::Error::custom("a claim stands there twice"));
                    }
                }
            }
        }
        let all: Option<Vec<_>> = found.into_iter().collect();
        all.ok_or_else(|| A::Error::custom("a claim is missing"))
    }
}

#[cfg(test)]
mod tests;
