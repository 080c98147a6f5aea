//! The times that tokens hold: NumericDate of RFC 7519, section 2, the seconds since 1970-01-01 UTC as any
//! JSON number.
//!
//! Invariant: exact. A binary floating-point number may be rounded up, and would make a token younger
//! than it is.
//!
//! This module must not know which claim holds one, nor what it is for.

/// The whole seconds, downwards, of a JSON number as it is written. None for what is no number, and for
/// one past the range of 64 bits, or with an exponent past it.
#[must_use]
pub fn whole_seconds(json: &str) -> Option<i64> {
    let (is_negative, number) = match json.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, json),
    };
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() {
        return None;
    }
    // Where the point stands among the digits, once the exponent has moved it.
    let point = i64::try_from(whole.len()).ok()?;
    let point = point.checked_add(exponent.parse().ok()?)?;
    let mut seconds = 0_i64;
    let mut has_rest = false;
    let mut place = 0_i64;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let digit = char::from(digit).to_digit(10)?;
        if place < point {
            seconds = seconds.checked_mul(10)?.checked_add(digit.into())?;
        } else {
            has_rest |= digit != 0;
        }
        place += 1;
    }
    if seconds != 0 && place < point {
        let zeros = u32::try_from(point - place).ok()?;
        seconds = seconds.checked_mul(10_i64.checked_pow(zeros)?)?;
    }
    if is_negative {
        return (-seconds).checked_sub(has_rest.into());
    }
    Some(seconds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_is_taken_in_whole_seconds_downwards_however_it_is_written() {
        for (json, seconds) in [
            ("0", 0),
            ("-0", 0),
            ("1700000000", 1_700_000_000),
            ("1700000000.0", 1_700_000_000),
            ("1700000000.9999999999", 1_700_000_000),
            (
                "1700000000.99999999999999999999999999999999999999",
                1_700_000_000,
            ),
            ("1.7e9", 1_700_000_000),
            ("1.7E+9", 1_700_000_000),
            ("17e8", 1_700_000_000),
            ("17e00000000000000000000000000008", 1_700_000_000),
            ("0.0000017e15", 1_700_000_000),
            ("1700000000999e-3", 1_700_000_000),
            ("1.7000000009999999999999999e9", 1_700_000_000),
            ("-1", -1),
            ("-1.0", -1),
            ("-1.0000000000000000000000000001", -2),
            ("-0.5", -1),
            ("0.5", 0),
            ("-5e-1", -1),
            ("1e-1000000000", 0),
            ("-1e-1000000000", -1),
            ("0e1000000000", 0),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775807", -i64::MAX),
        ] {
            assert_eq!(whole_seconds(json), Some(seconds), "{json}");
        }
    }

    #[test]
    fn what_is_no_number_or_past_the_range_is_none() {
        for json in [
            "",
            "-",
            "null",
            "true",
            "\"1700000000\"",
            "[1700000000]",
            "{}",
            "1e",
            "e9",
            ".5",
            "1e19",
            "9223372036854775808",
            "-9223372036854775809",
            "1e1000000000",
            "1e99999999999999999999",
            "1e-99999999999999999999",
            "1e9223372036854775807",
        ] {
            assert_eq!(whole_seconds(json), None, "{json}");
        }
    }

    proptest! {
        #[test]
        fn whatever_stands_there_nothing_panics(json in "[-0-9.eE+]{0,40}|.{0,20}") {
            let _ = whole_seconds(&json);
        }

        #[test]
        fn the_point_may_be_moved_by_the_exponent(
            seconds in -1_000_000_000_000_i64..1_000_000_000_000,
            thousandths in 0_i64..1_000,
            moved in 0_usize..9,
        ) {
            let exact = seconds * 1_000 + thousandths;
            let json = format!("{exact}e-3");
            prop_assert_eq!(whole_seconds(&json), Some(seconds), "{}", json);
            let json = format!("{exact}{}e-{}", "0".repeat(moved), moved + 3);
            prop_assert_eq!(whole_seconds(&json), Some(seconds), "{}", json);
        }
    }
}
