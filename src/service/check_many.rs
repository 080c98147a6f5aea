//! Checks of several filters in one request: all are in order, or none is answered.
//!
//! Invariants: the store is asked at most once at a time for names that are unknown here, however
//! many there are; the look-ups of one request run at once, share the bound on look-ups with all
//! others, and end together.

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use tokio::time::Instant;

use super::Service;
use super::answers::CheckManyAnswer;
use super::check::Check;
use super::confirm::CONFIRM_LIMIT;
use super::error::ServiceError;

/// The most checks of one request.
pub const MAX_CHECKS: usize = 100;

impl Service {
    /// Says of several items, each of a filter of its own, what may be said of them. Waits as
    /// [`Service::check`] does, and for all of them together no longer than for one.
    ///
    /// # Errors
    /// As [`Service::check`], with the index of the first check that is refused; also when there are
    /// none or more than [`MAX_CHECKS`]. One that is refused refuses all.
    pub async fn check_many(
        &self,
        checks: &[Check<'_>],
        confirm: bool,
    ) -> Result<CheckManyAnswer, ServiceError> {
        let found = checks.len();
        if !(1..=MAX_CHECKS).contains(&found) {
            let limit = MAX_CHECKS;
            return Err(ServiceError::ChecksOutOfRange { limit, found });
        }
        let accepted = join_all(checks.iter().map(|check| self.accepted(*check))).await;
        let accepted = accepted
            .into_iter()
            .enumerate()
            .map(|(index, accepted)| {
                accepted.map_err(|error| ServiceError::InCheck {
                    index,
                    error: Box::new(error),
                })
            })
            .collect::<Result<Vec<_>, ServiceError>>()?;
        let confirm_until = confirm.then(|| Instant::now() + CONFIRM_LIMIT);
        let answers: Vec<_> = accepted
            .iter()
            .map(|accepted| self.answer(accepted, confirm_until))
            .collect();
        // Past the bound nobody waits for a look-up; a request must not push its own checks there.
        let at_once = self.settings.max_confirms.max(1);
        let answers = stream::iter(answers).buffered(at_once).collect().await;
        Ok(CheckManyAnswer { answers })
    }
}
