//! Writes a file so that it is there whole and durable, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::DiskError;

/// The extension of what is not in place yet.
pub(super) const TEMPORARY: &str = "tmp";

/// Puts `contents` at `path`, replacing what is there: temporary file, fsync, rename, fsync of the
/// folder. Only the owner may read it.
///
/// # Errors
/// When any step fails; `path` is then as it was, or new if only the last fsync failed.
pub(super) fn write(path: &Path, contents: &[u8]) -> Result<(), DiskError> {
    write_with(path, |file| file.write_all(contents))
}

/// The same with what `write_contents` writes; what it gives is handed on.
///
/// # Errors
/// When any step fails; `path` is then as it was, or new if only the last fsync failed, and no
/// temporary file is left.
pub(super) fn write_with<T>(
    path: &Path,
    write_contents: impl FnOnce(&mut File) -> io::Result<T>,
) -> Result<T, DiskError> {
    let temporary = Temporary(path.with_extension(TEMPORARY));
    // A left-over from a crash; one that is not there is as good.
    let _ = fs::remove_file(&temporary.0);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary.0)
        .map_err(DiskError::io("create", &temporary.0))?;
    let written = write_contents(&mut file)
        .and_then(|written| file.sync_all().map(|()| written))
        .map_err(DiskError::io("write", &temporary.0))?;
    fs::rename(&temporary.0, path).map_err(DiskError::io("put in place", path))?;
    sync_folder(folder_of(path))?;
    Ok(written)
}

/// Removes a temporary file that did not come into its place.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // In place it has this name no longer. Where it cannot be removed the next one that is
        // written, or opening the folder, tries again.
        let _ = fs::remove_file(&self.0);
    }
}

/// The folder that holds `path`.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// Makes durable what was made or renamed in a folder.
///
/// # Errors
/// When the operating system refuses.
pub(super) fn sync_folder(folder: &Path) -> Result<(), DiskError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(DiskError::io("make durable the folder", folder))
}
