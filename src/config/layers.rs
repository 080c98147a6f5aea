//! Flags over environment over file, laid into one table.
//!
//! Invariants: a key's value comes whole from the highest layer that gives it. `database_url` and
//! `database_url_file` are one setting in two forms: a layer that gives either hides both of the
//! layers below. Nothing is judged here but that the file can be read and is TOML. This module
//! must not know what a value means.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use secrecy::{ExposeSecret, SecretString};
use toml::{Table, Value};

use super::problems::{ProblemKind, Problems};

/// The longest file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// How a file is read: gives its whole text.
pub(super) type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// How a variable of the environment is looked up.
pub(super) type LookUp<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The top-level keys that hold one value, each with its variable.
const VARIABLES: [(&str, &str); 14] = [
    ("listen", "BLOOMGATE_LISTEN"),
    ("data_dir", "BLOOMGATE_DATA_DIR"),
    ("store", "BLOOMGATE_STORE"),
    (DATABASE_URL, "BLOOMGATE_DATABASE_URL"),
    (DATABASE_URL_FILE, "BLOOMGATE_DATABASE_URL_FILE"),
    ("hash_key_file", "BLOOMGATE_HASH_KEY_FILE"),
    ("max_staleness", "BLOOMGATE_MAX_STALENESS"),
    ("poll_interval", "BLOOMGATE_POLL_INTERVAL"),
    ("memory_budget", "BLOOMGATE_MEMORY_BUDGET"),
    ("snapshot_interval", "BLOOMGATE_SNAPSHOT_INTERVAL"),
    ("rebuild_interval", "BLOOMGATE_REBUILD_INTERVAL"),
    ("expiry_leeway", "BLOOMGATE_EXPIRY_LEEWAY"),
    ("change_retention", "BLOOMGATE_CHANGE_RETENTION"),
    ("wait_timeout", "BLOOMGATE_WAIT_TIMEOUT"),
];

const DATABASE_URL: &str = "database_url";
const DATABASE_URL_FILE: &str = "database_url_file";

/// The flags that configure, for every command. They are taken as they come and judged together
/// with the rest of the configuration.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub struct Flags {
    /// Configuration file (TOML); without it there is none [env: BLOOMGATE_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address and port to listen on [env: BLOOMGATE_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Directory for what must outlive the process [env: BLOOMGATE_DATA_DIR] [default: ./data]
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Postgres of the store; prefer the variable, others see this process's flags
    /// [env: BLOOMGATE_DATABASE_URL, DATABASE_URL]
    #[arg(long, global = true, value_name = "URL")]
    pub database_url: Option<SecretString>,
    /// Where adds are kept: "sqlite" or "postgres" [env: BLOOMGATE_STORE]
    /// [default: postgres with a database URL, else sqlite]
    #[arg(long, global = true, value_name = "KIND")]
    pub store: Option<String>,
    /// Serve on an address that others can reach although no key is configured
    #[arg(long, global = true)]
    pub insecure_no_keys: bool,
    /// Take a data directory that belongs to another store
    #[arg(long, global = true)]
    pub accept_new_store: bool,
}

/// Reads a text file of at most [`MAX_FILE_BYTES`].
///
/// # Errors
/// When it cannot be read, is longer, or is no UTF-8.
pub fn read_text_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let limit = format!("it is longer than {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, limit));
    }
    Ok(text)
}

/// Lays the layers over each other. None when the file cannot be read or is no TOML: what else
/// could be said of such a configuration would be guesswork.
pub(super) fn merge(
    flags: &Flags,
    look_up: LookUp<'_>,
    read_file: ReadFile<'_>,
    problems: &mut Problems,
) -> Option<Table> {
    let mut merged = read_config_file(flags, look_up, read_file, problems)?;
    let variable = |name: &'static str, key| look_up(name).map(|value| (key, name, value));
    let ambient = variable("DATABASE_URL", DATABASE_URL);
    lay_over(&mut merged, ambient.into_iter().collect(), problems);
    let ours = VARIABLES
        .iter()
        .filter_map(|(key, name)| variable(name, *key));
    lay_over(&mut merged, ours.collect(), problems);
    lay_over(&mut merged, flag_values(flags), problems);
    Some(merged)
}

/// A key, where its value comes from, and the value.
type Given = (&'static str, &'static str, String);

fn lay_over(merged: &mut Table, layer: Vec<Given>, problems: &mut Problems) {
    let is_url = |key: &str| key == DATABASE_URL || key == DATABASE_URL_FILE;
    if layer.iter().any(|(key, _, _)| is_url(key)) {
        merged.remove(DATABASE_URL);
        merged.remove(DATABASE_URL_FILE);
    }
    for (key, origin, value) in layer {
        merged.insert(key.to_owned(), Value::String(value));
        problems.note_origin(key, origin);
    }
}

fn flag_values(flags: &Flags) -> Vec<Given> {
    let database_url = flags.database_url.as_ref();
    [
        ("listen", "--listen", flags.listen.clone()),
        ("data_dir", "--data-dir", flags.data_dir.clone()),
        ("store", "--store", flags.store.clone()),
        (
            DATABASE_URL,
            "--database-url",
            database_url.map(|url| url.expose_secret().to_owned()),
        ),
    ]
    .into_iter()
    .filter_map(|(key, origin, value)| Some((key, origin, value?)))
    .collect()
}

fn read_config_file(
    flags: &Flags,
    look_up: LookUp<'_>,
    read_file: ReadFile<'_>,
    problems: &mut Problems,
) -> Option<Table> {
    let (path, origin) = match (&flags.config, look_up("BLOOMGATE_CONFIG")) {
        (Some(path), _) => (path.clone(), "--config"),
        (None, Some(path)) => (PathBuf::from(path), "BLOOMGATE_CONFIG"),
        (None, None) => return Some(Table::new()),
    };
    problems.note_origin("config", origin);
    if path.as_os_str().is_empty() {
        let remedy = "unset it, or name a file";
        problems.add("config", ProblemKind::conflict("is set but empty", remedy));
        return None;
    }
    match read_file(&path) {
        Err(source) => {
            problems.add("config", ProblemKind::Unreadable { path, source });
            None
        }
        Ok(text) => match text.parse::<Table>() {
            Ok(table) => Some(table),
            Err(error) => {
                problems.add(path.display().to_string(), syntax(&text, &error));
                None
            }
        },
    }
}

/// Where the file stops being TOML. The line itself is not shown: it may hold a password.
fn syntax(text: &str, error: &toml::de::Error) -> ProblemKind {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    ProblemKind::Syntax {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        detail: error.message().to_owned(),
    }
}
