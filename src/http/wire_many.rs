//! What goes over the wire where one request asks several filters. The conventions are those of
//! [`super::wire`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::parse::{Object, Text, present};
use super::wire::{CheckAnswer, Verdict, WatermarkText, rate};
use super::wire_time::Time;
use crate::service::answers;
use crate::service::check::Check;

/// Asks several filters.
#[derive(Deserialize, ToSchema)]
#[schema(as = CheckManyRequest)]
#[serde(deny_unknown_fields)]
pub struct CheckManyRequest<'a> {
    /// What is asked, 1 to 100 checks.
    #[serde(borrow)]
    #[schema(value_type = Vec<FilterCheck<'_>>, min_items = 1, max_items = 100)]
    pub checks: Vec<Object<FilterCheck<'a>>>,
    /// Whether each `maybe` is to be looked up, in the store and the sources.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<bool>, nullable = false)]
    pub confirm: Option<bool>,
}

/// Asks one filter about one item.
#[derive(Deserialize, ToSchema)]
#[schema(as = FilterCheck)]
#[serde(deny_unknown_fields)]
pub struct FilterCheck<'a> {
    /// The name of the filter.
    #[serde(borrow)]
    #[schema(value_type = String, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", max_length = 64,
        example = "revoked-jti")]
    pub filter: Text<'a>,
    /// What is asked about: a JWT ID, an address, any text, as the filter's profile takes it.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 4096,
        example = "5c2e1f0a-3d77-4b07-9a52-0f6f6f1f7b8e")]
    pub item: Text<'a>,
    /// As for the check of one item.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false,
        example = "2030-01-01T00:00:00Z")]
    pub issued_at: Option<Time>,
    /// As for the check of one item.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, nullable = false, max_length = 128)]
    pub min_watermark: Option<WatermarkText>,
}

impl CheckManyRequest<'_> {
    /// The checks, for the service.
    #[must_use]
    pub fn checks(&self) -> Vec<Check<'_>> {
        self.checks
            .iter()
            .map(|Object(check)| Check {
                filter: check.filter.as_ref(),
                item: check.item.as_ref(),
                issued_at: check.issued_at.map(|time| time.0),
                min_watermark: check.min_watermark.as_ref().map(|text| text.0),
            })
            .collect()
    }
}

/// The answer to checks of several filters.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CheckManyAnswer)]
pub struct CheckManyAnswer<'a> {
    /// What may be said of all together: `definitely-not` only where it is said of each.
    pub verdict: Verdict,
    /// One answer a check, in the order of the request.
    #[schema(value_type = Vec<CheckAnswer<'_>>)]
    pub results: Vec<CheckAnswer<'a>>,
}

impl<'a> CheckManyAnswer<'a> {
    /// The answer of the service to these checks.
    #[must_use]
    pub fn new(checks: &[Check<'a>], answer: &answers::CheckManyAnswer) -> Self {
        let pairs = checks.iter().zip(&answer.answers);
        Self {
            verdict: answer.verdict().into(),
            results: pairs
                .map(|(check, answer)| CheckAnswer {
                    filter: check.filter,
                    verdict: answer.verdict.into(),
                    reason: answer.verdict.reason().map(Into::into),
                    estimated_fp_rate: rate(answer.estimated_fp_rate),
                    confirmed: answer.confirmed.then_some(true),
                })
                .collect(),
        }
    }
}
