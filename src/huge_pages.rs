//! Huge pages for the bits.
//!
//! A check of a large filter reads a few words far apart, and with pages of 4 KiB the processor looks
//! up where each lies before it reads it. Pages of 2 MiB nearly halve what such a read takes, and
//! fresh memory is ready several times sooner. Where the system gives them only to who asks
//! (`madvise`, the usual setting), the allocator of glibc 2.35 and later asks on our behalf; but it
//! reads that wish from the environment alone, at the very start of a program. So the program
//! replaces itself once, with the wish put down: same process, same arguments.
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

/// Starts this program anew in this process, asking for huge pages, where that changes anything.
/// Comes back otherwise, and when it cannot. To be called before anything was begun.
pub fn ask() {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return;
    }
    let setting = std::fs::read_to_string(SETTING).unwrap_or_default();
    let Some(tunables) = wish(&setting, std::env::var_os(TUNABLES)) else {
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

/// The tunables to start with anew; none where the system does not wait to be asked, or the caller
/// has said already what is wanted.
fn wish(setting: &str, tunables: Option<OsString>) -> Option<OsString> {
    if !setting.contains("[madvise]") {
        return None;
    }
    let mut tunables = tunables.unwrap_or_default();
    if tunables.to_string_lossy().contains(TUNABLE) {
        return None;
    }
    if !tunables.is_empty() {
        tunables.push(OsStr::new(":"));
    }
    tunables.push(format!("{TUNABLE}=1"));
    Some(tunables)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON_REQUEST: &str = "always [madvise] never\n";

    #[test]
    fn huge_pages_are_asked_for_beside_what_is_set_already() {
        let asked = |tunables: Option<&str>| wish(ON_REQUEST, tunables.map(OsString::from));
        assert_eq!(asked(None).unwrap(), "glibc.malloc.hugetlb=1");
        assert_eq!(asked(Some("")).unwrap(), "glibc.malloc.hugetlb=1");
        let more = asked(Some("glibc.malloc.arena_max=2")).unwrap();
        assert_eq!(more, "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1");
    }

    #[test]
    fn nobody_asks_twice_nor_against_the_callers_wish_nor_where_it_changes_nothing() {
        let once = wish(ON_REQUEST, None).unwrap();
        assert_eq!(wish(ON_REQUEST, Some(once)), None);
        assert_eq!(
            wish(ON_REQUEST, Some("glibc.malloc.hugetlb=0".into())),
            None
        );
        for setting in ["[always] madvise never", "always madvise [never]", ""] {
            assert_eq!(wish(setting, None), None, "{setting}");
        }
    }
}
