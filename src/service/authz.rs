//! Forward-auth: whether a token may pass, by the values of its claims.
//!
//! Invariant: it passes only where of each claim `definitely-not` is said, from the bits or by a
//! look-up. Whatever else comes to pass, a failure included, lets nobody in. This module must not know
//! what a token is, nor who asks.

use jiff::Timestamp;

use super::Service;
use super::answers::CheckAnswer;
use super::check::Check;
use super::declaration::FilterName;
use super::error::ServiceError;
use crate::filter::verdict::Verdict;

/// What becomes of a `maybe`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnMaybe {
    /// It is looked up, whatever its reason; what cannot be settled is undecided.
    #[default]
    Confirm,
    /// It is undecided.
    Deny,
}

impl OnMaybe {
    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Confirm => "confirm",
            Self::Deny => "deny",
        }
    }
}

/// Which claim is looked for in which filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimFilter {
    /// The name of the claim.
    pub claim: String,
    /// The filter of what is revoked.
    pub filter: FilterName,
}

/// What a token must satisfy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Its name, of the form of a filter's.
    pub name: String,
    /// The claims that are looked for, each of another name; 1 to [`Policy::MAX_CLAIMS`].
    pub claims: Vec<ClaimFilter>,
    /// What becomes of a `maybe`.
    pub on_maybe: OnMaybe,
}

impl Policy {
    /// The most claims of one policy.
    pub const MAX_CLAIMS: usize = 16;
}

/// Whether a token may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// None of the values is in its filter.
    Pass,
    /// A value was looked up, and is in its filter for this token.
    Revoked,
    /// A value is none that its filter can hold.
    Refused,
    /// It cannot be told.
    Undecided,
}

impl Service {
    /// Decides whether a token may pass. `values` are those of the policy's claims, in their order. Where
    /// a value is in its filter for the tokens of some time alone, `issued_at` decides; without it nothing
    /// does.
    pub async fn authorize<V: AsRef<str>>(
        &self,
        policy: &Policy,
        values: &[V],
        issued_at: Option<Timestamp>,
    ) -> Decision {
        if values.len() != policy.claims.len() {
            return Decision::Undecided;
        }
        let pairs = policy.claims.iter().zip(values);
        let checks: Vec<_> = pairs
            .map(|(claim, value)| Check {
                filter: claim.filter.as_str(),
                item: value.as_ref(),
                issued_at,
                min_watermark: None,
            })
            .collect();
        let confirm = match policy.on_maybe {
            OnMaybe::Confirm => true,
            OnMaybe::Deny => false,
        };
        match self.check_many(&checks, confirm).await {
            Ok(answer) => decision(&answer.answers),
            Err(error) if is_refused_item(&error) => Decision::Refused,
            Err(error) => {
                tracing::debug!(policy = policy.name, %error, "a token was not decided on");
                Decision::Undecided
            }
        }
    }
}

fn decision(answers: &[CheckAnswer]) -> Decision {
    let is_not = |answer: &CheckAnswer| answer.verdict == Verdict::DefinitelyNot;
    if answers
        .iter()
        .any(|answer| answer.confirmed && !is_not(answer))
    {
        return Decision::Revoked;
    }
    // Of nothing nothing follows.
    if !answers.is_empty() && answers.iter().all(is_not) {
        return Decision::Pass;
    }
    Decision::Undecided
}

fn is_refused_item(error: &ServiceError) -> bool {
    matches!(error, ServiceError::InCheck { index: _, error }
        if matches!(**error, ServiceError::InvalidItem { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::verdict::Reason;

    fn answer(verdict: Verdict, confirmed: bool) -> CheckAnswer {
        CheckAnswer {
            verdict,
            estimated_fp_rate: 0.01,
            confirmed,
        }
    }

    #[test]
    fn a_token_passes_only_where_each_claim_is_definitely_not_there() {
        let not = answer(Verdict::DefinitelyNot, false);
        let looked_up_and_not = answer(Verdict::DefinitelyNot, true);
        let is_there = answer(Verdict::Maybe(Reason::Match), true);
        assert_eq!(decision(&[not]), Decision::Pass);
        assert_eq!(decision(&[not, looked_up_and_not]), Decision::Pass);
        assert_eq!(decision(&[not, is_there]), Decision::Revoked);
        assert_eq!(decision(&[]), Decision::Undecided);
        for reason in [
            Reason::Match,
            Reason::Loading,
            Reason::Stale,
            Reason::Behind,
        ] {
            let doubt = answer(Verdict::Maybe(reason), false);
            assert_eq!(decision(&[doubt]), Decision::Undecided);
            assert_eq!(decision(&[not, doubt]), Decision::Undecided);
            assert_eq!(decision(&[doubt, looked_up_and_not]), Decision::Undecided);
            // What is known to be revoked is, whatever else is not known.
            assert_eq!(decision(&[doubt, is_there]), Decision::Revoked);
            let there = answer(Verdict::Maybe(reason), true);
            assert_eq!(decision(&[there]), Decision::Revoked);
        }
    }
}
