//! The program, running: started with a configuration, asked, filled.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::http::{Client, free_address};
use crate::process::{Process, on_cores};
use crate::stage::Stage;

/// The one key of the configurations below. It protects nothing but a private run.
pub(crate) const KEY: &str = "bench-key-0123456789abcdef0123456789abcdef";

/// How long a start may take.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(120);

/// The program in a folder of its own.
pub(crate) struct Bloomgate {
    pub(crate) client: Client,
    pub(crate) process: Process,
    /// When it was started.
    pub(crate) begun: Instant,
}

/// How it is started.
pub(crate) struct Launch {
    pub(crate) folder: PathBuf,
    pub(crate) cores: &'static str,
    /// TOML beside the key.
    pub(crate) config: String,
    pub(crate) database_url: Option<String>,
}

impl Launch {
    /// On SQLite, with nothing configured but a key, on the server's core.
    pub(crate) fn new(stage: &Stage, name: &str) -> Self {
        Self {
            folder: stage.folder.join(name),
            cores: crate::process::SERVER_CORE,
            config: String::new(),
            database_url: None,
        }
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Starts it and does not wait.
    pub(crate) fn spawn(&self, stage: &Stage) -> anyhow::Result<Bloomgate> {
        fs::create_dir_all(&self.folder)?;
        let digest = hex::encode(Sha256::digest(KEY));
        let config = format!(
            "{}\n[[keys]]\nid = \"bench\"\nsha256 = \"{digest}\"\nscopes = [\"check\", \"add\", \"read\", \"admin\"]\n",
            self.config
        );
        let config_file = self.folder.join("bloomgate.toml");
        fs::write(&config_file, config)?;
        let address = free_address()?;
        let mut command = on_cores(self.cores, &stage.bloomgate);
        command
            .arg("--config")
            .arg(&config_file)
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(["--listen", &address.to_string()])
            .stderr(File::create(self.folder.join("log"))?);
        if let Some(url) = &self.database_url {
            command.env("DATABASE_URL", url);
        }
        let begun = Instant::now();
        Ok(Bloomgate {
            process: Process::start(&mut command)?,
            client: Client {
                address,
                key: Some(KEY.to_owned()),
            },
            begun,
        })
    }

    /// Starts it and waits until every filter is complete.
    pub(crate) fn start(&self, stage: &Stage) -> anyhow::Result<Bloomgate> {
        let bloomgate = self.spawn(stage)?;
        let ready = bloomgate
            .client
            .wait_for_ok("/readyz", bloomgate.begun, START_DEADLINE);
        ready.with_context(|| log(&self.folder))?;
        Ok(bloomgate)
    }
}

impl Bloomgate {
    /// What it says of a filter.
    pub(crate) fn describe(&self, filter: &str) -> anyhow::Result<serde_json::Value> {
        let path = format!("/v1/filters/{filter}");
        Ok(serde_json::from_str(&self.client.ask(
            "GET",
            &path,
            "text/plain",
            b"",
        )?)?)
    }
}

/// What it has logged.
pub(crate) fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// An item of a UUID's length and form.
pub(crate) fn item(number: u64) -> String {
    format!("a0000000-0000-4000-8000-{number:012x}")
}

/// What the filter `revoked-jti` is declared for where nothing is configured.
pub(crate) const MILLION: u64 = 1_000_000;

/// With nothing configured but a key, on these cores, and a million items in `revoked-jti`.
/// They are added once a run: who comes later finds them in the store.
pub(crate) fn start_with_a_million(
    stage: &Stage,
    cores: &'static str,
) -> anyhow::Result<Bloomgate> {
    let launch = Launch {
        cores,
        ..Launch::new(stage, "million")
    };
    let bloomgate = launch.start(stage)?;
    if bloomgate.describe("revoked-jti")?["estimated_cardinality"] == 0 {
        let body: String = (0..MILLION).map(|number| item(number) + "\n").collect();
        let path = "/v1/filters/revoked-jti/bulk-load";
        bloomgate
            .client
            .ask("POST", path, "text/plain", body.as_bytes())?;
    }
    Ok(bloomgate)
}
