//! The commands about snapshots. They read files and change nothing, and take no lock: the service
//! whose snapshots they are may run meanwhile.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use uuid::Uuid;

use super::AppError;
use crate::config::{Config, bytes_rounded};
use crate::disk::{open_snapshot, read_master_key};
use crate::filter::codec::{CodecError, SnapshotHead, SnapshotReader};
use crate::filter::sizing::Sizing;
use crate::service::cursor::Cursor;
use crate::service::snapshot_store::SavedSnapshot;

/// What `snapshot inspect` prints: the head, which is not proven to be authentic, and whether the
/// length of the file is what the head says.
///
/// # Errors
/// When the file cannot be read or has no head of a snapshot.
pub fn inspect(path: &Path) -> Result<String, AppError> {
    let read = || -> Result<String, CodecError> {
        let file = File::open(path).map_err(CodecError::Io)?;
        let file_bytes = file.metadata().map_err(CodecError::Io)?.len();
        // No limit: the head of a file that was cut short can be read all the same, and nothing is
        // allocated for the bits.
        let reader = SnapshotReader::new(file, u64::MAX)?;
        Ok(shown(reader.head(), file_bytes, reader.snapshot_bytes()))
    };
    read().map_err(|error| faulty(path, "cannot be read", error))
}

/// What `snapshot verify` prints when every byte of the snapshot is as it was written under the
/// configured hash key.
///
/// # Errors
/// When it is not, or the key cannot be read.
pub fn verify(config: &Config, path: &Path) -> Result<String, AppError> {
    let master_key = read_master_key(&config.data_dir, config.hash_key_file.as_deref())?;
    let read = || -> Result<String, CodecError> {
        let (reader, file_bytes) = open_snapshot(path)?;
        let label = reader.head().label.clone();
        SavedSnapshot::from_head(reader.head())?;
        reader.verify(&master_key.filter_key(&label.filter_id))?;
        Ok(format!(
            "{} verifies: {file_bytes} bytes of the filter {} ({})\n",
            path.display(),
            label.filter_name,
            Uuid::from_bytes(label.filter_id)
        ))
    };
    read().map_err(|error| faulty(path, "does not verify", error))
}

fn faulty(path: &Path, fault: &'static str, error: CodecError) -> AppError {
    AppError::Snapshot {
        path: path.to_owned(),
        fault,
        error,
    }
}

fn shown(head: &SnapshotHead, file_bytes: u64, snapshot_bytes: u64) -> String {
    let SnapshotHead {
        label,
        sizing,
        key_id,
    } = head;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<23} {value}");
    };
    let filter_id = Uuid::from_bytes(label.filter_id);
    line("filter", format!("{} ({filter_id})", label.filter_name));
    line("profile", label.profile.to_string());
    line("declared", declared(&label.declared));
    line("sized_for", declared(sizing));
    line("bit_count", sizing.bit_count().to_string());
    line("hash_count", sizing.hash_count().to_string());
    let memory_bytes = sizing.memory_bytes();
    let rounded = bytes_rounded(memory_bytes);
    line("memory_bytes", format!("{memory_bytes} ({rounded})"));
    line("hash_key_id", key_id.to_string());
    line("store", Uuid::from_bytes(label.store_id).to_string());
    line("forgotten", label.forgotten.to_string());
    line("cursor", followed(&label.cursor));
    for source in &label.sources {
        let cursor = source.cursor.as_deref();
        let cursor = cursor.map_or_else(|| "none".to_owned(), followed);
        line("source", format!("{}: {cursor}", source.name));
    }
    let keeps_unaccounted_bits = label.keeps_unaccounted_bits.to_string();
    line("keeps_unaccounted_bits", keeps_unaccounted_bits);
    line("taken_at", moment(label.taken_at_unix_ms));
    line("file_bytes", fits(file_bytes, snapshot_bytes));
    text
}

fn declared(sizing: &Sizing) -> String {
    let (capacity, rate) = (sizing.capacity(), sizing.false_positive_rate());
    format!("{capacity} items at {rate}")
}

fn followed(cursor: &[u8]) -> String {
    let Some(cursor) = Cursor::decode(cursor) else {
        return format!("{} bytes that are no cursor", cursor.len());
    };
    format!(
        "before {}, {} in progress, segment {}, timeline {}",
        cursor.next.0,
        cursor.in_progress.len(),
        cursor.segment,
        hex::encode(cursor.timeline.0)
    )
}

fn moment(unix_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(unix_ms).map_or_else(
        |_| format!("{unix_ms} ms since 1970"),
        |moment| moment.to_string(),
    )
}

fn fits(file_bytes: u64, snapshot_bytes: u64) -> String {
    match file_bytes.cmp(&snapshot_bytes) {
        std::cmp::Ordering::Equal => format!("{file_bytes} (fits)"),
        std::cmp::Ordering::Less => {
            format!("{file_bytes} (cut short: expected {snapshot_bytes})")
        }
        std::cmp::Ordering::Greater => {
            format!("{file_bytes} (more behind it: expected {snapshot_bytes})")
        }
    }
}
