//! The configuration: flags over environment over file over defaults, read whole before anything
//! is started.
//!
//! Invariants: a [`Config`] is within every bound stated on its fields, and holds together as a
//! whole; everything that is wrong is reported at once, each problem with its key and remedy; a
//! secret is in no message and in no `Debug`. The environment, the files and the memory there is
//! come in as arguments. This module must not know who uses a value, nor start anything.

mod authz;
mod database;
mod effective;
mod filters;
mod keys;
mod layers;
mod limits;
mod memory;
mod problems;
mod section;
#[cfg(test)]
mod tests;
mod units;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Value;

pub use database::StoreConfig;
pub use filters::{FilterConfig, NAME_FORM, SourceConfig};
pub use keys::{
    ApiKey, KEY_ID_FORM, NewKey, SECRET_PREFIX, Scope, Scopes, UnknownScope, is_key_id, new_key,
};
pub use layers::{Flags, MAX_FILE_BYTES, read_text_file};
pub use limits::Limits;
pub use memory::{ASSUMED_BYTES, available_bytes};
pub use problems::{ConfigErrors, Problem, ProblemKind};
pub use units::{
    BYTES_FORM, DURATION_FORM, bytes_rounded, bytes_text, duration_text, parse_bytes,
    parse_duration,
};

use crate::service::authz::Policy;
use database::{Databases, is_loopback};
use problems::{Problems, shown};
use section::{Section, filled_text, text, text_in_form};

/// Everything that can be configured, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address and port to serve.
    pub listen: SocketAddr,
    /// Where what must outlive the process lies. Relative to the working directory, as every
    /// path here.
    pub data_dir: PathBuf,
    /// Where adds are kept.
    pub store: StoreConfig,
    /// The file with the hash key; none means one that is made in `data_dir`.
    pub hash_key_file: Option<PathBuf>,
    /// How long ago a filter may have followed its store at last: 100 ms to 24 hours.
    pub max_staleness: Duration,
    /// How often the store is asked for news: 10 ms to 60 seconds, shorter than `max_staleness`.
    pub poll_interval: Duration,
    /// Most memory that the filters' bits may take together, in bytes.
    pub memory_budget_bytes: u64,
    /// How often snapshots are written: 1 second to 7 days.
    pub snapshot_interval: Duration,
    /// How often a filter is rebuilt: 1 second to 90 days.
    pub rebuild_interval: Duration,
    /// How long past its expiry an item is kept: 24 hours at most.
    pub expiry_leeway: Duration,
    /// How long the changes that triggers record are kept: 1 second to 90 days.
    pub change_retention: Duration,
    /// How long an add may wait for all replicas: 10 ms to 10 minutes.
    pub wait_timeout: Duration,
    /// What requests are held to.
    pub limits: Limits,
    /// The declared filters, by name; together within the memory budget.
    pub filters: Vec<FilterConfig>,
    /// What gateways may ask by, by name. A filter that is not declared may be made later.
    pub authz: Vec<Policy>,
    /// The keys that may be used; with none, everyone who reaches `listen` may do everything.
    pub keys: Vec<ApiKey>,
    /// Whether a data directory that belongs to another store may be taken.
    pub accept_new_store: bool,
}

impl Config {
    /// Reads the configuration.
    ///
    /// `look_up` gives a variable of the environment, `read_file` a file's whole text
    /// ([`read_text_file`]), and `available_memory_bytes` what a share of the memory is a share
    /// of ([`available_bytes`]).
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn load(
        flags: &Flags,
        look_up: impl Fn(&str) -> Option<String>,
        read_file: impl Fn(&Path) -> io::Result<String>,
        available_memory_bytes: u64,
    ) -> Result<Self, ConfigErrors> {
        let mut problems = Problems::default();
        let Some(table) = layers::merge(flags, &look_up, &read_file, &mut problems) else {
            return Err(problems.into_errors());
        };
        let config = Section::read(String::new(), table, &mut problems, |section| {
            let databases = Databases::read(section, &read_file);
            Self::read(section, flags, databases, available_memory_bytes)
        });
        problems.or_value(config)
    }

    fn read(
        section: &mut Section<'_>,
        flags: &Flags,
        databases: Databases<'_>,
        available_memory_bytes: u64,
    ) -> Self {
        let listen = section
            .optional("listen", socket_address)
            .unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)));
        let filters = filters::read_filters(section, &databases);
        let config = Self {
            listen,
            data_dir: section
                .optional("data_dir", filled_text)
                .map_or_else(|| PathBuf::from("./data"), PathBuf::from),
            store: databases.store(section, listen),
            hash_key_file: section.optional("hash_key_file", hash_key_file).flatten(),
            max_staleness: read_duration(section, &MAX_STALENESS),
            poll_interval: read_duration(section, &POLL_INTERVAL),
            memory_budget_bytes: section
                .optional("memory_budget", |value| {
                    memory::budget_bytes(value, available_memory_bytes)
                })
                .unwrap_or_else(|| memory::default_budget_bytes(available_memory_bytes)),
            snapshot_interval: read_duration(section, &SNAPSHOT_INTERVAL),
            rebuild_interval: read_duration(section, &REBUILD_INTERVAL),
            expiry_leeway: read_duration(section, &EXPIRY_LEEWAY),
            change_retention: read_duration(section, &CHANGE_RETENTION),
            wait_timeout: read_duration(section, &WAIT_TIMEOUT),
            limits: section.table("limits", limits::read_limits),
            filters,
            authz: authz::read_authz(section),
            keys: keys::read_keys(section),
            accept_new_store: flags.accept_new_store,
        };
        config.check_together(section, flags.insecure_no_keys);
        config
    }

    /// What no key can tell by itself. A key that has a problem already is left alone.
    fn check_together(&self, section: &mut Section<'_>, insecure_no_keys: bool) {
        if self.poll_interval >= self.max_staleness
            && !section.faulty(&["poll_interval", "max_staleness"])
        {
            let found = format!(
                "{} is not shorter than max_staleness, {}, so that every filter would be stale",
                duration_text(self.poll_interval),
                duration_text(self.max_staleness)
            );
            let remedy = "lower it, or raise max_staleness";
            section.problem("poll_interval", ProblemKind::conflict(found, remedy));
        }
        let needed_bytes = self.filters.iter().fold(0_u64, |sum, filter| {
            sum.saturating_add(filter.declaration.sizing.memory_bytes())
        });
        if needed_bytes > self.memory_budget_bytes && !section.faulty(&["memory_budget"]) {
            let found = format!(
                "the configured filters need {}, and the budget is {}",
                bytes_rounded(needed_bytes),
                bytes_rounded(self.memory_budget_bytes)
            );
            let remedy = "raise it, or lower a filter's capacity or raise its rate";
            section.problem("memory_budget", ProblemKind::conflict(found, remedy));
        }
        let open_to_others = self.keys.is_empty() && !is_loopback(self.listen);
        if open_to_others && !insecure_no_keys && !section.faulty(&["keys"]) {
            let found = format!(
                "none is configured, and {} can be reached by others",
                self.listen
            );
            let remedy = "add one made by `bloomgate key new`, listen on 127.0.0.1, or pass \
                          --insecure-no-keys";
            section.problem("keys", ProblemKind::conflict(found, remedy));
        }
    }
}

/// A duration at the top level: its key, its default and its bounds.
struct DurationKey {
    key: &'static str,
    default: Duration,
    bounds: RangeInclusive<Duration>,
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const DAY_MS: u64 = 86_400_000;

const MAX_STALENESS: DurationKey = DurationKey {
    key: "max_staleness",
    default: ms(30_000),
    bounds: ms(100)..=ms(DAY_MS),
};
const POLL_INTERVAL: DurationKey = DurationKey {
    key: "poll_interval",
    default: ms(500),
    bounds: ms(10)..=ms(60_000),
};
const SNAPSHOT_INTERVAL: DurationKey = DurationKey {
    key: "snapshot_interval",
    default: ms(15 * 60_000),
    bounds: ms(1_000)..=ms(7 * DAY_MS),
};
const REBUILD_INTERVAL: DurationKey = DurationKey {
    key: "rebuild_interval",
    default: ms(DAY_MS),
    bounds: ms(1_000)..=ms(90 * DAY_MS),
};
const EXPIRY_LEEWAY: DurationKey = DurationKey {
    key: "expiry_leeway",
    default: ms(120_000),
    bounds: ms(0)..=ms(DAY_MS),
};
const CHANGE_RETENTION: DurationKey = DurationKey {
    key: "change_retention",
    default: ms(DAY_MS),
    bounds: ms(1_000)..=ms(90 * DAY_MS),
};
const WAIT_TIMEOUT: DurationKey = DurationKey {
    key: "wait_timeout",
    default: ms(10_000),
    bounds: ms(10)..=ms(600_000),
};

fn read_duration(section: &mut Section<'_>, duration: &DurationKey) -> Duration {
    section.duration(duration.key, duration.default, &duration.bounds)
}

fn socket_address(value: Value) -> Result<SocketAddr, ProblemKind> {
    let expected = "an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"";
    let text = text_in_form(value, expected)?;
    text.parse()
        .map_err(|_| ProblemKind::unexpected(expected, shown(&text)))
}

/// Empty means left out, as the documented default is written.
fn hash_key_file(value: Value) -> Result<Option<PathBuf>, ProblemKind> {
    let path = text(value)?;
    Ok((!path.is_empty()).then(|| PathBuf::from(path)))
}
