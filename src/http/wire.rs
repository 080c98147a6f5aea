//! What goes over the wire: requests and answers, apart from the domain's own types.
//!
//! Conventions that keep generated clients working: a field is left out rather than null, counts
//! are `int64` of at most 2^53 − 1, numbers are finite, enums have names of their own.

use std::fmt;

use jiff::Timestamp;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::parse::{Object, Text, present};
use super::wire_time::Time;
use crate::filter;
use crate::service::answers;
use crate::service::check::Check;
use crate::service::terms::Terms;
use crate::service::watermark::Watermark;

/// The largest whole number that every language's JSON can hold: 2^53 − 1.
pub const MAX_WHOLE: i64 = 9_007_199_254_740_991;

/// A count for the wire, capped at [`MAX_WHOLE`].
#[must_use]
pub fn whole(number: u64) -> i64 {
    i64::try_from(number).map_or(MAX_WHOLE, |number| number.min(MAX_WHOLE))
}

/// A rate for the wire: within [0, 1]. What is no number is the worst rate.
#[must_use]
pub fn rate(number: f64) -> f64 {
    if number.is_nan() {
        1.0
    } else {
        number.clamp(0.0, 1.0)
    }
}

/// A moment for the wire: RFC 3339 in UTC.
#[must_use]
pub fn moment(timestamp: Timestamp) -> String {
    timestamp.to_string()
}

/// Asks about one item.
#[derive(Deserialize, ToSchema)]
#[schema(as = CheckRequest)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest<'a> {
    /// What is asked about: a JWT ID, an address, any text, as the filter's profile takes it.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 4096,
        example = "5c2e1f0a-3d77-4b07-9a52-0f6f6f1f7b8e")]
    pub item: Text<'a>,
    /// Whether a `maybe` is to be looked up, in the store and the sources.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<bool>, nullable = false)]
    pub confirm: Option<bool>,
    /// When the token that bears the item was issued, RFC 3339 with an offset. With `confirm` it decides
    /// where the item was added with `revoke_issued_until`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false,
        example = "2030-01-01T00:00:00Z")]
    pub issued_at: Option<Time>,
    /// The watermark that an add gave: a filter that has not followed its store so far answers
    /// `maybe` with the reason `behind`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, nullable = false, max_length = 128)]
    pub min_watermark: Option<WatermarkText>,
}

/// Asks about many items.
#[derive(Deserialize, ToSchema)]
#[schema(as = CheckBatchRequest)]
#[serde(deny_unknown_fields)]
pub struct CheckBatchRequest<'a> {
    /// What is asked about, 1 to 10,000 items unless configured otherwise.
    #[serde(borrow)]
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 10_000)]
    pub items: Vec<Text<'a>>,
    /// As for the check of one item.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, nullable = false, max_length = 128)]
    pub min_watermark: Option<WatermarkText>,
}

/// An item to add.
#[derive(Clone, Deserialize, ToSchema)]
#[schema(as = AddRequest)]
#[serde(deny_unknown_fields)]
pub struct AddRequest<'a> {
    /// What is added: a JWT ID, an address, any text, as the filter's profile takes it.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 4096,
        example = "5c2e1f0a-3d77-4b07-9a52-0f6f6f1f7b8e")]
    pub item: Text<'a>,
    /// When the item may be forgotten, RFC 3339 with an offset. Left out: never. Of several the
    /// latest holds.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false,
        example = "2030-01-01T00:00:00Z")]
    pub expires_at: Option<Time>,
    /// Revoked are the item's tokens that were issued at this time or before, RFC 3339 with an offset.
    /// Left out: all. Of several the latest holds, and one that was left out beats any.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false,
        example = "2030-01-01T00:00:00Z")]
    pub revoke_issued_until: Option<Time>,
    /// For what the answer waits.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Wait>, nullable = false)]
    pub wait: Option<Wait>,
}

/// An item to remove.
#[derive(Deserialize, ToSchema)]
#[schema(as = RemoveRequest)]
#[serde(deny_unknown_fields)]
pub struct RemoveRequest<'a> {
    /// What is removed, in this or any other spelling that is the same under the filter's profile.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 4096,
        example = "5c2e1f0a-3d77-4b07-9a52-0f6f6f1f7b8e")]
    pub item: Text<'a>,
}

/// An item of a batch.
#[derive(Clone, Deserialize, ToSchema)]
#[schema(as = BatchItem)]
#[serde(deny_unknown_fields)]
pub struct BatchItem<'a> {
    /// What is added: a JWT ID, an address, any text, as the filter's profile takes it.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 4096,
        example = "5c2e1f0a-3d77-4b07-9a52-0f6f6f1f7b8e")]
    pub item: Text<'a>,
    /// When the item may be forgotten, RFC 3339 with an offset. Left out: never. Of several the
    /// latest holds.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false,
        example = "2030-01-01T00:00:00Z")]
    pub expires_at: Option<Time>,
    /// Revoked are the item's tokens that were issued at this time or before, RFC 3339 with an offset.
    /// Left out: all. Of several the latest holds, and one that was left out beats any.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false,
        example = "2030-01-01T00:00:00Z")]
    pub revoke_issued_until: Option<Time>,
}

impl CheckRequest<'_> {
    /// The check of this filter, for the service.
    #[must_use]
    pub fn check<'c>(&'c self, filter: &'c str) -> Check<'c> {
        Check {
            filter,
            item: self.item.as_ref(),
            issued_at: self.issued_at.map(|time| time.0),
            min_watermark: self.min_watermark.as_ref().map(|text| text.0),
        }
    }
}

impl AddRequest<'_> {
    /// The terms of the item.
    #[must_use]
    pub fn terms(&self) -> Terms {
        terms(self.expires_at, self.revoke_issued_until)
    }
}

impl BatchItem<'_> {
    /// The terms of the item.
    #[must_use]
    pub fn terms(&self) -> Terms {
        terms(self.expires_at, self.revoke_issued_until)
    }
}

fn terms(expires_at: Option<Time>, revoke_issued_until: Option<Time>) -> Terms {
    Terms {
        expires_at: expires_at.map(|time| time.0),
        revoke_issued_until: revoke_issued_until.map(|time| time.0),
    }
}

/// For what an add waits before it is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "kebab-case")]
pub enum Wait {
    /// Until it is durable, and effective in the process that was asked.
    #[default]
    Local,
    /// Until it is effective in every process on the store as well, or `wait_timeout` is over.
    All,
}

impl<'de> Deserialize<'de> for Wait {
    /// By hand, for serde_json calls an array in place of an enum no JSON.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(WaitVisitor)
    }
}

struct WaitVisitor;

impl Visitor<'_> for WaitVisitor {
    type Value = Wait;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("one of local, all")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Wait, E> {
        match name {
            "local" => Ok(Wait::Local),
            "all" => Ok(Wait::All),
            _ => Err(E::invalid_value(Unexpected::Other("text"), &self)),
        }
    }
}

impl From<Wait> for answers::Wait {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Local => Self::Local,
            Wait::All => Self::All,
        }
    }
}

/// Items to add, all or none.
#[derive(Deserialize, ToSchema)]
#[schema(as = AddBatchRequest)]
#[serde(deny_unknown_fields)]
pub struct AddBatchRequest<'a> {
    /// What is added, 1 to 10,000 items unless configured otherwise.
    #[serde(borrow)]
    #[schema(value_type = Vec<BatchItem<'_>>, min_items = 1, max_items = 10_000)]
    pub items: Vec<Object<BatchItem<'a>>>,
    /// For what the answer waits.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Wait>, nullable = false)]
    pub wait: Option<Wait>,
}

/// Items, one a line.
// For the document alone. Not of the format `binary`: of that generators make a file, and a client in
// Java then sends the file's path as a JSON string, which is an item like any other.
#[derive(ToSchema)]
#[schema(value_type = String)]
pub struct ItemStream(pub String);

/// A watermark as it came.
pub struct WatermarkText(pub Watermark);

impl<'de> Deserialize<'de> for WatermarkText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(WatermarkVisitor)
    }
}

struct WatermarkVisitor;

impl Visitor<'_> for WatermarkVisitor {
    type Value = WatermarkText;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a watermark as an add gave it")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Watermark::parse(text)
            .map(WatermarkText)
            .ok_or_else(|| E::invalid_value(Unexpected::Other("text"), &self))
    }
}

/// What may be said of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The item was never added; where it was looked up, it is not there, or not for a token that was
    /// issued at the time of the check.
    DefinitelyNot,
    /// The item may have been added: look it up.
    Maybe,
}

impl From<filter::verdict::Verdict> for Verdict {
    fn from(verdict: filter::verdict::Verdict) -> Self {
        match verdict {
            filter::verdict::Verdict::DefinitelyNot => Self::DefinitelyNot,
            filter::verdict::Verdict::Maybe(_) => Self::Maybe,
        }
    }
}

/// Why a verdict is `maybe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// All bits of the item are set.
    Match,
    /// The filter has never been complete since the process started.
    Loading,
    /// The filter may have missed something.
    Stale,
    /// The filter has not reached the request's `min_watermark`.
    Behind,
}

impl From<filter::verdict::Reason> for Reason {
    fn from(reason: filter::verdict::Reason) -> Self {
        match reason {
            filter::verdict::Reason::Match => Self::Match,
            filter::verdict::Reason::Loading => Self::Loading,
            filter::verdict::Reason::Stale => Self::Stale,
            filter::verdict::Reason::Behind => Self::Behind,
        }
    }
}

/// The answer to a check of one item.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CheckAnswer)]
pub struct CheckAnswer<'a> {
    /// The filter that was asked.
    #[schema(value_type = String)]
    pub filter: &'a str,
    /// What may be said of the item.
    pub verdict: Verdict,
    /// Why; there exactly when the verdict is `maybe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<Reason>,
    /// How probably an item that was never added checks `maybe`; 1.0 while the filter may not
    /// answer.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub estimated_fp_rate: f64,
    /// Whether the item was looked up and the verdict is settled; left out where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub confirmed: Option<bool>,
}

/// The answer to a check of many items.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CheckBatchAnswer)]
pub struct CheckBatchAnswer<'a> {
    /// The filter that was asked.
    #[schema(value_type = String)]
    pub filter: &'a str,
    /// One verdict an item, in the order of the request.
    pub verdicts: Vec<Verdict>,
    /// Why the filter could not answer at all: `loading`, `stale` or `behind`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<Reason>,
    /// As for the check of one item.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub estimated_fp_rate: f64,
}

/// The item is durable, and set in this process.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AddAnswer)]
pub struct AddAnswer<'a> {
    /// The filter that it was added to.
    #[schema(value_type = String)]
    pub filter: &'a str,
    /// The place of the add in the store, for `min_watermark`. Opaque.
    #[schema(max_length = 128)]
    pub watermark: String,
    /// With `wait: all`: whether the add is effective in every process on the store. If not, it is
    /// durable and on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub visible: Option<bool>,
    /// The rate after the add.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub estimated_fp_rate: f64,
}

/// The items are durable, and set in this process.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AddBatchAnswer)]
pub struct AddBatchAnswer<'a> {
    /// The filter that they were added to.
    #[schema(value_type = String)]
    pub filter: &'a str,
    /// How many items were accepted: all of them.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub accepted: i64,
    /// The place of the add in the store, for `min_watermark`. Opaque.
    #[schema(max_length = 128)]
    pub watermark: String,
    /// With `wait: all`: whether the add is effective in every process on the store. If not, it is
    /// durable and on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub visible: Option<bool>,
    /// The rate after the add.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub estimated_fp_rate: f64,
}

/// The item is no longer in the store.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RemoveAnswer)]
pub struct RemoveAnswer<'a> {
    /// The filter that it was removed from.
    #[schema(value_type = String)]
    pub filter: &'a str,
    /// Whether the store had it.
    pub removed: bool,
    /// Whether a source has it, or cannot be asked: then only its owner can take it out.
    pub still_in_source: bool,
    /// The place of the removal in the store, for `min_watermark`. Opaque.
    #[schema(max_length = 128)]
    pub watermark: String,
}

/// How far a bulk load came: to its end.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BulkLoadAnswer)]
pub struct BulkLoadAnswer<'a> {
    /// The filter that was loaded.
    #[schema(value_type = String)]
    pub filter: &'a str,
    /// Items accepted.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub accepted: i64,
    /// Blank lines and items that were passed over.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub blank: i64,
    /// The place of the last accepted item in the store, for `min_watermark`. Opaque.
    #[schema(max_length = 128)]
    pub watermark: String,
    /// The rate after the load.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub estimated_fp_rate: f64,
}
