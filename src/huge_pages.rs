//! Huge pages for the bits.
//!
//! A check of a large filter reads a few words far apart, and with pages of 4 KiB the processor looks
//! up where each lies before it reads it. Pages of 2 MiB nearly halve what such a read takes, and
//! fresh memory is ready several times sooner. Where the system gives them only to who asks
//! (`madvise`, the usual setting), the allocator of glibc 2.35 and later asks on our behalf; but it
//! reads that wish from the environment alone, at the very start of a program. So the program
//! replaces itself, with the wish put down: same process, same arguments. Before glibc 2.37 about
//! one wish in four goes unheard, for it compares the system's setting with what else happens to
//! lie on its stack. So the program looks whether it was heard, and asks again a few times; each
//! time takes some milliseconds.
//!
//! This module must not know what the memory is for. Nothing depends on it: without huge pages
//! everything is as it was, and slower.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What glibc reads (*The GNU C Library Reference Manual*, "Memory Allocation Tunables").
const TUNABLES: &str = "GLIBC_TUNABLES";
/// The tunable; 1 stands for `madvise`.
const TUNABLE: &str = "glibc.malloc.hugetlb";
/// When the system gives huge pages: the setting that holds stands in brackets.
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// What lies where in the memory of this process.
const MEMORY: &str = "/proc/self/smaps";
/// How often to ask before the program goes on without. Each is in the environment of the next, so
/// that they can be counted.
const MAX_WISHES: usize = 8;

/// Starts this program anew in this process, asking for huge pages, where that changes anything.
/// Comes back otherwise, and when it cannot. To be called before anything was begun.
pub fn ask() {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return;
    }
    let setting = std::fs::read_to_string(SETTING).unwrap_or_default();
    let was_heard = || was_heard(&std::fs::read_to_string(MEMORY).unwrap_or_default());
    let Some(tunables) = wish(&setting, std::env::var_os(TUNABLES), was_heard) else {
        return;
    };
    let Ok(program) = std::env::current_exe() else {
        return;
    };
    let mut arguments = std::env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // It comes back only where the system refused, and then the program goes on as it is.
    let _refused = again.args(arguments).env(TUNABLES, tunables).exec();
}

/// The tunables to start with anew; none where the system does not wait to be asked, the caller
/// has said already what is wanted, or enough was asked.
fn wish(
    setting: &str,
    tunables: Option<OsString>,
    was_heard: impl FnOnce() -> bool,
) -> Option<OsString> {
    if !setting.contains("[madvise]") {
        return None;
    }
    let wish = format!("{TUNABLE}=1");
    let mut tunables = tunables.unwrap_or_default();
    let told = tunables.to_string_lossy();
    let wishes = told.split(':').filter(|told| *told == wish).count();
    let is_told_otherwise = told.matches(TUNABLE).count() > wishes;
    if is_told_otherwise || wishes >= MAX_WISHES || (wishes > 0 && was_heard()) {
        return None;
    }
    if !tunables.is_empty() {
        tunables.push(OsStr::new(":"));
    }
    tunables.push(wish);
    Some(tunables)
}

/// Whether the allocator asks for huge pages, by what lies where in memory (`proc(5)`, "smaps"):
/// then it has asked for its heap as well, which has the flag `hg`.
fn was_heard(memory: &str) -> bool {
    let heap = memory.lines().skip_while(|line| !line.ends_with("[heap]"));
    let flags = heap.filter_map(|line| line.strip_prefix("VmFlags:")).next();
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON_REQUEST: &str = "always [madvise] never\n";
    const ONCE: &str = "glibc.malloc.hugetlb=1";

    fn asked(tunables: Option<&str>, was_heard: bool) -> Option<OsString> {
        wish(ON_REQUEST, tunables.map(OsString::from), || was_heard)
    }

    #[test]
    fn huge_pages_are_asked_for_beside_what_is_set_already() {
        assert_eq!(asked(None, false).unwrap(), ONCE);
        assert_eq!(asked(Some(""), false).unwrap(), ONCE);
        let more = asked(Some("glibc.malloc.arena_max=2"), false).unwrap();
        assert_eq!(more, "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1");
    }

    #[test]
    fn who_was_not_heard_asks_again_and_not_for_ever() {
        assert_eq!(asked(Some(ONCE), true), None);
        let mut tunables = OsString::from(ONCE);
        for wishes in 2..=MAX_WISHES {
            tunables = asked(tunables.to_str(), false).unwrap();
            let told = tunables.to_str().unwrap();
            assert_eq!(told.matches(ONCE).count(), wishes, "{told}");
        }
        assert_eq!(asked(tunables.to_str(), false), None);
    }

    #[test]
    fn nobody_asks_against_the_callers_wish_nor_where_it_changes_nothing() {
        for told in ["glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=2"] {
            assert_eq!(asked(Some(told), false), None, "{told}");
        }
        for setting in ["[always] madvise never", "always madvise [never]", ""] {
            assert_eq!(wish(setting, None, || false), None, "{setting}");
        }
    }

    #[test]
    fn it_is_heard_where_the_heap_and_not_another_mapping_has_the_flag() {
        let memory = |heap: &str, other: &str| {
            format!(
                "55d0-55d1 r--p 00000000 fe:00 1   /usr/bin/bloomgate\nVmFlags: rd mr {other}\n\
                 55d2-55d3 rw-p 00000000 00:00 0   [heap]\nSize: 2048 kB\nVmFlags: rd wr {heap}\n\
                 7f67-7f68 rw-p 00000000 00:00 0 \nVmFlags: rd wr {other}\n"
            )
        };
        assert!(was_heard(&memory("mr ac hg ", "me")));
        assert!(!was_heard(&memory("mr ac ", "hg")));
        assert!(!was_heard(""));
    }
}
