//! `[filters.NAME]` and `[[filters.NAME.sources]]`.
//!
//! Invariant: what is read is a [`Declaration`] within bounds, whose source names are those of
//! the sources beside it. This module must not know how a source is asked.

use std::ops::RangeInclusive;
use std::time::Duration;

use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use toml::Value;

use super::database::Databases;
use super::problems::{ProblemKind, shown};
use super::section::{Section, boolean, duration, filled_text, integer, real, text};
use super::units::duration_text;
use crate::filter::profile::{EmailOptions, Profile};
use crate::filter::sizing::{Sizing, SizingError};
use crate::service::declaration::{Declaration, DeclaredSource, FilterName};

/// The form of the names of filters and sources, for messages.
pub const NAME_FORM: &str = "1 to 64 of a-z, 0-9, - and _, beginning with a letter or digit";

const REFRESH_INTERVAL: Duration = Duration::from_secs(5 * 60);
const REFRESH_INTERVAL_BOUNDS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(7 * 86_400);
const MAX_STALENESS_BOUNDS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(14 * 86_400);

/// A filter that the configuration declares.
#[derive(Debug, Clone)]
pub struct FilterConfig {
    /// Its name.
    pub name: FilterName,
    /// What it is declared to be; its `sources` are those below.
    pub declaration: Declaration,
    /// What feeds it beside the API, in the order of the file.
    pub sources: Vec<SourceConfig>,
}

/// A query on the user's own Postgres that feeds a filter.
#[derive(Debug, Clone)]
pub struct SourceConfig {
    /// Its name, of the same form as a filter's and unique in its filter.
    pub name: String,
    /// The database that it asks: its own, or the one at the top level.
    pub database_url: SecretString,
    /// The query: its first column is the item, a second one the expiry.
    pub query: String,
    /// How long after one load the next begins: 100 ms to 7 days.
    pub refresh_interval: Duration,
    /// How old the last load may be before the filter is stale: longer than `refresh_interval`,
    /// 14 days at most.
    pub max_staleness: Duration,
    /// The same where it is stated. Where it is not, a source whose changes are recorded is held to
    /// the file's own bound.
    pub stated_max_staleness: Option<Duration>,
    /// The query that settles a `maybe`, when there is one.
    pub confirm_query: Option<String>,
}

/// Reads `[filters]`; the two default filters when it is left out.
pub(super) fn read_filters(
    section: &mut Section<'_>,
    databases: &Databases<'_>,
) -> Vec<FilterConfig> {
    let read = |name: &str, filter: &mut Section<'_>| read_filter(name, filter, databases);
    let mut filters = section
        .named("filters", read)
        .unwrap_or_else(default_filters);
    filters.sort_by(|left, right| left.name.cmp(&right.name));
    filters
}

fn default_filters() -> Vec<FilterConfig> {
    [
        (
            "registered-email",
            Profile::Email(EmailOptions::default()),
            5_000_000,
            0.001,
        ),
        ("revoked-jti", Profile::Jti, 1_000_000, 0.01),
    ]
    .into_iter()
    .filter_map(|(name, profile, capacity, rate)| {
        Some(FilterConfig {
            name: FilterName::parse(name)?,
            declaration: Declaration::new(profile, capacity, rate).ok()?,
            sources: Vec::new(),
        })
    })
    .collect()
}

fn read_filter(
    name: &str,
    section: &mut Section<'_>,
    databases: &Databases<'_>,
) -> Option<FilterConfig> {
    let parsed_name = FilterName::parse(name);
    if parsed_name.is_none() {
        let expected = format!("a filter name of {NAME_FORM}");
        section.own_problem(ProblemKind::unexpected(expected, shown(name)));
    }
    let profile = read_profile(section);
    let sizing = read_sizing(section);
    let mut names: Vec<String> = Vec::new();
    let sources = section.tables("sources", |source| {
        let source = read_source(source, &names, databases)?;
        names.push(source.name.clone());
        Some(source)
    });
    let mut declared: Vec<_> = sources.iter().map(declared_source).collect();
    declared.sort_by(|one, other| one.name.cmp(&other.name));
    Some(FilterConfig {
        name: parsed_name?,
        declaration: Declaration {
            profile: profile?,
            sizing: sizing?,
            sources: declared,
        },
        sources,
    })
}

fn declared_source(source: &SourceConfig) -> DeclaredSource {
    DeclaredSource {
        name: source.name.clone(),
        query_digest: Sha256::digest(&source.query).into(),
    }
}

fn read_profile(section: &mut Section<'_>) -> Option<Profile> {
    let expected = "\"jti\", \"email\" or \"text\"";
    let remedy = format!("state {expected}");
    let profile = section.required("profile", &remedy, |value| match text(value)?.as_str() {
        "jti" => Ok(Profile::Jti),
        "email" => Ok(Profile::Email(EmailOptions::default())),
        "text" => Ok(Profile::Text),
        other => Err(ProblemKind::unexpected(expected, shown(other))),
    });
    match profile {
        Some(Profile::Email(_)) => {
            let options = section.table("profile_options", read_email_options);
            Some(Profile::Email(options))
        }
        Some(other @ (Profile::Jti | Profile::Text)) => {
            section.table("profile_options", |_none_known| ());
            Some(other)
        }
        None => {
            // Which options there are depends on the profile.
            section.take("profile_options");
            None
        }
    }
}

fn read_email_options(section: &mut Section<'_>) -> EmailOptions {
    let mut option = |key| section.optional(key, boolean).unwrap_or(false);
    EmailOptions {
        gmail_dots: option("gmail_dots"),
        googlemail: option("googlemail"),
        plus_tags: option("plus_tags"),
    }
}

fn read_sizing(section: &mut Section<'_>) -> Option<Sizing> {
    let capacity = section.required(
        "capacity",
        "state how many items the filter is to hold",
        item_count,
    );
    let rate = section.required(
        "false_positive_rate",
        "state the share of false answers at capacity, such as 0.01",
        real,
    );
    let (capacity, rate) = (capacity?, rate?);
    // One by one first, so that a fault of the one hides none of the other.
    let apart = [Sizing::new(capacity, 0.01), Sizing::new(1_000, rate)];
    let faults: Vec<SizingError> = apart.into_iter().filter_map(Result::err).collect();
    if faults.is_empty() {
        return Sizing::new(capacity, rate)
            .map_err(|fault| report_sizing(section, fault))
            .ok();
    }
    for fault in faults {
        report_sizing(section, fault);
    }
    None
}

fn report_sizing(section: &mut Section<'_>, fault: SizingError) {
    let key = match fault {
        SizingError::CapacityOutOfRange { .. } => "capacity",
        SizingError::RateOutOfRange { .. } => "false_positive_rate",
    };
    section.problem(key, ProblemKind::Sizing(fault));
}

fn item_count(value: Value) -> Result<u64, ProblemKind> {
    let number = integer(value)?;
    u64::try_from(number)
        .map_err(|_| ProblemKind::unexpected("a number of items", number.to_string()))
}

fn read_source(
    section: &mut Section<'_>,
    taken: &[String],
    databases: &Databases<'_>,
) -> Option<SourceConfig> {
    let name = section.required("name", "give the source a name", |value| {
        source_name(value, taken)
    });
    let database_url = databases.of_source(section);
    let query = section.required(
        "query",
        "give the SELECT whose first column is the item",
        filled_text,
    );
    let refresh_interval = section.duration(
        "refresh_interval",
        REFRESH_INTERVAL,
        &REFRESH_INTERVAL_BOUNDS,
    );
    let stated_max_staleness = section.optional("max_staleness", |value| {
        duration(value, &MAX_STALENESS_BOUNDS)
    });
    let max_staleness = stated_max_staleness.unwrap_or(refresh_interval * 2);
    if max_staleness <= refresh_interval && !section.faulty(&["refresh_interval"]) {
        let found = format!(
            "{} is not longer than refresh_interval, {}, so that the filter would be stale \
             before each refresh",
            duration_text(max_staleness),
            duration_text(refresh_interval)
        );
        let remedy = "raise it, or leave it out for twice refresh_interval";
        section.problem("max_staleness", ProblemKind::conflict(found, remedy));
    }
    let confirm_query = section.optional("confirm_query", filled_text);
    Some(SourceConfig {
        name: name?,
        database_url: database_url?,
        query: query?,
        refresh_interval,
        max_staleness,
        stated_max_staleness,
        confirm_query,
    })
}

fn source_name(value: Value, taken: &[String]) -> Result<String, ProblemKind> {
    let name = text(value)?;
    if FilterName::parse(&name).is_none() {
        return Err(ProblemKind::unexpected(NAME_FORM, shown(&name)));
    }
    if taken.contains(&name) {
        let found = format!("another source of this filter is named {}", shown(&name));
        return Err(ProblemKind::conflict(found, "give each its own name"));
    }
    Ok(name)
}
