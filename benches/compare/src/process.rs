//! Processes that are measured: started on chosen cores, looked at through `/proc`, and ended on drop.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

/// The core of what is asked. With the load on [`LOAD_CORE`] neither takes time from the other.
pub(crate) const SERVER_CORE: &str = "0";
/// The core of what asks.
pub(crate) const LOAD_CORE: &str = "1";
/// Where a row wants no placing.
pub(crate) const ALL_CORES: &str = "0,1";

/// What the kernel counts processor time in: `USER_HZ`, 100 on every Linux that has Rust.
const TICKS_A_SECOND: f64 = 100.0;

/// How long a process may take to end by itself.
const END_DEADLINE: Duration = Duration::from_secs(40);

/// A command that runs on these cores.
pub(crate) fn on_cores(cores: &str, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cores]).arg(program.as_ref());
    command
}

/// Puts a running process with its threads on these cores, and what it starts from now on.
pub(crate) fn move_to_cores(cores: &str, pid: u32) -> anyhow::Result<()> {
    let mut command = Command::new("taskset");
    command.args(["-a", "-c", "-p", cores, &pid.to_string()]);
    output(&mut command).map(drop)
}

/// What a command prints; it must end with 0.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(
        output.status.success(),
        "{command:?} ended with {}: {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// A running process.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Ok(Self(child.with_context(|| format!("{command:?}"))?))
    }

    /// The processor time that it has used so far, in seconds, of all its threads.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        // The name, the second field, may hold anything, blanks and brackets included.
        let (_, after_name) = stat.rsplit_once(") ").context("no name in stat")?;
        let fields: Vec<&str> = after_name.split(' ').collect();
        let ticks = |at: usize| {
            fields
                .get(at)
                .context("a short stat")?
                .parse::<f64>()
                .context("ticks")
        };
        Ok((ticks(11)? + ticks(12)?) / TICKS_A_SECOND)
    }

    /// The most memory that it has had so far, in bytes.
    pub(crate) fn peak_memory_bytes(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|text| text.trim().strip_suffix(" kB"));
        Ok(kib.context("no VmHWM")?.trim().parse::<u64>()? * 1024)
    }

    /// Ends it by force.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Ends it and waits until it has ended; by force where it does not end by itself.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        if self.0.try_wait()?.is_none() {
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        }
        let begun = Instant::now();
        while self.0.try_wait()?.is_none() {
            if begun.elapsed() > END_DEADLINE {
                self.0.kill()?;
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
