//! The key that all filters' hash keys are derived from: 32 random bytes, as 64 hexadecimal digits
//! in a file that only its owner may read.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::{DiskError, atomic_file};
use crate::filter::hashing::MasterKey;

/// Reads the key at `path`. Where there is none and `make` says so, a random one is made.
///
/// # Errors
/// When it cannot be read or made, or is no key.
pub(super) fn read_or_make(path: &Path, make: bool) -> Result<MasterKey, DiskError> {
    match fs::read_to_string(path) {
        Ok(text) => parse(path, &text),
        Err(error) if error.kind() == ErrorKind::NotFound && make => {
            let mut key = [0; MasterKey::BYTES];
            getrandom::fill(&mut key).map_err(|error| DiskError::Io {
                action: "draw random bytes for",
                path: path.to_owned(),
                source: error.into(),
            })?;
            atomic_file::write(path, format!("{}\n", hex::encode(key)).as_bytes())?;
            Ok(MasterKey::from_bytes(key))
        }
        Err(error) => Err(DiskError::io("read the hash key", path)(error)),
    }
}

fn parse(path: &Path, text: &str) -> Result<MasterKey, DiskError> {
    let mut key = [0; MasterKey::BYTES];
    hex::decode_to_slice(text.trim(), &mut key).map_err(|_| DiskError::Damaged {
        path: path.to_owned(),
        expected: "64 hexadecimal digits",
        found: format!("{} characters that are not", text.trim().chars().count()),
        remedy: "put the key back from where it was kept; a key in data_dir is made anew when its \
                 file is removed",
    })?;
    Ok(MasterKey::from_bytes(key))
}
