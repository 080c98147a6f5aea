//! The data directory and the store that it belongs to.
//!
//! `store.json` holds the kind of the store and, once it was reached, its identity.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{DiskError, atomic_file, hash_key};
use crate::filter::hashing::MasterKey;
use crate::service::ports::{StoreError, StoreIdentity, StoreTie};

/// Which kind of store a data directory belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    /// The embedded one, in the directory itself.
    Sqlite,
    /// A PostgreSQL database.
    Postgres,
}

impl fmt::Display for StoreKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Sqlite => "an SQLite store",
            Self::Postgres => "a Postgres store",
        })
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    store: StoreKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<Uuid>,
}

/// The directory's own key, where no other file is configured.
const HASH_KEY: &str = "hash.key";

/// The key that all filters' hash keys are derived from, of a data directory that another process
/// may hold: the one in `file`, or the directory's own. None is made.
///
/// # Errors
/// When it is not there, cannot be read, or is no key.
pub fn read_master_key(data_dir: &Path, file: Option<&Path>) -> Result<MasterKey, DiskError> {
    let own = data_dir.join(HASH_KEY);
    hash_key::read_or_make(file.unwrap_or(&own), false)
}

/// A data directory that this process holds until it is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    store: StoreKind,
    /// Said once, it accepts one store: the one that this start finds.
    accept_new_store: AtomicBool,
    _lock: File,
}

impl DataDirectory {
    /// Takes the directory, which is made where it is missing, for a store of this kind.
    ///
    /// # Errors
    /// When another process has it, it belongs to another kind of store and `accept_new_store` is
    /// not said, or the operating system refuses.
    pub fn open(path: &Path, store: StoreKind, accept_new_store: bool) -> Result<Self, DiskError> {
        make(path)?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(DiskError::io("open", &lock_path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => DiskError::InUse {
                path: path.to_owned(),
            },
            TryLockError::Error(source) => DiskError::io("lock", &lock_path)(source),
        })?;
        let directory = Self {
            path: path.to_owned(),
            store,
            accept_new_store: AtomicBool::new(accept_new_store),
            _lock: lock,
        };
        match directory.marker()? {
            Some(marker) if marker.store == store => {}
            Some(marker) if !accept_new_store => {
                return Err(directory.other_store(store.to_string(), marker.store.to_string()));
            }
            Some(_) | None => directory.write_marker(None)?,
        }
        Ok(directory)
    }

    /// The key that all filters' hash keys are derived from: the one in `file`, or the directory's
    /// own, which is made where it is missing.
    ///
    /// # Errors
    /// When it cannot be read or made, or is no key.
    pub fn master_key(&self, file: Option<&Path>) -> Result<MasterKey, DiskError> {
        match file {
            Some(file) => hash_key::read_or_make(file, false),
            None => hash_key::read_or_make(&self.path.join(HASH_KEY), true),
        }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn marker_path(&self) -> PathBuf {
        self.path.join("store.json")
    }

    fn marker(&self) -> Result<Option<Marker>, DiskError> {
        let path = self.marker_path();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(DiskError::io("read", &path)(error)),
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| DiskError::Damaged {
                path,
                expected: "the kind and identity of a store, as JSON",
                found: format!("a {:?} error in line {}", error.classify(), error.line()),
                remedy: "remove the file if the directory belongs to the store of this start",
            })
    }

    fn write_marker(&self, identity: Option<Uuid>) -> Result<(), DiskError> {
        let marker = Marker {
            store: self.store,
            identity,
        };
        let text = serde_json::to_vec(&marker).map_err(|error| DiskError::Io {
            action: "write",
            path: self.marker_path(),
            source: error.into(),
        })?;
        atomic_file::write(&self.marker_path(), &text)
    }

    fn other_store(&self, expected: String, found: String) -> DiskError {
        DiskError::OtherStore {
            path: self.path.clone(),
            expected,
            found,
        }
    }

    fn tie_to(&self, identity: Uuid) -> Result<(), DiskError> {
        match self.marker()?.and_then(|marker| marker.identity) {
            Some(found) if found == identity => {
                self.accept_new_store.store(false, Ordering::Relaxed);
                Ok(())
            }
            Some(found) if !self.accept_new_store.swap(false, Ordering::Relaxed) => Err(self
                .other_store(
                    format!("{} with identity {identity}", self.store),
                    format!("{} with identity {found}", self.store),
                )),
            Some(_) | None => self.write_marker(Some(identity)),
        }
    }
}

impl StoreTie for DataDirectory {
    fn tie(&self, identity: StoreIdentity) -> Result<(), StoreError> {
        self.tie_to(identity.0).map_err(|error| {
            let what = "the data directory".to_owned();
            let detail = error.to_string();
            match error {
                DiskError::OtherStore { .. } | DiskError::InUse { .. } => {
                    StoreError::Refused { what, detail }
                }
                DiskError::Io { .. } | DiskError::Damaged { .. } => {
                    StoreError::Failed { what, detail }
                }
            }
        })
    }
}

/// Makes the directory durable with the folders above it that are missing.
fn make(path: &Path) -> Result<(), DiskError> {
    if path.is_dir() {
        return Ok(());
    }
    let above = atomic_file::folder_of(path);
    make(above)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(DiskError::io("make the data directory", path)(error))
        }
        Ok(()) | Err(_) => atomic_file::sync_folder(above),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn identity(number: u128) -> StoreIdentity {
        StoreIdentity(Uuid::from_u128(number))
    }

    fn open(path: &Path, store: StoreKind) -> Result<DataDirectory, DiskError> {
        DataDirectory::open(path, store, false)
    }

    #[test]
    fn a_directory_is_made_with_the_folders_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        open(&path, StoreKind::Sqlite).unwrap();
        assert!(path.join("store.json").is_file());
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = open(&file.join("below"), StoreKind::Sqlite).unwrap_err();
        assert!(refused.to_string().contains("make the data directory"));
    }

    #[test]
    fn two_processes_cannot_hold_one_directory() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path(), StoreKind::Sqlite).unwrap();
        let refused = open(folder.path(), StoreKind::Sqlite).unwrap_err();
        assert!(matches!(refused, DiskError::InUse { .. }));
        assert!(refused.to_string().contains("--data-dir"));
        drop(first);
        open(folder.path(), StoreKind::Sqlite).unwrap();
    }

    #[test]
    fn a_directory_refuses_another_kind_of_store_unless_told() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), StoreKind::Sqlite).unwrap());
        let refused = open(folder.path(), StoreKind::Postgres).unwrap_err();
        assert!(matches!(refused, DiskError::OtherStore { .. }));
        assert!(refused.to_string().contains("--accept-new-store"));
        drop(DataDirectory::open(folder.path(), StoreKind::Postgres, true).unwrap());
        open(folder.path(), StoreKind::Postgres).unwrap();
    }

    #[test]
    fn a_directory_refuses_another_store_of_the_same_kind_unless_told() {
        let folder = tempfile::tempdir().unwrap();
        let directory = open(folder.path(), StoreKind::Postgres).unwrap();
        directory.tie(identity(1)).unwrap();
        directory.tie(identity(1)).unwrap();
        assert!(matches!(
            directory.tie(identity(2)),
            Err(StoreError::Refused { .. })
        ));
        drop(directory);
        let told = DataDirectory::open(folder.path(), StoreKind::Postgres, true).unwrap();
        told.tie(identity(2)).unwrap();
        assert!(told.tie(identity(3)).is_err(), "it was told of one store");
        drop(told);
        let told = DataDirectory::open(folder.path(), StoreKind::Postgres, true).unwrap();
        told.tie(identity(2)).unwrap();
        assert!(told.tie(identity(3)).is_err(), "it has found its store");
        drop(told);
        let directory = open(folder.path(), StoreKind::Postgres).unwrap();
        directory.tie(identity(2)).unwrap();
    }

    #[test]
    fn a_damaged_marker_is_an_error_with_a_remedy_and_no_fresh_start() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("store.json"), "{").unwrap();
        let refused = open(folder.path(), StoreKind::Sqlite).unwrap_err();
        assert!(refused.to_string().contains("remove the file"));
    }

    #[test]
    fn the_hash_key_is_made_once_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let directory = open(folder.path(), StoreKind::Sqlite).unwrap();
        let made = directory.master_key(None).unwrap();
        let path = folder.path().join("hash.key");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let read = directory.master_key(None).unwrap();
        assert_eq!(
            made.filter_key(&[7; 16]).hash(b"x"),
            read.filter_key(&[7; 16]).hash(b"x")
        );
    }

    #[test]
    fn a_hash_key_file_that_is_missing_or_no_key_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let directory = open(folder.path(), StoreKind::Sqlite).unwrap();
        let elsewhere = folder.path().join("elsewhere.key");
        assert!(matches!(
            directory.master_key(Some(&elsewhere)),
            Err(DiskError::Io { .. })
        ));
        fs::write(&elsewhere, "0123 not a key").unwrap();
        let error = directory
            .master_key(Some(&elsewhere))
            .unwrap_err()
            .to_string();
        assert!(!error.contains("0123"), "{error}");
        fs::write(&elsewhere, "ab".repeat(32)).unwrap();
        directory.master_key(Some(&elsewhere)).unwrap();
    }
}
