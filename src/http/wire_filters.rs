//! What goes over the wire about filters: declarations and descriptions.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::parse::{Object, present};
use super::problem::Problem;
use super::problem_kind::ProblemKind;
use super::refusal::sizing_refusal;
use super::wire::{moment, rate, whole};
use crate::filter;
use crate::filter::profile::EmailOptions;
use crate::service::answers;
use crate::service::declaration::{self, Declaration};

/// How a filter turns an item into its canonical bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// The ID of a JWT: exact bytes, but for the forms of a UUID, which are one.
    Jti,
    /// An address, in one key for all its spellings.
    Email,
    /// Exact bytes.
    Text,
}

impl<'de> Deserialize<'de> for Profile {
    /// By hand, for serde_json calls an array in place of an enum no JSON.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(ProfileVisitor)
    }
}

struct ProfileVisitor;

impl Visitor<'_> for ProfileVisitor {
    type Value = Profile;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("one of jti, email, text")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Profile, E> {
        match name {
            "jti" => Ok(Profile::Jti),
            "email" => Ok(Profile::Email),
            "text" => Ok(Profile::Text),
            _ => Err(E::invalid_value(Unexpected::Other("text"), &self)),
        }
    }
}

/// Rules of providers, for the profile `email` only. Empty for the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileOptions {
    /// Dots in the local part of a Gmail address do not count.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub gmail_dots: Option<bool>,
    /// googlemail.com is gmail.com.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub googlemail: Option<bool>,
    /// What follows a plus sign in the local part does not count.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub plus_tags: Option<bool>,
}

/// The rules of providers that a filter follows; empty for the profiles that have none.
// Apart from those of a request, which takes no field that it does not know: an answer may gain some.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct AppliedOptions {
    /// Dots in the local part of a Gmail address do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub gmail_dots: Option<bool>,
    /// googlemail.com is gmail.com.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub googlemail: Option<bool>,
    /// What follows a plus sign in the local part does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub plus_tags: Option<bool>,
}

/// What a filter is declared to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutFilterRequest {
    /// How items become canonical bytes.
    pub profile: Profile,
    /// How many items the filter is sized for.
    #[schema(value_type = i64, minimum = 1, maximum = 1_000_000_000_000_i64, example = 1_000_000)]
    pub capacity: u64,
    /// How probably an item that was never added checks `maybe` once the capacity is reached.
    #[schema(minimum = 0.000_000_000_1, maximum = 0.5, example = 0.01)]
    pub false_positive_rate: f64,
    /// Rules of providers, for the profile `email` only.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<ProfileOptions>, nullable = false)]
    pub profile_options: Option<Object<ProfileOptions>>,
}

impl PutFilterRequest {
    /// The declaration that it asks for.
    ///
    /// # Errors
    /// When capacity or rate are out of range, or options are given for a profile without any.
    pub fn declaration(self) -> Result<Declaration, Problem> {
        let options = self.profile_options.map(|options| options.0);
        let options = options.unwrap_or_default();
        let profile = match self.profile {
            Profile::Email => filter::profile::Profile::Email(EmailOptions {
                gmail_dots: options.gmail_dots.unwrap_or_default(),
                googlemail: options.googlemail.unwrap_or_default(),
                plus_tags: options.plus_tags.unwrap_or_default(),
            }),
            Profile::Jti => filter::profile::Profile::Jti,
            Profile::Text => filter::profile::Profile::Text,
        };
        if self.profile != Profile::Email && options != ProfileOptions::default() {
            return Err(Problem::at(
                ProblemKind::InvalidField,
                "/profile_options",
                "only the profile email has options; leave them out",
            ));
        }
        Declaration::new(profile, self.capacity, self.false_positive_rate)
            .map_err(|error| sizing_refusal(&error))
    }
}

/// What a filter can do at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It has never been complete since the process started.
    Loading,
    /// It may say `definitely-not`.
    Live,
    /// It was complete once and may have missed something since.
    Stale,
}

impl From<answers::State> for State {
    fn from(state: answers::State) -> Self {
        match state {
            answers::State::Loading => Self::Loading,
            answers::State::Live => Self::Live,
            answers::State::Stale => Self::Stale,
        }
    }
}

/// Who declared a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeclaredBy {
    /// The configuration: it cannot be deleted through the API.
    Config,
    /// A PUT.
    Api,
}

impl From<declaration::DeclaredBy> for DeclaredBy {
    fn from(declared_by: declaration::DeclaredBy) -> Self {
        match declared_by {
            declaration::DeclaredBy::Config => Self::Config,
            declaration::DeclaredBy::Api => Self::Api,
        }
    }
}

/// A query on the user's own database that feeds a filter.
#[derive(Debug, Serialize, ToSchema)]
pub struct SourceDescription {
    /// Its name.
    pub name: String,
    /// Whether it was loaded, and within its bound.
    pub state: State,
    /// Rows of the last complete load, blank and expired ones included.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub rows_loaded: i64,
    /// NULL and blank rows among them.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub rows_blank: i64,
    /// Rows that took a fallback, such as what is no address.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub rows_odd: i64,
    /// Rows past their expiry: not in the filter.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub rows_expired: i64,
    /// How long the last complete load took.
    #[schema(minimum = 0.0)]
    pub load_seconds: f64,
    /// The moment that the last complete load stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub as_of: Option<String>,
    /// Why the latest attempt failed, or why no `maybe` is settled by its `confirm_query`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<String>,
}

impl From<answers::SourceDescription> for SourceDescription {
    fn from(source: answers::SourceDescription) -> Self {
        Self {
            name: source.name,
            state: source.state.into(),
            rows_loaded: whole(source.rows_loaded),
            rows_blank: whole(source.rows_blank),
            rows_odd: whole(source.rows_odd),
            rows_expired: whole(source.rows_expired),
            load_seconds: source.load_seconds,
            as_of: source.as_of.map(moment),
            error: source.error,
        }
    }
}

/// How far a load has come.
#[derive(Debug, Serialize, ToSchema)]
pub struct Progress {
    /// Rows taken so far.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub rows_done: i64,
    /// Rows that there are.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub rows_expected: i64,
    /// What is being loaded.
    pub phase: String,
}

/// Everything that is known of a filter.
#[derive(Debug, Serialize, ToSchema)]
pub struct FilterDescription {
    /// Its name.
    pub filter: String,
    /// What it can do at the moment.
    pub state: State,
    /// How items become canonical bytes.
    pub profile: Profile,
    /// The version of that rule.
    #[schema(minimum = 1)]
    pub profile_version: i32,
    /// Rules of providers; empty for the profiles that have none.
    pub profile_options: AppliedOptions,
    /// How many items the filter is sized for.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub capacity: i64,
    /// How probably an absent item checks `maybe` at capacity, as declared.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub false_positive_rate: f64,
    /// Bits of the filter.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub bit_count: i64,
    /// Bits that an item sets.
    #[schema(minimum = 1)]
    pub hash_count: i32,
    /// Bytes of the bits.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub memory_bytes: i64,
    /// The part of the bits that is set.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub fill_ratio: f64,
    /// How probably an absent item checks `maybe` now, from the bits that are set.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub estimated_fp_rate: f64,
    /// The share of the matches that were looked up (`confirm`) and were false; left out before the
    /// first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0.0, maximum = 1.0)]
    pub measured_fp_rate: Option<f64>,
    /// How many different items are in, from the bits that are set.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub estimated_cardinality: i64,
    /// Whether that is more than the filter is sized for.
    pub over_capacity: bool,
    /// Counts the bit arrays that the filter has had since the process started.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_i64)]
    pub generation: i64,
    /// The moment up to which the filter has followed its store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub as_of: Option<String>,
    /// Who declared it.
    pub declared_by: DeclaredBy,
    /// What feeds it beside the store.
    pub sources: Vec<SourceDescription>,
    /// The load that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub progress: Option<Progress>,
    /// What an operator should know: why the filter must not answer though it is loaded, or why a
    /// rebuild that is due did not begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<String>,
}

/// A rebuild is under way.
#[derive(Debug, Serialize, ToSchema)]
pub struct RebuildAnswer {
    /// The filter that is rebuilt.
    pub filter: String,
    /// What it can do meanwhile.
    pub state: State,
    /// How far the building has come.
    pub progress: Progress,
}

impl RebuildAnswer {
    /// The answer for the filter of that name.
    #[must_use]
    pub fn new(filter: String, answer: answers::RebuildAnswer) -> Self {
        Self {
            filter,
            state: answer.state.into(),
            progress: answer.progress.into(),
        }
    }
}

impl From<answers::Progress> for Progress {
    fn from(progress: answers::Progress) -> Self {
        Self {
            rows_done: whole(progress.rows_done),
            rows_expected: whole(progress.rows_expected),
            phase: progress.phase,
        }
    }
}

fn wire_profile(profile: filter::profile::Profile) -> (Profile, AppliedOptions) {
    match profile {
        filter::profile::Profile::Jti => (Profile::Jti, AppliedOptions::default()),
        filter::profile::Profile::Text => (Profile::Text, AppliedOptions::default()),
        filter::profile::Profile::Email(options) => {
            let options = AppliedOptions {
                gmail_dots: Some(options.gmail_dots),
                googlemail: Some(options.googlemail),
                plus_tags: Some(options.plus_tags),
            };
            (Profile::Email, options)
        }
    }
}

/// A small number for the wire.
#[must_use]
pub fn small(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

impl From<answers::Description> for FilterDescription {
    fn from(description: answers::Description) -> Self {
        let Declaration {
            profile, sizing, ..
        } = &description.declaration;
        let statistics = &description.statistics;
        let (wire_profile, profile_options) = wire_profile(*profile);
        Self {
            filter: description.filter.as_str().to_owned(),
            state: description.state.into(),
            profile: wire_profile,
            profile_version: small(profile.version()),
            profile_options,
            capacity: whole(description.capacity),
            false_positive_rate: sizing.false_positive_rate(),
            bit_count: whole(statistics.bit_count),
            hash_count: small(statistics.hash_count),
            memory_bytes: whole(description.memory_bytes),
            fill_ratio: rate(statistics.fill_ratio),
            estimated_fp_rate: rate(statistics.estimated_fp_rate),
            measured_fp_rate: description.measured_fp_rate.map(rate),
            estimated_cardinality: whole(statistics.estimated_cardinality),
            over_capacity: description.over_capacity,
            generation: whole(description.generation),
            as_of: description.as_of.map(moment),
            declared_by: description.declared_by.into(),
            sources: description.sources.into_iter().map(Into::into).collect(),
            progress: description.progress.map(Into::into),
            problem: description.problem,
        }
    }
}

/// The filters that the caller may know of.
#[derive(Debug, Serialize, ToSchema)]
pub struct FilterList {
    /// One description a filter, by name.
    pub filters: Vec<FilterDescription>,
}
