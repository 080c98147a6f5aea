//! PostgreSQL as a peer: its own clients, against the private cluster.

use std::fs;
use std::process::Command;

use anyhow::Context as _;

use crate::process::{self, on_cores, output};
use crate::stage::Stage;

/// Runs SQL by psql, whose own commands may be in it.
pub(crate) fn sql(stage: &Stage, text: &str) -> anyhow::Result<()> {
    let file = stage.folder.join("script.sql");
    fs::write(&file, text)?;
    let mut command = Command::new("psql");
    command
        .args([
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            &stage.postgres_url,
            "-f",
        ])
        .arg(&file);
    output(&mut command).map(drop)
}

/// Transactions a second of a script by pgbench, of so many clients with prepared statements.
pub(crate) fn pgbench(
    stage: &Stage,
    cores: &str,
    script: &str,
    clients: u32,
    seconds: u32,
) -> anyhow::Result<f64> {
    let file = stage.folder.join("pgbench.sql");
    fs::write(&file, script)?;
    let mut command = on_cores(cores, "pgbench");
    command
        .args([
            "-n",
            "-M",
            "prepared",
            "-c",
            &clients.to_string(),
            "-T",
            &seconds.to_string(),
        ])
        .arg("-f")
        .arg(&file)
        .arg(&stage.postgres_url);
    let text = output(&mut command)?;
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let rate = rate.and_then(|text| text.split(' ').next());
    Ok(rate
        .with_context(|| format!("no rate of pgbench: {text}"))?
        .parse()?)
}

/// Does something while the server is on these cores, and lets it on all again.
pub(crate) fn placed<T>(
    stage: &Stage,
    cores: &str,
    act: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    process::move_to_cores(cores, stage.postmaster)?;
    let done = act();
    process::move_to_cores(process::ALL_CORES, stage.postmaster)?;
    done
}
