//! Writes a file so that it is there whole and durable, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::DiskError;

/// Puts `contents` at `path`, replacing what is there: temporary file, fsync, rename, fsync of the
/// folder. Only the owner may read it.
///
/// # Errors
/// When any step fails; `path` is then as it was, or new if only the last fsync failed.
pub(super) fn write(path: &Path, contents: &[u8]) -> Result<(), DiskError> {
    let temporary = path.with_extension("tmp");
    // A left-over from a crash; one that is not there is as good.
    let _ = fs::remove_file(&temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(DiskError::io("create", &temporary))?;
    file.write_all(contents)
        .and_then(|()| file.sync_all())
        .map_err(DiskError::io("write", &temporary))?;
    fs::rename(&temporary, path).map_err(DiskError::io("put in place", path))?;
    sync_folder(folder_of(path))
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
