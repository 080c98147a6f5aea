//! Checks: what may be said of an item.
//!
//! Invariant: `definitely-not` is said in two places. One is [`Service::check`] and its batch form,
//! from the bits, and only where [`Generation::standing`] finds nothing in doubt. The other is a
//! look-up that has settled a `maybe` ([`super::confirm`]).

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Service;
use super::answers::{CheckAnswer, CheckBatchAnswer};
use super::confirm::{CONFIRM_LIMIT, Question};
use super::error::ServiceError;
use super::generation::Generation;
use super::ingest::Position;
use super::ports::Presence;
use super::registry::Hosted;
use super::watermark::Watermark;
use crate::filter::profile::Canonical;
use crate::filter::verdict::{Reason, Verdict};

/// What is asked of one filter.
#[derive(Clone, Copy)]
pub struct Check<'c> {
    /// The name of the filter.
    pub filter: &'c str,
    /// What is asked about.
    pub item: &'c str,
    /// When the token that bears the item was issued. It counts where a `maybe` is looked up: the bits
    /// know of no times.
    pub issued_at: Option<Timestamp>,
    /// What the filter must have reached to say `definitely-not`.
    pub min_watermark: Option<Watermark>,
}

/// A check that is in order, and is answered from now on whatever happens.
pub(super) struct Accepted<'c> {
    check: Check<'c>,
    /// The filter, and the item under its profile. None as long as the store cannot say which filters
    /// there are.
    found: Option<(Arc<Hosted>, Canonical<'c>)>,
}

impl Service {
    /// Says what may be said of one item. Waits for nothing, unless the filter is not known here, for
    /// which the store is asked then, or a `maybe` is to be looked up, as `confirm` says.
    ///
    /// # Errors
    /// When the name is out of form or unknown, or the profile refuses the item. Never for the
    /// sake of the store.
    pub async fn check(
        &self,
        check: Check<'_>,
        confirm: bool,
    ) -> Result<CheckAnswer, ServiceError> {
        let accepted = self.accepted(check).await?;
        let confirm_until = confirm.then(|| Instant::now() + CONFIRM_LIMIT);
        Ok(self.answer(&accepted, confirm_until).await)
    }

    /// Finds the filter of a check, and takes its item.
    ///
    /// # Errors
    /// As [`Service::check`].
    pub(super) async fn accepted<'c>(
        &self,
        check: Check<'c>,
    ) -> Result<Accepted<'c>, ServiceError> {
        let found = match self.hosted_for_check(check.filter).await? {
            None => None,
            Some(hosted) => {
                let canonical = accept(&hosted, check.item, None)?;
                Some((hosted, canonical))
            }
        };
        Ok(Accepted { check, found })
    }

    /// Answers a check; a `maybe` is looked up where `confirm_until` says how long that may take.
    pub(super) async fn answer(
        &self,
        accepted: &Accepted<'_>,
        confirm_until: Option<Instant>,
    ) -> CheckAnswer {
        let Check {
            filter: _,
            item,
            issued_at,
            min_watermark,
        } = accepted.check;
        let Some((hosted, canonical)) = &accepted.found else {
            return in_doubt(Reason::Loading);
        };
        let mut answer = match self.may_answer(hosted, min_watermark) {
            Err(reason) => in_doubt(reason),
            Ok(generation) => CheckAnswer {
                verdict: verdict(generation.bloom.check(&canonical.bytes)),
                estimated_fp_rate: generation.bloom.estimated_fp_rate(),
                confirmed: false,
            },
        };
        if let (Some(until), Verdict::Maybe(reason)) = (confirm_until, answer.verdict) {
            let question = Question {
                item,
                canonical: &canonical.bytes,
                issued_at,
                min_watermark,
            };
            if let Some(told) = self.look_up(hosted, question, until).await {
                // What is maybe for another reason says nothing of the bits.
                if let (Reason::Match, Some(is_there)) = (reason, told.is_there()) {
                    hosted.confirmations.settled(is_there);
                }
                answer = settled(hosted, told, issued_at, answer);
            }
        }
        hosted.meters.checked(answer.verdict);
        answer
    }

    /// Says what may be said of many items, in their order. Waits as [`Service::check`] does.
    ///
    /// # Errors
    /// As [`Service::check`]; also when there are none or too many. One refused item refuses all.
    pub async fn check_batch<I: AsRef<str> + Sync>(
        &self,
        filter: &str,
        items: &[I],
        min_watermark: Option<Watermark>,
    ) -> Result<CheckBatchAnswer, ServiceError> {
        self.batch_in_range(items.len())?;
        let Some(hosted) = self.hosted_for_check(filter).await? else {
            return Ok(all_in_doubt(items.len(), Reason::Loading));
        };
        let canonicals = items
            .iter()
            .enumerate()
            .map(|(index, item)| Ok(accept(&hosted, item.as_ref(), Some(index))?.bytes))
            .collect::<Result<Vec<_>, ServiceError>>()?;
        match self.may_answer(&hosted, min_watermark) {
            Err(reason) => {
                let doubts = canonicals.len() as u64;
                hosted.meters.checked_many(Verdict::Maybe(reason), doubts);
                Ok(all_in_doubt(canonicals.len(), reason))
            }
            Ok(generation) => {
                let mut matches = Vec::with_capacity(canonicals.len());
                generation.bloom.check_batch(&canonicals, &mut matches);
                let verdicts: Vec<_> = matches.into_iter().map(verdict).collect();
                for counted in [Verdict::DefinitelyNot, Verdict::Maybe(Reason::Match)] {
                    let found = verdicts.iter().filter(|verdict| **verdict == counted);
                    hosted.meters.checked_many(counted, found.count() as u64);
                }
                Ok(CheckBatchAnswer {
                    verdicts,
                    reason: None,
                    estimated_fp_rate: generation.bloom.estimated_fp_rate(),
                })
            }
        }
    }

    /// The generation that may say `definitely-not` now, or the reason why none may.
    fn may_answer<'h>(
        &self,
        hosted: &'h Hosted,
        min_watermark: Option<Watermark>,
    ) -> Result<&'h Generation, Reason> {
        let generation = hosted.generation.as_deref().ok_or(Reason::Loading)?;
        if let Some(reason) = generation.standing(self.clock.now()) {
            return Err(reason);
        }
        if hosted.outdated.is_some() {
            return Err(Reason::Stale);
        }
        if let Some(Watermark(Position { timeline, place })) = min_watermark
            && !generation.reaches(timeline, place)
        {
            return Err(Reason::Behind);
        }
        Ok(generation)
    }

    /// The filter of that name. None as long as the store cannot say which filters there are: then a
    /// name that nobody knows here may still be one of its filters.
    async fn hosted_for_check(&self, filter: &str) -> Result<Option<Arc<Hosted>>, ServiceError> {
        match self.hosted_or_asked_for(filter).await {
            Ok(hosted) => Ok(Some(hosted)),
            Err(ServiceError::StoreUnavailable(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The answer to what was `maybe`, once it was looked up.
fn settled(
    hosted: &Hosted,
    told: Presence,
    issued_at: Option<Timestamp>,
    answer: CheckAnswer,
) -> CheckAnswer {
    match (told.is_revoked(issued_at), hosted.generation.as_deref()) {
        (Some(true), Some(_)) => CheckAnswer {
            confirmed: true,
            ..answer
        },
        (Some(false), Some(generation)) => CheckAnswer {
            verdict: Verdict::DefinitelyNot,
            estimated_fp_rate: generation.bloom.estimated_fp_rate(),
            confirmed: true,
        },
        (None, _) | (_, None) => answer,
    }
}

fn verdict(all_bits_set: bool) -> Verdict {
    if all_bits_set {
        Verdict::Maybe(Reason::Match)
    } else {
        Verdict::DefinitelyNot
    }
}

fn in_doubt(reason: Reason) -> CheckAnswer {
    CheckAnswer {
        verdict: Verdict::Maybe(reason),
        estimated_fp_rate: 1.0,
        confirmed: false,
    }
}

fn all_in_doubt(items: usize, reason: Reason) -> CheckBatchAnswer {
    CheckBatchAnswer {
        verdicts: vec![Verdict::Maybe(reason); items],
        reason: Some(reason),
        estimated_fp_rate: 1.0,
    }
}

/// What a caller's item is under the filter's profile.
pub(super) fn accept<'i>(
    hosted: &Hosted,
    item: &'i str,
    index: Option<usize>,
) -> Result<Canonical<'i>, ServiceError> {
    hosted
        .declaration
        .profile
        .accept(item)
        .map_err(|error| ServiceError::InvalidItem { index, error })
}
