//! `[limits]`: what a request, a connection and the end of the process are held to.
//!
//! This module must not know who enforces a limit.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::section::Section;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);
const TIMEOUT_BOUNDS: RangeInclusive<Duration> = SHORTEST_TIMEOUT..=seconds(600);

/// The bounds of what clients may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest body of a request, in bytes: 1 KiB to 1 GiB. A bulk-load streams past it.
    pub max_body_bytes: u64,
    /// Most items of one batch: 1 to 10,000.
    pub max_batch: u32,
    /// How long a client may take to send a request's head: 100 ms to 10 minutes.
    pub header_timeout: Duration,
    /// How long an answer may take: 100 ms to 10 minutes.
    pub request_timeout: Duration,
    /// How long open requests may still take after the signal to end: 100 ms to 10 minutes.
    pub drain_timeout: Duration,
    /// Most connections at a time: 1 to 1,000,000.
    pub max_connections: u32,
    /// Most look-ups that settle a `maybe` at a time: 1 to 1,024.
    pub max_confirms: u32,
}

/// Reads `[limits]`, each with its default.
pub(super) fn read_limits(section: &mut Section<'_>) -> Limits {
    Limits {
        max_body_bytes: section.bytes("max_body", 8 << 20, &((1 << 10)..=(1 << 30))),
        max_batch: section.number("max_batch", 10_000, &(1..=10_000)),
        header_timeout: section.duration("header_timeout", seconds(10), &TIMEOUT_BOUNDS),
        request_timeout: section.duration("request_timeout", seconds(30), &TIMEOUT_BOUNDS),
        drain_timeout: section.duration("drain_timeout", seconds(20), &TIMEOUT_BOUNDS),
        max_connections: section.number("max_connections", 10_000, &(1..=1_000_000)),
        max_confirms: section.number("max_confirms", 32, &(1..=1_024)),
    }
}
