//! Durations and memory as the configuration writes them: `"250ms"`, `"64MiB"`.
//!
//! Invariant: what [`duration_text`] and [`bytes_text`] print, [`parse_duration`] and
//! [`parse_bytes`] read back to the same value. Nothing here overflows or rounds. This module
//! must not know which key a value belongs to.

use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// The units of a duration and what they are in milliseconds, largest first.
const DURATION_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// The units of memory and what they are in bytes. The first four are also those that are
/// printed, largest first.
const MEMORY_UNITS: [(&str, u64); 9] = [
    ("TiB", TIB),
    ("GiB", GIB),
    ("MiB", MIB),
    ("KiB", KIB),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// How a duration is written, for messages.
pub const DURATION_FORM: &str =
    "a whole number with its unit (ms, s, m, h, d), such as \"250ms\", \"30s\" or \"5m\"";

/// How an amount of memory is written, for messages.
pub const BYTES_FORM: &str =
    "bytes, or a whole number with its unit (KiB, MiB, GiB, TiB), such as \"64MiB\"";

/// Reads a duration such as `"250ms"`, `"30s"`, `"5m"`, `"24h"` or `"1d"`.
///
/// None when it is not in [`DURATION_FORM`] or is more milliseconds than a `u64` holds.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let (_, unit_ms) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*unit_ms).map(Duration::from_millis)
}

/// Reads an amount of memory such as `"64MiB"`, `"512MB"` or `"8192"`, in bytes.
///
/// None when it is not in [`BYTES_FORM`] or is more bytes than a `u64` holds.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return Some(number);
    }
    let (_, unit_bytes) = MEMORY_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*unit_bytes)
}

/// Prints a duration in the largest unit that gives a whole number. What is below a millisecond
/// is left away; no duration that was read has any.
#[must_use]
pub fn duration_text(duration: Duration) -> String {
    let total_ms = duration.as_millis();
    if total_ms == 0 {
        return "0s".to_owned();
    }
    for (name, unit_ms) in DURATION_UNITS {
        if total_ms.is_multiple_of(u128::from(unit_ms)) {
            return format!("{}{name}", total_ms / u128::from(unit_ms));
        }
    }
    format!("{total_ms}ms")
}

/// Prints an amount of memory exactly, in the largest binary unit that gives a whole number.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    let whole = MEMORY_UNITS[..4]
        .iter()
        .find(|(_, unit_bytes)| bytes > 0 && bytes.is_multiple_of(*unit_bytes));
    match whole {
        Some((name, unit_bytes)) => format!("{}{name}", bytes / unit_bytes),
        None => bytes.to_string(),
    }
}

/// Prints an amount of memory for people, rounded to hundredths of its largest binary unit:
/// `"1.14 MiB"`.
#[must_use]
pub fn bytes_rounded(bytes: u64) -> String {
    let fitting = MEMORY_UNITS[..4]
        .iter()
        .find(|(_, unit_bytes)| bytes >= *unit_bytes);
    match fitting {
        Some((name, unit_bytes)) => {
            let hundredths =
                (u128::from(bytes) * 100 + u128::from(unit_bytes / 2)) / u128::from(*unit_bytes);
            format!("{}.{:02} {name}", hundredths / 100, hundredths % 100)
        }
        None => format!("{bytes} B"),
    }
}

/// The leading decimal digits as a number, and what follows them.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    Some((digits.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        for (text, expected_ms) in [
            ("250ms", 250),
            ("0s", 0),
            ("30s", 30_000),
            ("5m", 300_000),
            ("24h", 86_400_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Some(Duration::from_millis(expected_ms)),
                "{text}"
            );
        }
    }

    #[test]
    fn durations_out_of_form_or_too_long_are_refused() {
        for text in [
            "",
            "30",
            "s",
            "-1s",
            "+1s",
            "1.5s",
            "30 s",
            " 30s",
            "30S",
            "30sec",
            "1h30m",
            "٣s",
            "18446744073709551615s",
            "18446744073709551616ms",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn memory_is_read_in_every_unit() {
        for (text, expected) in [
            ("0", 0),
            ("8192", 8_192),
            ("8192B", 8_192),
            ("8KiB", 8_192),
            ("64MiB", 67_108_864),
            ("1GiB", 1_073_741_824),
            ("2TiB", 2_199_023_255_552),
            ("3KB", 3_000),
            ("512MB", 512_000_000),
            ("1GB", 1_000_000_000),
            ("1TB", 1_000_000_000_000),
        ] {
            assert_eq!(parse_bytes(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn memory_out_of_form_or_too_much_is_refused() {
        for text in [
            "",
            "MiB",
            "-1",
            "1.5GiB",
            "64 MiB",
            "64mib",
            "64M",
            "75%",
            "18446744073709551616",
            "16777216TiB",
        ] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
        assert_eq!(parse_bytes("18446744073709551615"), Some(u64::MAX));
    }

    #[test]
    fn what_is_printed_reads_back_to_the_same_value() {
        for ms in [
            0,
            1,
            250,
            1_000,
            1_001,
            60_000,
            90_000,
            3_600_000,
            86_400_000,
            u64::MAX,
        ] {
            let duration = Duration::from_millis(ms);
            assert_eq!(parse_duration(&duration_text(duration)), Some(duration));
        }
        for bytes in [0, 1, 1_023, KIB, KIB + 1, 8 * MIB, GIB, 3 * TIB, u64::MAX] {
            assert_eq!(parse_bytes(&bytes_text(bytes)), Some(bytes));
        }
        assert_eq!(duration_text(Duration::from_secs(90)), "90s");
        assert_eq!(bytes_text(8 * MIB), "8MiB");
    }

    #[test]
    fn rounded_memory_is_told_in_its_largest_unit() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_198_133, "1.14 MiB"),
            (8_985_993, "8.57 MiB"),
            (1_198_132_298, "1.12 GiB"),
            (u64::MAX, "16777216.00 TiB"),
        ] {
            assert_eq!(bytes_rounded(bytes), expected);
        }
    }
}
