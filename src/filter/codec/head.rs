//! The head of a snapshot: what it is of, as bytes and back. The grammar is in [`super`].
//!
//! Invariants: what [`SnapshotHead::encode`] gives, [`SnapshotHead::decode`] reads as the same; every
//! length is held against its bound and against the bytes that are there before anything is
//! allocated for it; a head that is read is within the bounds of [`Sizing`].

use super::error::CodecError;
use crate::filter::hashing::KeyId;
use crate::filter::profile::ProfileIdentity;
use crate::filter::sizing::Sizing;

/// Longest name of a filter or a source, in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// Most sources of a filter.
pub const MAX_SOURCES: usize = 1_024;
/// Longest cursor, in bytes: more than any database has transactions in progress.
pub const MAX_CURSOR_BYTES: usize = 4 << 20;

/// What whoever saves a filter says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotLabel {
    /// The identity of the filter: the bytes of its UUID.
    pub filter_id: [u8; 16],
    /// Its name: 1 to [`MAX_NAME_BYTES`] printable ASCII characters.
    pub filter_name: String,
    /// What made the canonical bytes of its items.
    pub profile: ProfileIdentity,
    /// The capacity and the rate that the filter was declared with. Its bits may be sized for more.
    pub declared: Sizing,
    /// The identity of the store that it follows: the bytes of its UUID.
    pub store_id: [u8; 16],
    /// How far it had followed the store; at most [`MAX_CURSOR_BYTES`]. The core does not look into
    /// it.
    pub cursor: Vec<u8>,
    /// The sources that feed it, at most [`MAX_SOURCES`].
    pub sources: Vec<SourceLabel>,
    /// Whether it has bits of items that store and sources may have lost.
    pub keeps_unaccounted_bits: bool,
    /// When the saving began: milliseconds since 1970 by the wall clock.
    pub taken_at_unix_ms: i64,
    /// Rows that the store had forgotten before its bits were loaded: what was forgotten since is
    /// still in them.
    pub forgotten: u64,
}

/// A source that feeds a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLabel {
    /// Its name, as that of a filter.
    pub name: String,
    /// How far the filter had followed it, as [`SnapshotLabel::cursor`]; none where it cannot be
    /// followed.
    pub cursor: Option<Vec<u8>>,
}

/// What a snapshot says of itself before its bits. It is not to be trusted before the whole was
/// read under its key.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotHead {
    /// What whoever saved it said.
    pub label: SnapshotLabel,
    /// What its bits are sized for.
    pub sizing: Sizing,
    /// Which key its items are hashed under.
    pub key_id: KeyId,
}

impl SnapshotHead {
    /// The bytes that [`decode`](Self::decode) reads.
    ///
    /// # Errors
    /// When a part of the label is out of its bounds.
    pub(super) fn encode(&self) -> Result<Vec<u8>, CodecError> {
        let label = &self.label;
        let mut bytes = Vec::new();
        bytes.extend(label.filter_id);
        put_name(&mut bytes, FILTER_NAME, &label.filter_name)?;
        put_name(&mut bytes, PROFILE_NAME, &label.profile.name)?;
        bytes.extend(label.profile.version.to_le_bytes());
        bytes.push(label.profile.options);
        put_declaration(&mut bytes, &label.declared);
        put_declaration(&mut bytes, &self.sizing);
        bytes.extend(self.sizing.bit_count().to_le_bytes());
        bytes.extend(self.sizing.hash_count().to_le_bytes());
        bytes.extend(self.key_id.0);
        bytes.extend(label.store_id);
        put_cursor(&mut bytes, &label.cursor)?;
        let sources = u16::try_from(label.sources.len())
            .ok()
            .filter(|sources| usize::from(*sources) <= MAX_SOURCES)
            .ok_or_else(|| too_many_sources(label.sources.len()))?;
        bytes.extend(sources.to_le_bytes());
        for source in &label.sources {
            put_name(&mut bytes, SOURCE_NAME, &source.name)?;
            bytes.push(source.cursor.is_some().into());
            if let Some(cursor) = &source.cursor {
                put_cursor(&mut bytes, cursor)?;
            }
        }
        bytes.push(label.keeps_unaccounted_bits.into());
        bytes.extend(label.taken_at_unix_ms.to_le_bytes());
        bytes.extend(label.forgotten.to_le_bytes());
        Ok(bytes)
    }

    /// Reads a head, which must be the whole of `bytes`.
    ///
    /// # Errors
    /// When a field is out of its bounds, or the bytes end too early or too late.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut fields = Fields(bytes);
        let filter_id = fields.array()?;
        let filter_name = fields.name(FILTER_NAME)?;
        let profile = ProfileIdentity {
            name: fields.name(PROFILE_NAME)?,
            version: fields.u32()?,
            options: fields.u8()?,
        };
        let declared = fields.declaration("the declared capacity and rate")?;
        let sizing = fields.sizing()?;
        let key_id = KeyId(fields.array()?);
        let store_id = fields.array()?;
        let cursor = fields.cursor()?;
        let sources = fields.sources()?;
        let label = SnapshotLabel {
            filter_id,
            filter_name,
            profile,
            declared,
            store_id,
            cursor,
            sources,
            keeps_unaccounted_bits: fields.flag("whether unaccounted bits are kept")?,
            taken_at_unix_ms: fields.u64()?.cast_signed(),
            forgotten: fields.u64()?,
        };
        if !fields.0.is_empty() {
            let found = format!("{} bytes more", fields.0.len());
            return Err(CodecError::field("the head", "nothing behind it", found));
        }
        Ok(Self {
            label,
            sizing,
            key_id,
        })
    }
}

const FILTER_NAME: &str = "the name of the filter";
const PROFILE_NAME: &str = "the name of its profile";
const SOURCE_NAME: &str = "the name of a source";

fn is_name(name: &[u8]) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic)
}

fn not_a_name(field: &'static str, found_bytes: usize) -> CodecError {
    let expected = format!("1 to {MAX_NAME_BYTES} printable ASCII characters");
    CodecError::field(field, expected, format!("{found_bytes} bytes"))
}

fn too_many_sources(found: usize) -> CodecError {
    CodecError::field(
        "the number of sources",
        format!("at most {MAX_SOURCES}"),
        found,
    )
}

fn long_cursor(found_bytes: usize) -> CodecError {
    CodecError::field(
        "the length of a cursor in bytes",
        format!("at most {MAX_CURSOR_BYTES}"),
        found_bytes,
    )
}

fn put_name(bytes: &mut Vec<u8>, field: &'static str, name: &str) -> Result<(), CodecError> {
    let length_bytes = u8::try_from(name.len())
        .ok()
        .filter(|_| is_name(name.as_bytes()))
        .ok_or_else(|| not_a_name(field, name.len()))?;
    bytes.push(length_bytes);
    bytes.extend_from_slice(name.as_bytes());
    Ok(())
}

fn put_declaration(bytes: &mut Vec<u8>, sizing: &Sizing) {
    bytes.extend(sizing.capacity().to_le_bytes());
    bytes.extend(sizing.false_positive_rate().to_le_bytes());
}

fn put_cursor(bytes: &mut Vec<u8>, cursor: &[u8]) -> Result<(), CodecError> {
    let length_bytes = u32::try_from(cursor.len())
        .ok()
        .filter(|_| cursor.len() <= MAX_CURSOR_BYTES)
        .ok_or_else(|| long_cursor(cursor.len()))?;
    bytes.extend(length_bytes.to_le_bytes());
    bytes.extend_from_slice(cursor);
    Ok(())
}

/// What is left of a head.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, length_bytes: usize) -> Result<&'a [u8], CodecError> {
        let (field, rest) = self.0.split_at_checked(length_bytes).ok_or_else(|| {
            let expected = format!("{length_bytes} bytes more");
            CodecError::field("the head", expected, format!("{} bytes", self.0.len()))
        })?;
        self.0 = rest;
        Ok(field)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8, CodecError> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, CodecError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, CodecError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, CodecError> {
        self.array().map(u64::from_le_bytes)
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, CodecError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(CodecError::field(field, "0 or 1", other)),
        }
    }

    fn name(&mut self, field: &'static str) -> Result<String, CodecError> {
        let length_bytes = usize::from(self.u8()?);
        if !(1..=MAX_NAME_BYTES).contains(&length_bytes) {
            return Err(not_a_name(field, length_bytes));
        }
        let name = self.bytes(length_bytes)?;
        str::from_utf8(name)
            .ok()
            .filter(|_| is_name(name))
            .map(str::to_owned)
            .ok_or_else(|| not_a_name(field, length_bytes))
    }

    /// A capacity and a rate.
    fn declaration(&mut self, field: &'static str) -> Result<Sizing, CodecError> {
        let (capacity, rate) = (self.u64()?, f64::from_bits(self.u64()?));
        Sizing::new(capacity, rate).map_err(|_| {
            let expected = "a capacity and a rate within their bounds";
            CodecError::field(field, expected, format!("{capacity} items at {rate:?}"))
        })
    }

    /// What the bits are sized for, with the numbers that this gives.
    fn sizing(&mut self) -> Result<Sizing, CodecError> {
        let sizing = self.declaration("the capacity and rate of the bits")?;
        let (bit_count, hash_count) = (self.u64()?, self.u32()?);
        if (bit_count, hash_count) != (sizing.bit_count(), sizing.hash_count()) {
            return Err(CodecError::field(
                "what its capacity and rate give",
                format!(
                    "{} bits and {} probes",
                    sizing.bit_count(),
                    sizing.hash_count()
                ),
                format!("{bit_count} and {hash_count}"),
            ));
        }
        Ok(sizing)
    }

    fn cursor(&mut self) -> Result<Vec<u8>, CodecError> {
        let length_bytes = self.u32()? as usize;
        if length_bytes > MAX_CURSOR_BYTES {
            return Err(long_cursor(length_bytes));
        }
        self.bytes(length_bytes).map(<[u8]>::to_vec)
    }

    fn sources(&mut self) -> Result<Vec<SourceLabel>, CodecError> {
        let sources = usize::from(self.u16()?);
        if sources > MAX_SOURCES {
            return Err(too_many_sources(sources));
        }
        (0..sources)
            .map(|_| {
                let name = self.name(SOURCE_NAME)?;
                let has_cursor = self.flag("whether a source has a cursor")?;
                let cursor = has_cursor.then(|| self.cursor()).transpose()?;
                Ok(SourceLabel { name, cursor })
            })
            .collect()
    }
}
