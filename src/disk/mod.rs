//! Adapter: the data directory, with its lock, its hash key, its snapshots, and what ties it to one
//! store.
//!
//! Invariants:
//!
//! * one process at a time holds a data directory;
//! * a directory that was made for one store is used with no other, unless told;
//! * a file that matters is there whole and durable, or not at all.

mod atomic_file;
mod data_directory;
mod hash_key;
mod snapshots;

pub use data_directory::{DataDirectory, StoreKind, read_master_key};
pub use snapshots::{Snapshots, open_snapshot};

use std::path::PathBuf;

/// Why the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Another process has it.
    #[error(
        "the data directory {} is in use by another bloomgate process; stop that one, or give this \
         one a directory of its own with --data-dir", path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// It was made for another store.
    #[error(
        "the data directory {} belongs to {found}, and this start is for {expected}: items added \
         there would be unknown here; use another --data-dir, or say --accept-new-store to tie the \
         directory to the new store", path.display()
    )]
    OtherStore {
        /// The directory.
        path: PathBuf,
        /// The store of this start.
        expected: String,
        /// The store that the directory belongs to.
        found: String,
    },
    /// A file does not hold what it should.
    #[error("{} is damaged: expected {expected}, found {found}; {remedy}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
        /// What is there, without its contents.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
}

impl DiskError {
    fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }
}
