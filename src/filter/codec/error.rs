//! Why a snapshot cannot be written or is not taken.

use std::io;

use super::VERSION;
use crate::filter::bits::AllocationError;
use crate::filter::hashing::KeyId;

/// Why a snapshot cannot be written or is not taken.
///
/// No message holds an item or a key.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// It does not begin as one.
    #[error(
        "expected a snapshot of a filter, found something else; give a file of data_dir/snapshots"
    )]
    NotASnapshot,
    /// Another program wrote it.
    #[error(
        "expected a snapshot of format version {VERSION}, found version {found}; read it with the \
         program that wrote it, or let the filter be loaded anew"
    )]
    OtherVersion {
        /// The version that it gives.
        found: u32,
    },
    /// Its canonical bytes were made by other rules.
    #[error(
        "expected canonical bytes of a profile of this program, found those of {found}; let the \
         filter be loaded anew"
    )]
    OtherProfile {
        /// Name, version and options.
        found: String,
    },
    /// Its items are hashed under another key.
    #[error(
        "expected a snapshot under the hash key {expected}, found one under {found}; put the hash \
         key back that it was written with, or let the filter be loaded anew"
    )]
    OtherKey {
        /// Of the key that was given.
        expected: KeyId,
        /// Of the key that it was written with.
        found: KeyId,
    },
    /// A field is out of its bounds.
    #[error("expected {expected} as {field}, found {found}; let the filter be loaded anew")]
    Field {
        /// Which one.
        field: &'static str,
        /// Its bounds.
        expected: String,
        /// What it is.
        found: String,
    },
    /// It is longer than it may be.
    #[error(
        "expected a snapshot of at most {limit_bytes} bytes, found one that takes {found_bytes}; \
             it is damaged or cut short"
    )]
    TooLong {
        /// The most that the caller takes.
        limit_bytes: u64,
        /// What it says that it takes.
        found_bytes: u64,
    },
    /// It ends too early.
    #[error(
        "expected more of the snapshot, found its end; it was cut short, let the filter be loaded anew"
    )]
    CutShort,
    /// It does not end where it should.
    #[error(
        "expected the end of the snapshot, found more behind it; let the filter be loaded anew"
    )]
    TrailingBytes,
    /// It is not what was written under this key.
    #[error(
        "expected a snapshot that its hash key authenticates, found one that it does not: it is \
         damaged or was written with another key; let the filter be loaded anew"
    )]
    NotAuthentic,
    /// Its bits are not those that were counted when it was written.
    #[error(
        "expected {expected} ones among its bits, found {found}; let the filter be loaded anew"
    )]
    Ones {
        /// As it says.
        expected: u64,
        /// As counted.
        found: u64,
    },
    /// Bits are set that no item can set.
    #[error(
        "expected no ones past the last of its bits, found some; let the filter be loaded anew"
    )]
    StrayOnes,
    /// The memory for its bits could not be had.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// Reading or writing failed.
    #[error("expected to read or write the snapshot, found an error of the system: {0}")]
    Io(#[source] io::Error),
}

impl CodecError {
    /// Whether the snapshot itself is at fault, and trying again will not help.
    #[must_use]
    pub fn is_of_the_snapshot(&self) -> bool {
        match self {
            Self::NotASnapshot
            | Self::OtherVersion { .. }
            | Self::OtherProfile { .. }
            | Self::OtherKey { .. }
            | Self::Field { .. }
            | Self::TooLong { .. }
            | Self::CutShort
            | Self::TrailingBytes
            | Self::NotAuthentic
            | Self::Ones { .. }
            | Self::StrayOnes => true,
            Self::Allocation(_) | Self::Io(_) => false,
        }
    }

    pub(super) fn field(
        field: &'static str,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> Self {
        Self::Field {
            field,
            expected: expected.into(),
            found: found.to_string(),
        }
    }
}

impl From<io::Error> for CodecError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            Self::CutShort
        } else {
            Self::Io(error)
        }
    }
}

impl From<CodecError> for io::Error {
    fn from(error: CodecError) -> Self {
        if let CodecError::Io(error) = error {
            error
        } else {
            Self::other(error)
        }
    }
}
