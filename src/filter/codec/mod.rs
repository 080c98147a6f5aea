//! Snapshots: the bytes of a filter, and back.
//!
//! Invariants:
//!
//! * bytes that are read are untrusted: every length is held against its bound and the caller's
//!   limit before anything is allocated, and no input panics;
//! * nothing of the bits is handed out before the whole was found authentic under the filter's key,
//!   its ones were counted again, and nothing was found behind it;
//! * memory does not grow with the filter, save for the bits that a reader fills in place;
//! * an item that was added before the writing began is in what is written.
//!
//! This module must not know files, the clock, or what a cursor holds.

// The grammar. Numbers are little-endian; `x*n` is n times x.
//
//   snapshot      = magic version head_bytes head word*word_count ones mac
//   magic         = 89 "bloom" 0D 0A        ; no text, and broken by whatever converts line ends
//   version       = u32                     ; 1
//   head_bytes    = u32                     ; length of head, at most MAX_HEAD_BYTES
//   head          = filter_id filter_name profile declared sizing key_id store_id cursor
//                   source_count source*source_count keeps_unaccounted_bits taken_at forgotten
//   filter_id     = byte*16                 ; the filter's UUID
//   filter_name   = name
//   profile       = name u32 options        ; name and version
//   options       = u8                      ; bits: 0 gmail_dots, 1 googlemail, 2 plus_tags
//   declared      = capacity rate
//   sizing        = capacity rate bit_count hash_count   ; the last two as the first two give them
//   capacity      = u64                     ; items
//   rate          = f64                     ; IEEE 754
//   bit_count     = u64
//   hash_count    = u32
//   key_id        = byte*16                 ; tells which hash key, and nothing of it
//   store_id      = byte*16                 ; the store's UUID
//   cursor        = u32 byte*               ; length, at most MAX_CURSOR_BYTES, and the service's own
//   source_count  = u16                     ; at most MAX_SOURCES
//   source        = name (00 | 01 cursor)
//   name          = u8 byte*                ; length, 1 to MAX_NAME_BYTES, and printable ASCII
//   keeps_unaccounted_bits = 00 | 01
//   taken_at      = i64                     ; milliseconds since 1970
//   forgotten     = u64                     ; rows that the store had forgotten before
//   word          = u64                     ; bit i of the filter is bit i % 64 of word i / 64
//   word_count    = bit_count / 64, rounded up; not written
//                                             ; bits past bit_count are 0
//   ones          = u64                     ; how many bits of the words are 1
//   mac           = byte*32                 ; BLAKE3, keyed from the filter's hash key, of all before
//
// Whatever changes here takes another version.

mod error;
mod head;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;

use std::io::{Read, Write};

pub use error::CodecError;
pub use head::{
    MAX_CURSOR_BYTES, MAX_NAME_BYTES, MAX_SOURCES, SnapshotHead, SnapshotLabel, SourceLabel,
};

use super::bits::{SharedBits, count_ones, has_stray_ones};
use super::bloom::BloomFilter;
use super::hashing::HashKey;

/// The version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Longest head, in bytes.
pub const MAX_HEAD_BYTES: u32 = 16 << 20;

const MAGIC: [u8; 8] = *b"\x89bloom\r\n";
/// Magic, version and length of the head.
const PREFIX_BYTES: usize = 16;
/// The count of ones and the MAC.
const TAIL_BYTES: u64 = 8 + 32;
/// Bytes that are read at a time where the bits are not kept.
const PART_BYTES: usize = 1 << 18;

/// Writes a snapshot of a filter, which may be added to meanwhile, and gives its length in bytes.
///
/// Takes constant memory. The writer gets whole parts of some 256 KiB, and is not flushed.
///
/// # Errors
/// When the label is out of its bounds, or the writer fails.
pub fn write(
    label: &SnapshotLabel,
    filter: &BloomFilter,
    writer: &mut impl Write,
) -> Result<u64, CodecError> {
    let head = SnapshotHead {
        label: label.clone(),
        sizing: *filter.sizing(),
        key_id: filter.key().id(),
    };
    let prefix = with_prefix(&head.encode()?)?;
    let mut mac = filter.key().snapshot_mac();
    mac.update(&prefix);
    writer.write_all(&prefix)?;
    let mut ones = 0_u64;
    filter.bits().read_out(|part| {
        ones += count_ones(part);
        mac.update(part);
        writer.write_all(part).map_err(CodecError::from)
    })?;
    mac.update(&ones.to_le_bytes());
    writer.write_all(&ones.to_le_bytes())?;
    writer.write_all(mac.finalize().as_bytes())?;
    Ok(snapshot_bytes(&prefix, &head))
}

/// Reads the head of a snapshot and nothing behind it. `limit_bytes` is the most that the whole
/// snapshot may take.
///
/// # Errors
/// When it is no head of a snapshot within the limit, or the reader fails.
pub fn read_head(reader: &mut impl Read, limit_bytes: u64) -> Result<SnapshotHead, CodecError> {
    SnapshotReader::new(reader, limit_bytes).map(|reader| reader.head)
}

/// Reads a whole snapshot, which must be all that the reader has. See [`SnapshotReader`].
///
/// # Errors
/// When it is no whole and authentic snapshot under `key` within `limit_bytes`, its memory cannot be
/// had, or the reader fails.
pub fn read(
    reader: impl Read,
    key: HashKey,
    limit_bytes: u64,
) -> Result<(SnapshotHead, BloomFilter), CodecError> {
    let reader = SnapshotReader::new(reader, limit_bytes)?;
    let head = reader.head.clone();
    Ok((head, reader.into_filter(key)?))
}

/// A snapshot of which the head was read, so that whoever reads can look whether it fits and
/// reserve memory before the bits are read.
#[derive(Debug)]
pub struct SnapshotReader<R> {
    reader: R,
    head: SnapshotHead,
    /// The bytes up to the bits, for the MAC.
    prefix: Vec<u8>,
}

impl<R: Read> SnapshotReader<R> {
    /// Reads the head. `limit_bytes` is the most that the whole snapshot may take; for a file, its
    /// length.
    ///
    /// # Errors
    /// When it is no head of a snapshot within the limit, or the reader fails.
    pub fn new(mut reader: R, limit_bytes: u64) -> Result<Self, CodecError> {
        let mut prefix = vec![0; PREFIX_BYTES];
        reader.read_exact(&mut prefix[..MAGIC.len()])?;
        if prefix[..MAGIC.len()] != MAGIC {
            return Err(CodecError::NotASnapshot);
        }
        let version = read_u32(&mut reader, &mut prefix[8..12])?;
        if version != VERSION {
            return Err(CodecError::OtherVersion { found: version });
        }
        let head_bytes = read_u32(&mut reader, &mut prefix[12..16])?;
        if head_bytes > MAX_HEAD_BYTES {
            let expected = format!("at most {MAX_HEAD_BYTES}");
            let field = "the length of the head in bytes";
            return Err(CodecError::field(field, expected, head_bytes));
        }
        within(limit_bytes, u64::from(head_bytes) + PREFIX_BYTES as u64)?;
        // Grows with what is there, whatever the length says.
        let read_bytes = (&mut reader)
            .take(head_bytes.into())
            .read_to_end(&mut prefix)?;
        if read_bytes < head_bytes as usize {
            return Err(CodecError::CutShort);
        }
        let head = SnapshotHead::decode(&prefix[PREFIX_BYTES..])?;
        within(limit_bytes, snapshot_bytes(&prefix, &head))?;
        Ok(Self {
            reader,
            head,
            prefix,
        })
    }

    /// What the snapshot says of itself.
    #[must_use]
    pub fn head(&self) -> &SnapshotHead {
        &self.head
    }

    /// How long the whole snapshot is by its head, in bytes.
    #[must_use]
    pub fn snapshot_bytes(&self) -> u64 {
        snapshot_bytes(&self.prefix, &self.head)
    }

    /// Reads the rest, straight into the memory of a new filter. Nothing is given before all of
    /// it was found in order.
    ///
    /// # Errors
    /// When it is no whole and authentic snapshot under `key`, the memory cannot be had, or the
    /// reader fails.
    pub fn into_filter(mut self, key: HashKey) -> Result<BloomFilter, CodecError> {
        let mut intake = self.intake(&key)?;
        let sizing = self.head.sizing;
        let bits = SharedBits::filled(sizing.bit_count(), |part| {
            self.reader.read_exact(part)?;
            intake.take(part);
            Ok::<(), CodecError>(())
        })?;
        let ones = intake.finish(&mut self.reader, sizing.bit_count())?;
        Ok(BloomFilter::from_bits(sizing, key, bits, ones))
    }

    /// Reads the rest and keeps none of it, in constant memory: the same checks.
    ///
    /// # Errors
    /// When it is no whole and authentic snapshot under `key`, or the reader fails.
    pub fn verify(mut self, key: &HashKey) -> Result<(), CodecError> {
        let mut intake = self.intake(key)?;
        let sizing = self.head.sizing;
        let mut left_bytes = sizing.memory_bytes();
        let mut part = vec![0; PART_BYTES];
        while left_bytes > 0 {
            let part_bytes = usize::try_from(left_bytes).map_or(PART_BYTES, |n| n.min(PART_BYTES));
            let part = &mut part[..part_bytes];
            self.reader.read_exact(part)?;
            intake.take(part);
            left_bytes -= part_bytes as u64;
        }
        intake.finish(&mut self.reader, sizing.bit_count())?;
        Ok(())
    }

    /// Begins with the bits, if they can be of use under this key.
    fn intake(&self, key: &HashKey) -> Result<Intake, CodecError> {
        let profile = &self.head.label.profile;
        if profile.profile().is_none() {
            return Err(CodecError::OtherProfile {
                found: profile.to_string(),
            });
        }
        if self.head.key_id != key.id() {
            return Err(CodecError::OtherKey {
                expected: key.id(),
                found: self.head.key_id,
            });
        }
        let mut mac = key.snapshot_mac();
        mac.update(&self.prefix);
        Ok(Intake {
            mac,
            ones: 0,
            last_word: [0; 8],
        })
    }
}

/// What is kept of the bits on their way in.
struct Intake {
    mac: blake3::Hasher,
    ones: u64,
    last_word: [u8; 8],
}

impl Intake {
    /// Takes the next words.
    fn take(&mut self, words: &[u8]) {
        self.mac.update(words);
        self.ones += count_ones(words);
        if let Some(last) = words.last_chunk() {
            self.last_word = *last;
        }
    }

    /// Reads what follows the words, and gives the number of ones if all is in order.
    fn finish(mut self, reader: &mut impl Read, bit_count: u64) -> Result<u64, CodecError> {
        let (mut ones, mut mac) = ([0; 8], [0; 32]);
        reader.read_exact(&mut ones)?;
        reader.read_exact(&mut mac)?;
        self.mac.update(&ones);
        // This compares in constant time.
        if self.mac.finalize() != mac {
            return Err(CodecError::NotAuthentic);
        }
        let expected = u64::from_le_bytes(ones);
        if expected != self.ones {
            return Err(CodecError::Ones {
                expected,
                found: self.ones,
            });
        }
        if has_stray_ones(bit_count, self.last_word) {
            return Err(CodecError::StrayOnes);
        }
        match reader.take(1).read_to_end(&mut Vec::new())? {
            0 => Ok(self.ones),
            _ => Err(CodecError::TrailingBytes),
        }
    }
}

fn with_prefix(head: &[u8]) -> Result<Vec<u8>, CodecError> {
    let head_bytes = u32::try_from(head.len())
        .ok()
        .filter(|head_bytes| *head_bytes <= MAX_HEAD_BYTES)
        .ok_or_else(|| {
            let expected = format!("at most {MAX_HEAD_BYTES}");
            CodecError::field("the length of the head in bytes", expected, head.len())
        })?;
    let mut prefix = Vec::with_capacity(PREFIX_BYTES + head.len());
    prefix.extend(MAGIC);
    prefix.extend(VERSION.to_le_bytes());
    prefix.extend(head_bytes.to_le_bytes());
    prefix.extend_from_slice(head);
    Ok(prefix)
}

/// Of numbers within the bounds of [`Sizing`](super::sizing::Sizing), below 2^53.
fn snapshot_bytes(prefix: &[u8], head: &SnapshotHead) -> u64 {
    prefix.len() as u64 + head.sizing.memory_bytes() + TAIL_BYTES
}

fn within(limit_bytes: u64, found_bytes: u64) -> Result<(), CodecError> {
    if found_bytes > limit_bytes {
        return Err(CodecError::TooLong {
            limit_bytes,
            found_bytes,
        });
    }
    Ok(())
}

fn read_u32(reader: &mut impl Read, bytes: &mut [u8]) -> Result<u32, CodecError> {
    reader.read_exact(bytes)?;
    let mut number = [0; 4];
    number.copy_from_slice(bytes);
    Ok(u32::from_le_bytes(number))
}
