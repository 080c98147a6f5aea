//! How much memory there is, and how much of it the filters may take.
//!
//! Invariant: what is reported is the least of the limits that hold for this process, so that a
//! budget taken from it can be used. This is the only module that reads the kernel's files.

use std::io;
use std::path::Path;

use toml::Value;

use super::problems::{ProblemKind, shown};
use super::section::bytes;
use super::units::parse_bytes;

/// What is taken for granted where the kernel tells nothing (it is no Linux).
pub const ASSUMED_BYTES: u64 = 1 << 30;

/// The least budget, in bytes.
const LEAST_BUDGET_BYTES: u64 = 1 << 20;

/// The default share of the memory there is.
const DEFAULT_PERCENT: u64 = 75;

/// How deep control groups are nested at most, as far as limits are looked for.
const MAX_GROUP_DEPTH: usize = 64;

/// The memory that this process may use, in bytes: the least of the machine's and of the limits
/// of its control groups (v2 and v1) and those above them. [`ASSUMED_BYTES`] where none is told.
///
/// Sources: `proc(5)` on `/proc/meminfo`, `cgroups(7)` on `/proc/self/cgroup`, and the kernel's
/// `cgroup-v2.rst` on `memory.max`.
pub fn available_bytes(read_file: impl Fn(&Path) -> io::Result<String>) -> u64 {
    let read = |path: &str| read_file(Path::new(path)).ok();
    let machine = read("/proc/meminfo").and_then(|text| machine_bytes(&text));
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = groups
        .lines()
        .flat_map(group_limit_files)
        .filter_map(|path| read(&path)?.trim().parse().ok());
    limits.chain(machine).min().unwrap_or(ASSUMED_BYTES)
}

/// `MemTotal` in bytes; the file states it in kibibytes.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// The files that may limit a group, from the group up to the root: a container often sees only
/// the root of what its own line names.
fn group_limit_files(line: &str) -> Vec<String> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (root, file) = if controllers.is_empty() {
        ("/sys/fs/cgroup", "memory.max")
    } else if controllers.split(',').any(|name| name == "memory") {
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    Path::new(group)
        .ancestors()
        .take(MAX_GROUP_DEPTH)
        .filter_map(Path::to_str)
        .map(|group| format!("{root}{}/{file}", group.trim_end_matches('/')))
        .collect()
}

/// The default budget, in bytes.
pub(super) fn default_budget_bytes(available_bytes: u64) -> u64 {
    percent_of(DEFAULT_PERCENT, available_bytes)
}

/// Reads `memory_budget`: a share of what there is (`"75%"`) or an amount, in bytes.
pub(super) fn budget_bytes(value: Value, available_bytes: u64) -> Result<u64, ProblemKind> {
    let no_amount = |text: &&str| parse_bytes(text).is_none();
    let Some(percentage) = value.as_str().filter(no_amount) else {
        return bytes(value, &(LEAST_BUDGET_BYTES..=u64::MAX));
    };
    match percentage.strip_suffix('%').map(str::parse) {
        Some(Ok(percent @ 1..=100)) => Ok(percent_of(percent, available_bytes)),
        Some(Ok(_) | Err(_)) | None => Err(ProblemKind::unexpected(
            "1% to 100%, or an amount such as \"512MiB\"",
            shown(percentage),
        )),
    }
}

/// A share in whole per cent, rounded down.
fn percent_of(percent: u64, bytes: u64) -> u64 {
    bytes / 100 * percent + bytes % 100 * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:        8000000 kB\nMemFree:         1000000 kB\n";

    fn available(files: &[(&str, &str)]) -> u64 {
        available_bytes(|path| {
            files
                .iter()
                .find(|(name, _)| Path::new(name) == path)
                .map(|(_, text)| (*text).to_owned())
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        })
    }

    #[test]
    fn without_a_group_limit_it_is_the_machines_memory() {
        let unlimited = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/memory.max", "max\n"),
        ];
        assert_eq!(available(&unlimited), 8_192_000_000);
        assert_eq!(available(&unlimited[..1]), 8_192_000_000);
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_holds() {
        let files = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/app/bloomgate.service\n"),
            (
                "/sys/fs/cgroup/app/bloomgate.service/memory.max",
                "4096000000\n",
            ),
            ("/sys/fs/cgroup/app/memory.max", "1024000000\n"),
            ("/sys/fs/cgroup/memory.max", "max\n"),
        ];
        assert_eq!(available(&files), 1_024_000_000);
    }

    #[test]
    fn a_version_1_limit_is_found_under_the_groups_path_or_at_the_root() {
        let groups = "5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n";
        for path in [
            "/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ] {
            let files = [
                ("/proc/meminfo", MEMINFO),
                ("/proc/self/cgroup", groups),
                (path, "512000000\n"),
            ];
            assert_eq!(available(&files), 512_000_000, "{path}");
        }
    }

    #[test]
    fn where_nothing_is_told_an_amount_is_assumed() {
        assert_eq!(available(&[]), ASSUMED_BYTES);
        assert_eq!(available(&[("/proc/meminfo", "odd")]), ASSUMED_BYTES);
    }

    #[test]
    fn a_share_is_exact_and_never_overflows() {
        assert_eq!(percent_of(75, 1_000), 750);
        assert_eq!(percent_of(1, 99), 0);
        assert_eq!(percent_of(100, u64::MAX), u64::MAX);
        assert_eq!(percent_of(50, 199), 99);
    }
}
