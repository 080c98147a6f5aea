//! Adapter: the machine's clocks.

use rustix::time::{ClockId, clock_gettime};

use crate::service::ports::{Clock, Moment};

/// The machine's clocks. The monotonic one goes on while the machine is suspended.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let monotonic_ms = milliseconds(ClockId::Boottime);
        Moment {
            // The boot clock begins at zero and never runs backwards.
            monotonic_ms: u64::try_from(monotonic_ms).unwrap_or(0),
            wall_ms: milliseconds(ClockId::Realtime),
        }
    }
}

fn milliseconds(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_go_forward() {
        let before = SystemClock.now();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let after = SystemClock.now();
        assert!(after.monotonic_ms >= before.monotonic_ms + 5);
        assert!(after.wall_ms > 1_600_000_000_000);
    }
}
