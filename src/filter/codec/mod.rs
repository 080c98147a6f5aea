//! Snapshots: the bytes of a filter, and back.
//!
//! Invariants:
//!
//! * bytes that are read are untrusted: every length is held against its bound and the caller's
//!   limit before anything is allocated, and no input panics;
//! * nothing of the bits is handed out before the whole was found authentic under the filter's key,
//!   its ones were counted again, and nothing was found behind it;
//! * memory does not grow with the filter, save for the bits that a reader fills in place and a MAC
//!   for every [`SEGMENT_BYTES`] of them;
//! * an item that was added before the writing began is in what is written.
//!
//! This module must not know files, the clock, or what a cursor holds.

// The grammar. Numbers are little-endian; `x*n` is n times x.
//
//   snapshot      = magic version head_bytes head segment*segment_count ones mac
//   magic         = 89 "bloom" 0D 0A        ; no text, and broken by whatever converts line ends
//   version       = u32                     ; 2
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
//   segment       = word*                   ; SEGMENT_BYTES of words; the last, what is left of them
//   segment_count = the bytes of bit_count / 64 words, rounded up, over SEGMENT_BYTES, rounded up;
//                   not written
//   word          = u64                     ; bit i of the filter is bit i % 64 of word i / 64;
//                                           ; bits past bit_count are 0
//   ones          = u64                     ; how many bits of the words are 1
//   mac           = byte*32                 ; MAC of all before the segments, of each segment's own
//                                           ; MAC in their order, and of ones
//
// Both kinds of MAC are BLAKE3, each under a key of its own that is derived from the filter's hash
// key. The segments have theirs so that all cores can read and authenticate a large filter at once.
// Whatever changes here takes another version.

mod error;
mod head;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

pub use error::CodecError;
pub use head::{
    MAX_CURSOR_BYTES, MAX_NAME_BYTES, MAX_SOURCES, SnapshotHead, SnapshotLabel, SourceLabel,
};

use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};

use super::bits::{SharedBits, count_ones, has_stray_ones};
use super::bloom::BloomFilter;
use super::hashing::HashKey;

/// The version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 2;
/// Longest head, in bytes.
pub const MAX_HEAD_BYTES: u32 = 16 << 20;

const MAGIC: [u8; 8] = *b"\x89bloom\r\n";
/// Magic, version and length of the head.
const PREFIX_BYTES: usize = 16;
/// The count of ones and the MAC.
const TAIL_BYTES: usize = 8 + 32;
/// How many bytes of words have a MAC of their own. A part of the format.
const SEGMENT_BYTES: usize = 4 << 20;
/// Bytes that are read at a time, so that whoever looks at them next finds them in the second cache.
const PART_BYTES: usize = 1 << 18;

/// Bytes that several threads can read at once, each where it wants.
pub trait ReadAt: Sync {
    /// Reads some of the bytes from `offset` on, as [`std::io::Read::read`] would: 0 at the end.
    ///
    /// # Errors
    /// When they cannot be read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for &[u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.get(offset..));
        io::Read::read(&mut rest.unwrap_or_default(), buffer)
    }
}

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
    // Parts are a whole fraction of a segment.
    let mut segment = Segment::new(filter.key());
    filter.bits().read_out(|part| {
        if segment.bytes == SEGMENT_BYTES {
            ones += segment.end_into(&mut mac);
            segment = Segment::new(filter.key());
        }
        segment.take(part);
        writer.write_all(part).map_err(CodecError::from)
    })?;
    ones += segment.end_into(&mut mac);
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
pub fn read_head(reader: impl ReadAt, limit_bytes: u64) -> Result<SnapshotHead, CodecError> {
    SnapshotReader::new(reader, limit_bytes).map(|reader| reader.head)
}

/// Reads a whole snapshot, which must be all that the reader has. See [`SnapshotReader`].
///
/// # Errors
/// When it is no whole and authentic snapshot under `key` within `limit_bytes`, its memory cannot be
/// had, or the reader fails.
pub fn read(
    reader: impl ReadAt,
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
    /// The bytes up to the segments, for the MAC.
    prefix: Vec<u8>,
}

impl<R: ReadAt> SnapshotReader<R> {
    /// Reads the head. `limit_bytes` is the most that the whole snapshot may take; for a file, its
    /// length.
    ///
    /// # Errors
    /// When it is no head of a snapshot within the limit, or the reader fails.
    pub fn new(reader: R, limit_bytes: u64) -> Result<Self, CodecError> {
        let mut prefix = vec![0; PREFIX_BYTES];
        read_exact_at(&reader, &mut prefix[..MAGIC.len()], 0)?;
        if prefix[..MAGIC.len()] != MAGIC {
            return Err(CodecError::NotASnapshot);
        }
        let version = read_u32(&reader, &mut prefix, 8)?;
        if version != VERSION {
            return Err(CodecError::OtherVersion { found: version });
        }
        let head_bytes = read_u32(&reader, &mut prefix, 12)?;
        if head_bytes > MAX_HEAD_BYTES {
            let expected = format!("at most {MAX_HEAD_BYTES}");
            let field = "the length of the head in bytes";
            return Err(CodecError::field(field, expected, head_bytes));
        }
        let prefix_bytes = PREFIX_BYTES + head_bytes as usize;
        within(limit_bytes, prefix_bytes as u64)?;
        // Grows with what is there, whatever the length says.
        while prefix.len() < prefix_bytes {
            let read_bytes = prefix.len();
            prefix.resize(prefix_bytes.min(read_bytes + PART_BYTES), 0);
            read_exact_at(&reader, &mut prefix[read_bytes..], read_bytes as u64)?;
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

    /// Reads the rest, straight into the memory of a new filter and on all cores. Nothing is given
    /// before all of it was found in order.
    ///
    /// # Errors
    /// When it is no whole and authentic snapshot under `key`, the memory cannot be had, or the
    /// reader fails.
    pub fn into_filter(self, key: HashKey) -> Result<BloomFilter, CodecError> {
        self.expect_of_use(&key)?;
        let sizing = self.head.sizing;
        let (bits, segments) = SharedBits::filled(
            sizing.bit_count(),
            SEGMENT_BYTES,
            |segment_offset, words| {
                let mut segment = Segment::new(&key);
                let mut offset = self.prefix.len() as u64 + segment_offset;
                for part in words.chunks_mut(PART_BYTES) {
                    read_exact_at(&self.reader, part, offset)?;
                    segment.take(part);
                    offset += part.len() as u64;
                }
                Ok::<_, CodecError>(segment)
            },
        )?;
        let ones = self.finish(&key, &segments)?;
        Ok(BloomFilter::from_bits(sizing, key, bits, ones))
    }

    /// Reads the rest on all cores and keeps none of it: the same checks.
    ///
    /// # Errors
    /// When it is no whole and authentic snapshot under `key`, or the reader fails.
    pub fn verify(self, key: &HashKey) -> Result<(), CodecError> {
        self.expect_of_use(key)?;
        let words_bytes = self.head.sizing.memory_bytes();
        let segment_bytes = SEGMENT_BYTES as u64;
        let segments = (0..words_bytes.div_ceil(segment_bytes)).into_par_iter();
        let segments = segments.map(|number| {
            let begin = number * segment_bytes;
            let end = words_bytes.min(begin + segment_bytes);
            let mut segment = Segment::new(key);
            let mut part = vec![0; PART_BYTES];
            for offset in (begin..end).step_by(PART_BYTES) {
                let left_bytes = usize::try_from(end - offset).unwrap_or(PART_BYTES);
                let part = &mut part[..left_bytes.min(PART_BYTES)];
                read_exact_at(&self.reader, part, self.prefix.len() as u64 + offset)?;
                segment.take(part);
            }
            Ok(segment)
        });
        let segments = segments.collect::<Result<Vec<_>, CodecError>>()?;
        self.finish(key, &segments)?;
        Ok(())
    }

    /// Whether the bits can be of use under this key.
    fn expect_of_use(&self, key: &HashKey) -> Result<(), CodecError> {
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
        Ok(())
    }

    /// Reads what follows the segments, and gives the number of ones if all is in order.
    fn finish(&self, key: &HashKey, segments: &[Segment]) -> Result<u64, CodecError> {
        let mut tail = [0; TAIL_BYTES];
        let end = self.snapshot_bytes();
        read_exact_at(&self.reader, &mut tail, end - TAIL_BYTES as u64)?;
        let (written_ones, written_mac) = tail.split_at(8);
        let last_word = segments.last().map_or([0; 8], |last| last.last_word);
        let mut mac = key.snapshot_mac();
        mac.update(&self.prefix);
        let ones = segments
            .iter()
            .map(|segment| segment.end_into(&mut mac))
            .sum();
        mac.update(written_ones);
        let written_mac = blake3::Hash::from_slice(written_mac).ok();
        // Hashes are compared in constant time.
        if written_mac != Some(mac.finalize()) {
            return Err(CodecError::NotAuthentic);
        }
        if written_ones != u64::to_le_bytes(ones) {
            let mut expected = [0; 8];
            expected.copy_from_slice(written_ones);
            return Err(CodecError::Ones {
                expected: u64::from_le_bytes(expected),
                found: ones,
            });
        }
        if has_stray_ones(self.head.sizing.bit_count(), last_word) {
            return Err(CodecError::StrayOnes);
        }
        match read_at(&self.reader, &mut [0], end)? {
            0 => Ok(ones),
            _ => Err(CodecError::TrailingBytes),
        }
    }
}

/// What is kept of a segment on its way out or in.
struct Segment {
    mac: blake3::Hasher,
    bytes: usize,
    ones: u64,
    last_word: [u8; 8],
}

impl Segment {
    fn new(key: &HashKey) -> Self {
        Self {
            mac: key.snapshot_segment_mac(),
            bytes: 0,
            ones: 0,
            last_word: [0; 8],
        }
    }

    /// Takes the next words.
    fn take(&mut self, words: &[u8]) {
        self.mac.update(words);
        self.bytes += words.len();
        self.ones += count_ones(words);
        if let Some(last) = words.last_chunk() {
            self.last_word = *last;
        }
    }

    /// Enters the segment's MAC into that of the whole, and gives its ones.
    fn end_into(&self, whole: &mut blake3::Hasher) -> u64 {
        whole.update(self.mac.finalize().as_bytes());
        self.ones
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
    prefix.len() as u64 + head.sizing.memory_bytes() + TAIL_BYTES as u64
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

/// Reads as [`ReadAt::read_at`], and again where a signal came in between.
fn read_at(reader: &impl ReadAt, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match reader.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn read_exact_at(
    reader: &impl ReadAt,
    mut buffer: &mut [u8],
    mut offset: u64,
) -> Result<(), CodecError> {
    while !buffer.is_empty() {
        let read_bytes = read_at(reader, buffer, offset)?;
        if read_bytes == 0 {
            return Err(CodecError::CutShort);
        }
        buffer = &mut buffer[read_bytes..];
        offset += read_bytes as u64;
    }
    Ok(())
}

/// The number at this place of the prefix, read into it.
fn read_u32(reader: &impl ReadAt, prefix: &mut [u8], place: usize) -> Result<u32, CodecError> {
    let mut number = [0; 4];
    read_exact_at(reader, &mut number, place as u64)?;
    prefix[place..place + number.len()].copy_from_slice(&number);
    Ok(u32::from_le_bytes(number))
}
