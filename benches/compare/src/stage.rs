//! Where the comparison runs: the programs and folders that `benches/run` has prepared.

use std::env;
use std::path::PathBuf;

use anyhow::Context as _;

/// What every row finds in place.
pub(crate) struct Stage {
    /// The release build of the program.
    pub(crate) bloomgate: PathBuf,
    /// The released program of the crate `bloomsrv`.
    pub(crate) bloomsrv: PathBuf,
    /// A folder that is gone after the run.
    pub(crate) folder: PathBuf,
    /// A folder that later runs find again.
    pub(crate) kept: PathBuf,
    /// The private PostgreSQL cluster.
    pub(crate) postgres_url: String,
    /// The process identifier of its postmaster.
    pub(crate) postmaster: u32,
}

impl Stage {
    pub(crate) fn from_environment() -> anyhow::Result<Self> {
        Ok(Self {
            bloomgate: variable("BENCH_BLOOMGATE")?.into(),
            bloomsrv: variable("BENCH_BLOOMSRV")?.into(),
            folder: variable("BENCH_FOLDER")?.into(),
            kept: variable("BENCH_KEPT")?.into(),
            postgres_url: variable("BENCH_POSTGRES_URL")?,
            postmaster: variable("BENCH_POSTMASTER")?.parse()?,
        })
    }
}

fn variable(name: &str) -> anyhow::Result<String> {
    env::var(name).with_context(|| format!("{name} is not set: start this by benches/run"))
}
