//! The reader of tokens, on whatever stands behind `Bearer`.
//!
//! * No bytes make it panic.
//! * A token that is read has three parts, and its second is an object that any JSON parser reads the
//!   same values from.
//! * A whole number in `iat` comes out as it stands there.
//! * The same payload is read the same under another signature, and with a claim once more it is no
//!   token.
//!
//! Input: the token as it stands, and once more as the payload of one.

#![no_main]

#[path = "../../src/http"]
mod http {
    pub(crate) mod numeric_date;
    pub(crate) mod token;
}

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::token::{Claims, TokenError, claims};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const NAMES: [&str; 2] = ["jti", "sub"];

fuzz_target!(|input: &[u8]| {
    if let Ok(found) = read(input) {
        let parts: Vec<_> = input.split(|byte| *byte == b'.').collect();
        assert_eq!(parts.len(), 3);
        assert_holds(&BASE64_URL_SAFE_NO_PAD.decode(parts[1]).unwrap(), &found);
    }
    let found = read(&token(input));
    if let Ok(found) = &found {
        assert_holds(input, found);
        let object = std::str::from_utf8(input).unwrap().trim_end();
        let twice = format!(
            "{},\"\\u006ati\":\"x\"}}",
            object.strip_suffix('}').unwrap()
        );
        assert_eq!(read(&token(twice.as_bytes())), Err(TokenError::Claims));
    }
    let other = [&token(input)[..], b"AA"].concat();
    assert_eq!(read(&other), found);
});

/// The values, and when the token was issued.
type Found = (Vec<String>, Option<i64>);

fn read(token: &[u8]) -> Result<Found, TokenError> {
    let Claims {
        values,
        issued_at_seconds,
    } = claims(token, &NAMES)?;
    let values = values.into_iter().map(|value| value.0).collect();
    Ok((values, issued_at_seconds))
}

fn token(payload: &[u8]) -> Vec<u8> {
    let payload = BASE64_URL_SAFE_NO_PAD.encode(payload);
    format!("e30.{payload}.c2ln").into_bytes()
}

#[track_caller]
fn assert_holds(payload: &[u8], (values, issued_at_seconds): &Found) {
    // A value may be too deep or too large a number for the other parser, where nobody asks for it.
    if let Ok(parsed) = serde_json::from_slice::<Value>(payload) {
        for (name, value) in NAMES.iter().zip(values) {
            assert_eq!(parsed[name].as_str(), Some(value.as_str()));
        }
        if let Some(seconds) = parsed["iat"].as_i64() {
            assert_eq!(*issued_at_seconds, Some(seconds));
        }
    }
}
