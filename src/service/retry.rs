//! How long to wait before what failed is tried again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

const RETRY_FIRST: Duration = Duration::from_millis(100);
/// The longest wait between two attempts.
pub const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Growing waits with jitter, up to [`RETRY_LONGEST`], without end: a store that is down for a
/// day is tried all day.
#[must_use]
pub fn retry_waits() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(RETRY_FIRST)
        .with_max_delay(RETRY_LONGEST)
        .with_jitter()
        .without_max_times()
        .build()
}
