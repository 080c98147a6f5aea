//! The configuration as it takes effect, in the form of the file, secrets masked.
//!
//! Invariant: what is printed is TOML; without the masks it reads back to the same configuration.

use std::fmt::{self, Write};
use std::path::Path;
use std::time::Duration;

use toml::{Table, Value};

use super::keys::quoted_list;
use super::units::{bytes_text, duration_text};
use super::{ApiKey, Config, FilterConfig, Limits, Scope, SourceConfig, StoreConfig};
use crate::filter::profile::Profile;
use crate::service::authz::{ClaimFilter, Policy};
use crate::service::declaration::FilterName;

/// What stands for a secret.
const MASK: &str = "\"***\"";

impl Config {
    /// The configuration as it takes effect, defaults included: TOML, with `***` for every
    /// database URL and digest.
    #[must_use]
    pub fn effective(&self) -> String {
        let mut out = String::new();
        // Writing to a String never fails.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "listen = \"{}\"", self.listen)?;
        writeln!(out, "data_dir = {}", path(&self.data_dir))?;
        match &self.store {
            StoreConfig::Sqlite => writeln!(out, "store = \"sqlite\"")?,
            StoreConfig::Postgres { .. } => {
                writeln!(out, "store = \"postgres\"\ndatabase_url = {MASK}")?;
            }
        }
        if let Some(file) = &self.hash_key_file {
            writeln!(out, "hash_key_file = {}", path(file))?;
        }
        duration(out, "max_staleness", self.max_staleness)?;
        duration(out, "poll_interval", self.poll_interval)?;
        let budget = bytes_text(self.memory_budget_bytes);
        writeln!(out, "memory_budget = \"{budget}\"")?;
        duration(out, "snapshot_interval", self.snapshot_interval)?;
        duration(out, "rebuild_interval", self.rebuild_interval)?;
        duration(out, "expiry_leeway", self.expiry_leeway)?;
        duration(out, "change_retention", self.change_retention)?;
        duration(out, "wait_timeout", self.wait_timeout)?;
        write_limits(out, &self.limits)?;
        writeln!(out, "\n[filters]")?;
        for filter in &self.filters {
            write_filter(out, filter)?;
        }
        for policy in &self.authz {
            write_policy(out, policy)?;
        }
        for key in &self.keys {
            write_key(out, key)?;
        }
        Ok(())
    }
}

fn write_limits(out: &mut String, limits: &Limits) -> fmt::Result {
    writeln!(out, "\n[limits]")?;
    writeln!(out, "max_body = \"{}\"", bytes_text(limits.max_body_bytes))?;
    writeln!(out, "max_batch = {}", limits.max_batch)?;
    duration(out, "header_timeout", limits.header_timeout)?;
    duration(out, "request_timeout", limits.request_timeout)?;
    duration(out, "drain_timeout", limits.drain_timeout)?;
    writeln!(out, "max_connections = {}", limits.max_connections)?;
    writeln!(out, "max_confirms = {}", limits.max_confirms)
}

fn write_filter(out: &mut String, filter: &FilterConfig) -> fmt::Result {
    let profile = filter.declaration.profile;
    let sizing = &filter.declaration.sizing;
    writeln!(out, "\n[filters.{}]", filter.name)?;
    writeln!(out, "profile = \"{}\"", profile.name())?;
    writeln!(out, "capacity = {}", sizing.capacity())?;
    // Debug keeps the decimal point, without which TOML reads an integer.
    writeln!(
        out,
        "false_positive_rate = {:?}",
        sizing.false_positive_rate()
    )?;
    match profile {
        Profile::Email(options) => writeln!(
            out,
            "profile_options = {{ gmail_dots = {}, googlemail = {}, plus_tags = {} }}",
            options.gmail_dots, options.googlemail, options.plus_tags
        )?,
        Profile::Jti | Profile::Text => {}
    }
    for source in &filter.sources {
        write_source(out, &filter.name, source)?;
    }
    Ok(())
}

fn write_source(out: &mut String, filter: &FilterName, source: &SourceConfig) -> fmt::Result {
    writeln!(out, "\n[[filters.{filter}.sources]]")?;
    writeln!(out, "name = \"{}\"", source.name)?;
    writeln!(out, "database_url = {MASK}")?;
    writeln!(out, "query = {}", text(&source.query))?;
    duration(out, "refresh_interval", source.refresh_interval)?;
    duration(out, "max_staleness", source.max_staleness)?;
    if let Some(query) = &source.confirm_query {
        writeln!(out, "confirm_query = {}", text(query))?;
    }
    Ok(())
}

fn write_policy(out: &mut String, policy: &Policy) -> fmt::Result {
    writeln!(out, "\n[authz.{}]", policy.name)?;
    for ClaimFilter { claim, filter } in &policy.claims {
        // A claim may be named anything, and a key is quoted by rules of its own.
        let line = Table::from_iter([(claim.clone(), filter.as_str().into())]);
        write!(out, "{line}")?;
    }
    writeln!(out, "on_maybe = \"{}\"", policy.on_maybe.as_str())
}

fn write_key(out: &mut String, key: &ApiKey) -> fmt::Result {
    let scopes = quoted_list(key.scopes.iter().map(Scope::as_str));
    writeln!(out, "\n[[keys]]\nid = \"{}\"\nsha256 = {MASK}", key.id)?;
    writeln!(out, "scopes = {scopes}")?;
    if let Some(filters) = &key.filters {
        let names = quoted_list(filters.iter().map(FilterName::as_str));
        writeln!(out, "filters = {names}")?;
    }
    if let Some(rate) = key.requests_per_second {
        writeln!(out, "requests_per_second = {rate}")?;
    }
    Ok(())
}

fn duration(out: &mut String, key: &str, value: Duration) -> fmt::Result {
    writeln!(out, "{key} = \"{}\"", duration_text(value))
}

fn path(path: &Path) -> String {
    text(&path.display().to_string())
}

/// A text as TOML writes it, escapes included.
fn text(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
