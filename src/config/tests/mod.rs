//! What the configuration promises, seen through [`Config::load`].

mod authz;
mod keys;
mod loading;
mod problems;
mod secrets;

use std::collections::BTreeMap;
use std::io;

use super::*;

/// A password that no message and no `Debug` may show.
const PASSWORD: &str = "hunter2secret";

const URL: &str = "postgres://app:hunter2secret@db.internal:5432/auth?sslmode=require";

const GIB: u64 = 1 << 30;

/// The SHA-256 of "test".
const SHA256: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// What a configuration is read from: flags, variables and files.
#[derive(Default)]
struct World {
    flags: Flags,
    variables: BTreeMap<String, String>,
    files: BTreeMap<PathBuf, String>,
}

impl World {
    /// A world with this configuration file.
    fn with_file(text: &str) -> Self {
        let mut world = Self::default();
        world.flags.config = Some(PathBuf::from("bloomgate.toml"));
        world.file("bloomgate.toml", text)
    }

    fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(PathBuf::from(path), text.to_owned());
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    fn flags(mut self, set: impl FnOnce(&mut Flags)) -> Self {
        set(&mut self.flags);
        self
    }

    fn load(&self) -> Result<Config, ConfigErrors> {
        let read_file = |path: &Path| {
            let text = self.files.get(path).cloned();
            text.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        let look_up = |name: &str| self.variables.get(name).cloned();
        Config::load(&self.flags, look_up, read_file, GIB)
    }

    fn config(&self) -> Config {
        match self.load() {
            Ok(config) => config,
            Err(errors) => panic!("expected a valid configuration, found:\n{errors}"),
        }
    }

    fn errors(&self) -> ConfigErrors {
        self.load().expect_err("expected problems, found none")
    }

    /// The keys of all problems, in order.
    fn faulty_keys(&self) -> Vec<String> {
        let errors = self.errors();
        let keys = errors.problems().iter().map(|problem| problem.key());
        keys.map(str::to_owned).collect()
    }
}

/// The text of a database URL that was read.
fn exposed(url: &secrecy::SecretString) -> &str {
    secrecy::ExposeSecret::expose_secret(url)
}

/// The URL of a Postgres store; none for SQLite.
fn store_url(config: &Config) -> Option<&str> {
    match &config.store {
        StoreConfig::Sqlite => None,
        StoreConfig::Postgres { database_url } => Some(exposed(database_url)),
    }
}
