//! Snapshots as files: `snapshots/<UUID of the filter>.bloom` in the data directory, and
//! `.bloom.rejected` for the last one that was set aside.
//!
//! Invariants:
//!
//! * a file under its final name was written whole and made durable before it got the name;
//! * a snapshot that does not fit is set aside and never given; one that cannot be read at the
//!   moment stays;
//! * what is no file of its own is left alone.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::{DiskError, atomic_file};
use crate::filter::bloom::BloomFilter;
use crate::filter::codec::{self, CodecError, ReadAt, SnapshotReader};
use crate::filter::hashing::HashKey;
use crate::service::ports::FilterId;
use crate::service::snapshot_store::{SavedSnapshot, Snapshot, SnapshotError, SnapshotStore};

const EXTENSION: &str = "bloom";
const REJECTED: &str = "bloom.rejected";

/// The snapshots of a data directory that this process holds.
#[derive(Debug)]
pub struct Snapshots {
    folder: PathBuf,
    /// Held while anything is put in place or taken away: one save is enough for a disk, and two of
    /// one filter would write to one temporary file.
    changes: Mutex<()>,
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

/// Opens a file as a snapshot and reads its head, with the length that it has.
///
/// # Errors
/// When it cannot be read, is no head of a snapshot, or is shorter than that head says.
pub fn open_snapshot(path: &Path) -> Result<(SnapshotReader<File>, u64), CodecError> {
    let file = File::open(path).map_err(CodecError::Io)?;
    let length_bytes = file.metadata().map_err(CodecError::Io)?.len();
    Ok((SnapshotReader::new(file, length_bytes)?, length_bytes))
}

impl Snapshots {
    /// Makes the folder where it is missing, and removes what a crash left half written.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn open(data_dir: &Path) -> Result<Self, DiskError> {
        let folder = data_dir.join("snapshots");
        match fs::create_dir(&folder) {
            Ok(()) => atomic_file::sync_folder(data_dir)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(DiskError::io("make the folder", &folder)(error)),
        }
        for path in files(&folder).map_err(DiskError::io("list", &folder))? {
            if path.extension() == Some(OsStr::new(atomic_file::TEMPORARY)) && is_named_so(&path) {
                fs::remove_file(&path).map_err(DiskError::io("remove", &path))?;
            }
        }
        Ok(Self {
            folder,
            changes: Mutex::new(()),
        })
    }

    /// Where the snapshot of a filter lies, if there is one.
    #[must_use]
    pub fn path(&self, filter: FilterId) -> PathBuf {
        self.folder.join(format!("{}.{EXTENSION}", filter.0))
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The snapshot of a filter, with its head read and found to be of the filter.
    fn open_of(
        &self,
        filter: FilterId,
    ) -> Result<(SnapshotReader<File>, SavedSnapshot), CodecError> {
        let (reader, length_bytes) = open_snapshot(&self.path(filter))?;
        if reader.snapshot_bytes() != length_bytes {
            return Err(CodecError::TrailingBytes);
        }
        let saved = SavedSnapshot::from_head(reader.head())?;
        if saved.snapshot.filter != filter {
            return Err(CodecError::Field {
                field: "the filter",
                expected: filter.0.to_string(),
                found: saved.snapshot.filter.0.to_string(),
            });
        }
        Ok((reader, saved))
    }

    /// What a snapshot that was not taken is told as. It is set aside where it is at fault.
    fn not_taken(&self, filter: FilterId, error: CodecError) -> SnapshotError {
        let path = self.path(filter);
        if let CodecError::Io(error) = &error
            && error.kind() == ErrorKind::NotFound
        {
            return SnapshotError::NotThere(filter.0);
        }
        if !error.is_of_the_snapshot() {
            return failed(&path, "read", error);
        }
        let detail = error.to_string();
        match self.set_aside(filter, &detail) {
            Ok(()) => SnapshotError::DoesNotFit {
                what: path.display().to_string(),
                detail,
            },
            Err(error) => error,
        }
    }
}

impl SnapshotStore for Snapshots {
    fn save(&self, snapshot: &Snapshot, bloom: &BloomFilter) -> Result<u64, SnapshotError> {
        let path = self.path(snapshot.filter);
        let _changing = self.changing();
        atomic_file::write_with(&path, |file| {
            codec::write(&snapshot.to_label(), bloom, file).map_err(io::Error::from)
        })
        .map_err(|error| failed(&path, "written", error))
    }

    fn filters(&self) -> Result<Vec<FilterId>, SnapshotError> {
        let cannot = |error| failed(&self.folder, "listed", error);
        let files = files(&self.folder).map_err(cannot)?.into_iter();
        let in_place = files.filter(|path| path.extension() == Some(OsStr::new(EXTENSION)));
        Ok(in_place.filter_map(|path| filter_of(&path)).collect())
    }

    fn head(&self, filter: FilterId) -> Result<SavedSnapshot, SnapshotError> {
        let opened = self.open_of(filter);
        opened
            .map(|(_, saved)| saved)
            .map_err(|error| self.not_taken(filter, error))
    }

    fn restore(&self, saved: &SavedSnapshot, key: HashKey) -> Result<BloomFilter, SnapshotError> {
        let filter = saved.snapshot.filter;
        let not_taken = |error| self.not_taken(filter, error);
        let (reader, found) = self.open_of(filter).map_err(not_taken)?;
        if found != *saved {
            let detail = "another was put in its place after it was looked at";
            return Err(failed(&self.path(filter), "read", detail));
        }
        reader.into_filter(key).map_err(not_taken)
    }

    fn set_aside(&self, filter: FilterId, why: &str) -> Result<(), SnapshotError> {
        let path = self.path(filter);
        let aside = path.with_extension(REJECTED);
        let _changing = self.changing();
        match fs::rename(&path, &aside) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(&path, "set aside", error)),
        }
        tracing::warn!(snapshot = %aside.display(), why, "a snapshot was set aside");
        atomic_file::sync_folder(&self.folder).map_err(|error| failed(&path, "set aside", error))
    }

    fn retain(&self, filters: &[FilterId]) -> Result<(), SnapshotError> {
        let cannot = |error| failed(&self.folder, "listed", error);
        let _changing = self.changing();
        let mut first_failure = Ok(());
        for path in files(&self.folder).map_err(cannot)? {
            let is_of_no_filter = filter_of(&path).is_some_and(|filter| !filters.contains(&filter));
            if is_of_no_filter && let Err(error) = fs::remove_file(&path) {
                first_failure = first_failure.and(Err(failed(&path, "removed", error)));
            }
        }
        first_failure
    }
}

fn failed(path: &Path, action: &'static str, error: impl ToString) -> SnapshotError {
    SnapshotError::Failed {
        what: path.display().to_string(),
        action,
        detail: error.to_string(),
    }
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect()
}

/// Whether a file is named after a filter, whatever its extension.
fn is_named_so(path: &Path) -> bool {
    path.file_stem()
        .and_then(OsStr::to_str)
        .is_some_and(|stem| Uuid::try_parse(stem).is_ok())
}

/// The filter that a file is of, in place or set aside; none for any other file.
fn filter_of(path: &Path) -> Option<FilterId> {
    let (stem, extension) = path.file_name()?.to_str()?.split_once('.')?;
    if ![EXTENSION, REJECTED].contains(&extension) {
        return None;
    }
    Uuid::try_parse(stem).ok().map(FilterId)
}

#[cfg(test)]
mod tests;
