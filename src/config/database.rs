//! Which store, and the URLs of databases.
//!
//! Invariants: a URL is kept as a secret from the moment it is read, and no message shows any
//! part of one; a setting that is there but empty, as a lost secret is, never chooses a store.
//! This module must not know how a connection is made: what only a driver can tell is left to it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::PathBuf;

use secrecy::SecretString;
use toml::Value;
use url::Url;

use super::layers::ReadFile;
use super::problems::{ProblemKind, shown};
use super::section::{Section, text};

/// The form of a database URL, for messages.
const URL_FORM: &str = "a URL such as postgres://user:password@host:5432/database";

/// What libpq and the driver know as `sslmode`.
const SSL_MODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];

/// The durable record of what is added through the API.
#[derive(Debug, Clone)]
pub enum StoreConfig {
    /// A file in the data directory.
    Sqlite,
    /// A database that is shared by all replicas.
    Postgres {
        /// Where it is: a `postgres://` URL.
        database_url: SecretString,
    },
}

/// The kinds of store that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreKind {
    Sqlite,
    Postgres,
}

/// What a table says of its database.
enum DatabaseUrl {
    /// Nothing.
    Absent,
    /// This key is there, and empty.
    Empty(&'static str),
    /// Something with a problem, which was reported.
    Faulty,
    /// A well-formed URL.
    Given(SecretString),
}

/// The databases of a configuration: that of the top level, and how to come to the others.
pub(super) struct Databases<'a> {
    kind: Option<StoreKind>,
    top: DatabaseUrl,
    top_asked_for: Cell<bool>,
    read_file: ReadFile<'a>,
}

impl<'a> Databases<'a> {
    /// Reads `store` with `database_url` or `database_url_file` of the top level.
    pub(super) fn read(section: &mut Section<'_>, read_file: ReadFile<'a>) -> Self {
        let kind = section.optional("store", store_kind);
        let mut top = read_database_url(section, read_file);
        if let DatabaseUrl::Empty(key) = top {
            top = if kind == Some(StoreKind::Sqlite) {
                DatabaseUrl::Absent
            } else {
                let found = "is set but empty, as a lost secret would be";
                let remedy = "unset it, say store = \"sqlite\", or give a postgres:// URL";
                section.problem(key, ProblemKind::conflict(found, remedy));
                DatabaseUrl::Faulty
            };
        }
        Self {
            kind,
            top,
            top_asked_for: Cell::new(false),
            read_file,
        }
    }

    /// The database of a source: its own, or that of the top level. None when there is neither,
    /// or a problem.
    pub(super) fn of_source(&self, section: &mut Section<'_>) -> Option<SecretString> {
        match read_database_url(section, self.read_file) {
            DatabaseUrl::Given(url) => Some(url),
            DatabaseUrl::Faulty => None,
            DatabaseUrl::Empty(key) => {
                let remedy = "leave it out for the database of the top level, or give a URL";
                section.problem(key, ProblemKind::conflict("is set but empty", remedy));
                None
            }
            DatabaseUrl::Absent => {
                self.top_asked_for.set(true);
                match &self.top {
                    DatabaseUrl::Given(url) => Some(url.clone()),
                    DatabaseUrl::Faulty => None,
                    DatabaseUrl::Empty(_) | DatabaseUrl::Absent => {
                        let remedy = "give the source's database_url or database_url_file, or \
                                      one at the top level";
                        section.problem("database_url", ProblemKind::missing(remedy));
                        None
                    }
                }
            }
        }
    }

    /// The store, once all sources were read. `listen` is the address that will be served.
    pub(super) fn store(self, section: &mut Section<'_>, listen: SocketAddr) -> StoreConfig {
        match (self.kind, self.top) {
            (None | Some(StoreKind::Postgres), DatabaseUrl::Given(database_url)) => {
                return StoreConfig::Postgres { database_url };
            }
            (Some(StoreKind::Postgres), DatabaseUrl::Absent) => {
                let found = "\"postgres\" is asked for without a database";
                let remedy = "give its database_url (DATABASE_URL) or database_url_file, or say \
                              store = \"sqlite\"";
                section.problem("store", ProblemKind::conflict(found, remedy));
            }
            (Some(StoreKind::Sqlite), DatabaseUrl::Given(_)) if !self.top_asked_for.get() => {
                let found = "the store is \"sqlite\", and no source asks this database";
                let remedy = "unset it, or say store = \"postgres\"";
                section.problem("database_url", ProblemKind::conflict(found, remedy));
            }
            (None, DatabaseUrl::Absent)
                if !section.faulty(&["store", "listen"]) && !is_loopback(listen) =>
            {
                let found = format!("none is stated, and {listen} can be reached by others");
                let remedy = "give a database_url, or say store = \"sqlite\"";
                section.problem("store", ProblemKind::conflict(found, remedy));
            }
            (
                None | Some(StoreKind::Sqlite | StoreKind::Postgres),
                DatabaseUrl::Absent
                | DatabaseUrl::Empty(_)
                | DatabaseUrl::Faulty
                | DatabaseUrl::Given(_),
            ) => {}
        }
        StoreConfig::Sqlite
    }
}

/// Whether only this machine can reach the address.
pub(super) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Reads `database_url` or `database_url_file` of a table.
fn read_database_url(section: &mut Section<'_>, read_file: ReadFile<'_>) -> DatabaseUrl {
    let (key, url) = match (
        section.take("database_url"),
        section.take("database_url_file"),
    ) {
        (None, None) => return DatabaseUrl::Absent,
        (Some(_), Some(_)) => {
            let found = "database_url_file is set as well";
            let remedy = "leave one of the two out";
            section.problem("database_url", ProblemKind::conflict(found, remedy));
            return DatabaseUrl::Faulty;
        }
        (Some(value), None) => ("database_url", text(value)),
        (None, Some(value)) => ("database_url_file", read_secret_file(value, read_file)),
    };
    let checked = url.and_then(|url| {
        let url = url.trim();
        if !url.is_empty() {
            check_database_url(url)?;
        }
        Ok(url.to_owned())
    });
    match checked {
        Ok(url) if url.is_empty() => DatabaseUrl::Empty(key),
        Ok(url) => DatabaseUrl::Given(url.into()),
        Err(kind) => {
            section.problem(key, kind);
            DatabaseUrl::Faulty
        }
    }
}

/// The text of a secret file; nothing when no file is named.
fn read_secret_file(value: Value, read_file: ReadFile<'_>) -> Result<String, ProblemKind> {
    let path = PathBuf::from(text(value)?);
    if path.as_os_str().is_empty() {
        return Ok(String::new());
    }
    read_file(&path).map_err(|source| ProblemKind::Unreadable { path, source })
}

fn store_kind(value: Value) -> Result<StoreKind, ProblemKind> {
    match text(value)?.as_str() {
        "sqlite" => Ok(StoreKind::Sqlite),
        "postgres" => Ok(StoreKind::Postgres),
        other => Err(ProblemKind::unexpected(
            "\"sqlite\" or \"postgres\"",
            shown(other),
        )),
    }
}

/// Checks what can be told without a driver. A password with a character that has a meaning in
/// URLs is the usual fault, and such a URL often parses, into another host or database.
fn check_database_url(text: &str) -> Result<(), ProblemKind> {
    let found = |what: &str| Err(ProblemKind::unexpected(URL_FORM, what));
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return found("another beginning than postgres:// or postgresql:// (not shown)");
    }
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => {
            let hint = "percent-encode the characters @ : / ? # % in user and password";
            return found(&format!("a malformed one ({error}): {hint}"));
        }
    };
    if url.fragment().is_some() {
        return found("one with a #: write %23 for a # in user or password");
    }
    if url.path().contains('@') || url.query_pairs().any(|(name, _)| name.contains('@')) {
        return found(
            "one with an @ after the host: write %2F for a / and %3F for a ? in user \
                      or password, and %40 for an @",
        );
    }
    let ssl_mode = url
        .query_pairs()
        .find(|(name, _)| name == "sslmode" || name == "ssl-mode");
    match ssl_mode {
        Some((_, mode)) if !SSL_MODES.contains(&mode.as_ref()) => {
            found(&format!("an unknown sslmode: use {}", SSL_MODES.join(", ")))
        }
        Some(_) | None => Ok(()),
    }
}
