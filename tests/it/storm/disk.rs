//! A disk that can be filled: a small one of its own where this process may mount one (as root),
//! else a limit on the length of every file of the replica's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use crate::support::{Bloomgate, Launch};

/// So large that only a fault fills it. Memory is taken for what is written.
const ROOMY_BYTES: u64 = 4 << 30;

/// Where a replica has its data directory.
pub(super) enum Disk {
    Mounted(Mounted),
    /// For who may not mount.
    Limited,
}

impl Disk {
    /// In the place of a data directory that is not there yet.
    pub(super) fn under(launch: &Launch) -> Self {
        let disk = match Mounted::at(launch) {
            Some(mounted) => Self::Mounted(mounted),
            None => Self::Limited,
        };
        let how = match &disk {
            Self::Mounted(_) => "a tmpfs that is made smaller",
            Self::Limited => "a limit on the length of files, for nothing can be mounted here",
        };
        eprintln!("the full disk is {how}");
        disk
    }

    /// Leaves the replica so much room; whether it is so.
    pub(super) fn fill(&self, replica: &Bloomgate, room_bytes: u64) -> bool {
        match self {
            Self::Mounted(mounted) => mounted.fill(room_bytes),
            Self::Limited => {
                let longest = longest_file_bytes(&replica.launched_as().data_dir());
                limit_files(replica, Some(longest + room_bytes))
            }
        }
    }

    /// Lifts what [`Disk::fill`] has done.
    pub(super) fn make_room(&self, replica: &Bloomgate) {
        match self {
            Self::Mounted(mounted) => assert!(mounted.resize(ROOMY_BYTES), "room can be made"),
            // The replica may have been killed meanwhile.
            Self::Limited => drop(limit_files(replica, None)),
        }
    }
}

/// A tmpfs, which is unmounted on drop.
pub(super) struct Mounted {
    at: PathBuf,
    /// Its folder goes after it.
    _launch: Launch,
}

impl Mounted {
    fn at(launch: &Launch) -> Option<Self> {
        let at = launch.data_dir();
        std::fs::create_dir(&at).unwrap();
        let options = format!("size={ROOMY_BYTES},mode=700");
        let is_mounted = run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs"], &at);
        if !is_mounted {
            std::fs::remove_dir(&at).unwrap();
            return None;
        }
        Some(Self {
            at,
            _launch: launch.clone(),
        })
    }

    /// Whole pages only: the rest is lost to nobody.
    fn fill(&self, room_bytes: u64) -> bool {
        let Ok(disk) = rustix::fs::statvfs(&self.at) else {
            return false;
        };
        let used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize;
        // More may have been written meanwhile than there is room for then.
        self.resize(used + room_bytes)
    }

    fn resize(&self, bytes: u64) -> bool {
        let options = format!("remount,size={bytes}");
        run("mount", &["-o", &options], &self.at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily, for a file may be open still.
        run("umount", &["--lazy"], &self.at);
    }
}

fn run(program: &str, options: &[&str], at: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(options).arg(at);
    let status = command.stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Lets every file of a replica grow to so many bytes and no further; none lifts the limit. Any user
/// may set it and lift it again.
fn limit_files(replica: &Bloomgate, bytes: Option<u64>) -> bool {
    let limit = Rlimit {
        current: bytes,
        maximum: getrlimit(Resource::Fsize).maximum,
    };
    prlimit(Some(replica.pid()), Resource::Fsize, limit).is_ok()
}

fn longest_file_bytes(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).unwrap();
    let lengths = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len()));
    lengths.max().unwrap_or(0)
}
