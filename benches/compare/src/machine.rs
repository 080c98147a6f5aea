//! What the figures were measured on.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use crate::process::output;

/// The date as a heading, and a line on the machine.
pub(crate) fn description() -> anyhow::Result<String> {
    let said = |program: &str, arguments: &[&str]| -> anyhow::Result<String> {
        Ok(output(Command::new(program).args(arguments))?
            .trim()
            .to_owned())
    };
    let field = |file: &str, name: &str| -> anyhow::Result<String> {
        let text = fs::read_to_string(file)?;
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        Ok(value
            .unwrap_or("unknown")
            .trim_start_matches([' ', '\t', ':'])
            .to_owned())
    };
    let redis = said("redis-server", &["--version"])?;
    let redis = redis.split(' ').find_map(|word| word.strip_prefix("v="));
    let commit = said("git", &["describe", "--always", "--dirty"]).unwrap_or_default();
    Ok(format!(
        "## {}\n\n{}, {} cores, {} of memory, Linux {}; {}; {}; redis {}; bloomgate {commit}\n",
        said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])?,
        field("/proc/cpuinfo", "model name")?,
        available_parallelism()?,
        field("/proc/meminfo", "MemTotal")?,
        said("uname", &["-r"])?,
        said("rustc", &["--version"])?,
        said("psql", &["--version"])?,
        redis.unwrap_or("unknown"),
    ))
}
