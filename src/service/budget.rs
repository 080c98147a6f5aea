//! The memory budget: bytes are reserved before bits are allocated, and given back with them.
//!
//! Invariant: the reservations that live never add up to more than the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::ServiceError;

/// How many bytes the bits of all generations may take together.
#[derive(Debug)]
pub struct MemoryBudget {
    budget_bytes: u64,
    reserved_bytes: AtomicU64,
}

impl MemoryBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(budget_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            budget_bytes,
            reserved_bytes: AtomicU64::new(0),
        })
    }

    /// Reserves bytes until the reservation is dropped.
    ///
    /// # Errors
    /// [`ServiceError::OverMemoryBudget`] when they are not left.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation, ServiceError> {
        self.reserved_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
                reserved
                    .checked_add(bytes)
                    .filter(|total| *total <= self.budget_bytes)
            })
            .map_err(|reserved| ServiceError::OverMemoryBudget {
                needed_bytes: bytes,
                left_bytes: self.budget_bytes.saturating_sub(reserved),
            })?;
        Ok(Reservation {
            budget: Arc::clone(self),
            bytes,
        })
    }
}

/// Bytes that are taken out of the budget for as long as this lives.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget
            .reserved_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_never_exceeded_and_dropping_gives_back() {
        let budget = MemoryBudget::new(100);
        let first = budget.reserve(60).unwrap();
        let error = budget.reserve(41).unwrap_err();
        assert!(matches!(
            error,
            ServiceError::OverMemoryBudget {
                needed_bytes: 41,
                left_bytes: 40
            }
        ));
        let _second = budget.reserve(40).unwrap();
        assert!(budget.reserve(1).is_err());
        drop(first);
        assert!(budget.reserve(60).is_ok());
    }

    #[test]
    fn a_reservation_that_overflows_is_refused() {
        let budget = MemoryBudget::new(u64::MAX);
        let _first = budget.reserve(u64::MAX).unwrap();
        assert!(budget.reserve(1).is_err());
    }
}
