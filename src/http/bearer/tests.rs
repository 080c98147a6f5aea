//! What is a token, and what is none.

use axum::http::{HeaderName, HeaderValue};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use proptest::prelude::*;

use super::*;
use crate::http::token::{ClaimValue, MAX_TOKEN_BYTES};

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

fn encoded(text: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(text)
}

fn token(payload: impl AsRef<[u8]>) -> String {
    format!("{}.{}.{}", encoded(HEADER), encoded(payload), encoded("s"))
}

fn authorization(values: &[&str]) -> HeaderMap {
    let header = |value: &&str| (AUTHORIZATION, HeaderValue::from_str(value).unwrap());
    values.iter().map(header).collect()
}

/// The values as plain text, for a comparison.
fn read(headers: &HeaderMap, names: &[&str]) -> Result<Vec<String>, BearerError> {
    let values = claims(headers, names)?.values;
    Ok(values.into_iter().map(|ClaimValue(value)| value).collect())
}

fn read_payload(payload: impl AsRef<[u8]>, names: &[&str]) -> Result<Vec<String>, BearerError> {
    read(
        &authorization(&[&format!("Bearer {}", token(payload))]),
        names,
    )
}

#[test]
fn the_claims_come_in_the_order_that_they_are_asked_in() {
    let payload = r#"{"sub":"ann","iat":1,"jti":"7f0c","aud":["a","b"],"x":{"jti":"other"}}"#;
    let found = read_payload(payload, &["jti", "sub"]);
    assert_eq!(found, Ok(vec!["7f0c".to_owned(), "ann".to_owned()]));
    let odd = r#" {"https://a.example/ID" : "a\u0062c\n" } "#;
    let found = read_payload(odd, &["https://a.example/ID"]);
    assert_eq!(found, Ok(vec!["abc\n".to_owned()]));
}

#[test]
fn a_request_without_a_bearer_token_has_none() {
    for values in [
        &[][..],
        &[""],
        &["Bearer"],
        &["bearer"],
        &["Basic YTpi"],
        &["Bearertoken"],
    ] {
        assert_eq!(
            read(&authorization(values), &["jti"]),
            Err(BearerError::Absent)
        );
    }
    let elsewhere: HeaderMap = [("x-api-key", "k"), ("proxy-authorization", "Bearer a.b.c")]
        .map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        })
        .into_iter()
        .collect();
    assert_eq!(read(&elsewhere, &["jti"]), Err(BearerError::Absent));
}

#[test]
fn the_scheme_is_taken_in_any_case_and_with_any_blanks_behind_it() {
    let token = token(r#"{"jti":"a"}"#);
    for scheme in ["Bearer ", "bearer ", "BEARER  "] {
        let value = format!("{scheme}{token}");
        assert_eq!(
            read(&authorization(&[&value]), &["jti"]),
            Ok(vec!["a".to_owned()])
        );
    }
}

#[test]
fn more_than_one_header_is_no_token_whichever_is_the_good_one() {
    let good = format!("Bearer {}", token(r#"{"jti":"a"}"#));
    for values in [
        [good.as_str(), &good],
        [&good, "Basic YTpi"],
        ["Basic YTpi", &good],
    ] {
        assert_eq!(
            read(&authorization(&values), &["jti"]),
            Err(BearerError::TwoHeaders)
        );
    }
}

#[test]
fn what_is_not_three_parts_in_base64url_is_no_token() {
    let good = token(r#"{"jti":"a"}"#);
    let (header, payload) = (encoded(HEADER), encoded(r#"{"jti":"a"}"#));
    for odd in [
        "token".to_owned(),
        "a.b".to_owned(),
        "..".to_owned(),
        format!("{header}.{payload}"),
        // Unsigned (alg none).
        format!("{header}.{payload}."),
        format!(".{payload}.cw"),
        format!("{good}."),
        format!("{good}.cw"),
        format!("{good}=="),
        format!("{good},"),
        format!("{header}, Bearer {good}"),
        format!("{header} {good}"),
        format!("\"{good}\""),
        format!("{header}.{payload}=.cw"),
        format!("{header}.{payload}\t.cw"),
        format!("{header}.{}+/.cw", payload),
        // Bits that no encoder sets: two texts for one token.
        format!("{header}.{payload}.cx"),
        format!("{}.{payload}.cw", encoded("[]")),
        format!("{}.{payload}.cw", encoded("{}{}")),
        format!("{}.{payload}.cw", encoded("no JSON")),
        format!("{}.{payload}.cw", encoded(b"{\"a\":\"\xff\"}")),
        format!("{header}.{}.cw", encoded(b"{\"jti\":\"a\",\"b\":\"\xff\"}")),
    ] {
        let found = read(&authorization(&[&format!("Bearer {odd}")]), &["jti"]);
        assert_eq!(
            found,
            Err(BearerError::Token(TokenError::Malformed)),
            "{odd}"
        );
    }
    let encrypted = format!("Bearer {header}..cw.cw.cw");
    assert_eq!(
        read(&authorization(&[&encrypted]), &["jti"]),
        Err(BearerError::Token(TokenError::Encrypted))
    );
}

#[test]
fn a_claim_that_is_missing_no_string_or_there_twice_is_no_token() {
    for payload in [
        "{}",
        r#"{"JTI":"a"}"#,
        r#"{"x":{"jti":"a"}}"#,
        r#"{"jti":null}"#,
        r#"{"jti":7}"#,
        r#"{"jti":["a"]}"#,
        r#"{"jti":{"jti":"a"}}"#,
        r#"{"jti":"a","jti":"b"}"#,
        r#"{"jti":"a","jti":"a"}"#,
        r#"{"jti":"a","\u006ati":"b"}"#,
        r#"{"jti":"a","jti":null}"#,
        r#"{"jti":"\ud800"}"#,
        r#"["jti","a"]"#,
        r#"[{"jti":"a"}]"#,
        r#""jti""#,
        r#"{"jti":"a"}{"jti":"b"}"#,
        r#"{"jti":"a"},"#,
        r#"{"jti":"a",}"#,
        r#"{'jti':'a'}"#,
        "{\"jti\":\"a\"}\0",
        "\u{feff}{\"jti\":\"a\"}",
        "",
    ] {
        assert_eq!(
            read_payload(payload, &["jti"]),
            Err(BearerError::Token(TokenError::Claims)),
            "{payload}"
        );
    }
    // Each that is asked about, not the first alone.
    let one_of_two = r#"{"jti":"a","sub":["b"]}"#;
    assert_eq!(
        read_payload(one_of_two, &["jti", "sub"]),
        Err(BearerError::Token(TokenError::Claims))
    );
    // What is not asked about may be anything, twice.
    let other = r#"{"jti":"a","sub":1,"sub":null}"#;
    assert_eq!(read_payload(other, &["jti"]), Ok(vec!["a".to_owned()]));
    // However deep it is: what is passed over is not descended into.
    let deep = format!(
        "{{\"jti\":\"a\",\"x\":{}1{}}}",
        "[".repeat(9_999),
        "]".repeat(9_999)
    );
    assert_eq!(read_payload(deep, &["jti"]), Ok(vec!["a".to_owned()]));
}

/// When a token with these claims beside its `jti` was issued.
fn issued_at(beside: &str) -> Result<Option<i64>, BearerError> {
    let token = token(format!("{{\"jti\":\"a\"{beside}}}"));
    let headers = authorization(&[&format!("Bearer {token}")]);
    Ok(claims(&headers, &["jti"])?.issued_at_seconds)
}

#[test]
fn the_time_of_issue_is_a_number_in_whole_seconds_downwards() {
    for (beside, seconds) in [
        (r#","iat":1700000000"#, Some(1_700_000_000)),
        (r#","iat":1700000000.9999999999"#, Some(1_700_000_000)),
        (r#","iat": 1.7e9 "#, Some(1_700_000_000)),
        (r#","\u0069at":-0.5"#, Some(-1)),
        ("", None),
        (r#","IAT":1700000000"#, None),
        (r#","x":{"iat":1700000000}"#, None),
        (r#","iat":"1700000000""#, None),
        (r#","iat":null"#, None),
        (r#","iat":true"#, None),
        (r#","iat":[1700000000]"#, None),
        (r#","iat":{"iat":1700000000}"#, None),
        (r#","iat":1e400"#, None),
        (r#","iat":-99999999999999999999"#, None),
    ] {
        assert_eq!(issued_at(beside), Ok(seconds), "{beside}");
    }
    // However deep and however long it is.
    let deep = format!(",\"iat\":{}1{}", "[".repeat(9_999), "]".repeat(9_999));
    assert_eq!(issued_at(&deep), Ok(None));
    let long = format!(",\"iat\":1700000000.{}", "9".repeat(20_000));
    assert_eq!(issued_at(&long), Ok(Some(1_700_000_000)));
}

#[test]
fn two_times_of_issue_are_no_token_whatever_they_are() {
    for beside in [
        r#","iat":1,"iat":2"#,
        r#","iat":1,"iat":1"#,
        r#","iat":1,"\u0069at":2"#,
        r#","iat":null,"iat":2"#,
        r#","iat":1,"iat":"x""#,
    ] {
        assert_eq!(
            issued_at(beside),
            Err(BearerError::Token(TokenError::Claims)),
            "{beside}"
        );
    }
}

#[test]
fn a_policy_may_ask_about_the_time_of_issue_as_about_any_claim() {
    let payload = r#"{"iat":"on monday"}"#;
    assert_eq!(
        read_payload(payload, &["iat"]),
        Ok(vec!["on monday".to_owned()])
    );
}

#[test]
fn a_token_past_the_bound_is_not_read() {
    let payload = |spare: usize| format!("{{\"jti\":\"a\",\"x\":\"{}\"}}", "x".repeat(spare));
    assert!(read_payload(payload(40_000), &["jti"]).is_ok());
    assert_eq!(
        read_payload(payload(60_000), &["jti"]),
        Err(BearerError::Token(TokenError::TooLong))
    );
}

proptest! {
    #[test]
    fn whatever_stands_in_the_header_nothing_panics(value in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let _ = claims(&HeaderMap::from_iter([(AUTHORIZATION, value)]), &["jti", "sub"]);
        }
    }

    #[test]
    fn whatever_the_parts_hold_nothing_panics(
        header in prop::collection::vec(any::<u8>(), 0..50),
        payload in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let token = format!("Bearer {}.{}.cw", encoded(header), encoded(payload));
        let _ = read(&authorization(&[&token]), &["jti"]);
    }

    #[test]
    fn a_string_comes_out_as_it_went_in(jti in ".*", sub in ".*") {
        let payload = serde_json::json!({"sub": sub, "exp": 1, "jti": jti}).to_string();
        prop_assume!(payload.len() < MAX_TOKEN_BYTES / 2);
        prop_assert_eq!(read_payload(payload, &["jti", "sub"]), Ok(vec![jti, sub]));
    }

    #[test]
    fn a_token_that_lost_or_gained_a_character_gives_the_same_claim_or_none(
        at in 0_usize..80, character in "[A-Za-z0-9_=.+/ -]?",
    ) {
        let mut odd = token(r#"{"jti":"7f0c","sub":"ann"}"#);
        prop_assume!(at < odd.len());
        odd.replace_range(at..=at, &character);
        // Another value may come of it, which the signature would not fit; never two, never a part.
        if let Ok(values) = read(&authorization(&[&format!("Bearer {odd}")]), &["jti"]) {
            prop_assert_eq!(values.len(), 1);
        }
    }
}
