//! The binary format of PostgreSQL's `COPY … TO STDOUT (FORMAT binary)`, parsed as it arrives.
//!
//! Invariants: whatever the chunks' boundaries, the rows are the same; nothing is allocated by a
//! length that the stream merely claims; a stream without its trailer is an error.
//!
//! It must not know where the bytes come from or what the fields mean.

// The grammar (PostgreSQL documentation, COPY, "Binary Format"; all integers big-endian):
//
//   stream    = signature flags extension tuple* trailer
//   signature = "PGCOPY\n" FF "\r\n" 00
//   flags     = i32      bits 16–31 are critical: an unknown one must be refused.
//                        Bit 16 said that tuples carry OIDs; no server since 12 sets it.
//                        Bits 0–15 may be ignored.
//   extension = i32 length, then that many bytes to skip
//   tuple     = i16 number of fields, then the fields
//   field     = i32 length, then that many bytes; -1 and no bytes for NULL
//   trailer   = i16 -1

/// What stands at the front of every stream.
const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// Signature, flags and the length of the extension.
const HEADER_BYTES: usize = SIGNATURE.len() + 4 + 4;

/// Longest header extension that is skipped. No server writes one.
const EXTENSION_LIMIT_BYTES: usize = 64 * 1024;

/// Longest field: PostgreSQL holds no value of 1 GiB.
const FIELD_LIMIT_BYTES: usize = 1024 * 1024 * 1024;

/// Why a stream is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CopyError {
    /// Another format, or no COPY at all.
    #[error("expected the signature of a binary COPY, found other bytes")]
    Signature,
    /// A feature that changes the meaning of what follows.
    #[error("expected no critical flags in the COPY header, found {found:#010x}")]
    CriticalFlags {
        /// The flags as they came.
        found: u32,
    },
    /// A header extension without bounds.
    #[error(
        "expected a COPY header extension of at most {EXTENSION_LIMIT_BYTES} bytes, found {found}"
    )]
    ExtensionLength {
        /// The length as it came.
        found: i32,
    },
    /// Another number of columns than was asked for.
    #[error("expected {expected} fields in a COPY row, found {found}")]
    FieldNumber {
        /// What was asked for.
        expected: usize,
        /// What came.
        found: i16,
    },
    /// A length that no field has.
    #[error("expected a COPY field of -1 to {FIELD_LIMIT_BYTES} bytes, found {found}")]
    FieldLength {
        /// The length as it came.
        found: i32,
    },
    /// Bytes behind the end.
    #[error("expected the end of the COPY stream behind its trailer, found more bytes")]
    AfterTrailer,
    /// The end before the trailer.
    #[error("the COPY stream ended without its trailer, after {rows} rows")]
    Truncated {
        /// Rows up to there.
        rows: u64,
    },
}

/// Where in the stream the parser stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Header,
    Extension { bytes_left: usize },
    Tuples,
    End,
}

/// A parser of rows with `COLUMNS` fields. Feed it with [`push`](Self::push), then
/// [`finish`](Self::finish).
pub(crate) struct CopyParser<const COLUMNS: usize> {
    place: Place,
    rows: u64,
    /// The front of what did not yet arrive whole: a header or a tuple, never more.
    carry: Vec<u8>,
}

impl<const COLUMNS: usize> CopyParser<COLUMNS> {
    /// A parser at the front of a stream.
    pub(crate) fn new() -> Self {
        Self {
            place: Place::Header,
            rows: 0,
            carry: Vec::new(),
        }
    }

    /// Rows that have arrived whole.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes the next bytes and gives `on_row` every row that they complete; none stands for
    /// NULL. A row that lies in one chunk is given without a copy.
    ///
    /// # Errors
    /// When the bytes break the grammar. The parser is of no use afterwards.
    pub(crate) fn push(
        &mut self,
        chunk: &[u8],
        mut on_row: impl FnMut([Option<&[u8]>; COLUMNS]),
    ) -> Result<(), CopyError> {
        if self.carry.is_empty() {
            let consumed = self.parse(chunk, &mut on_row)?;
            self.carry.extend_from_slice(&chunk[consumed..]);
            return Ok(());
        }
        // Taken out, so that the rows can be lent from it while the parser moves on.
        let mut carry = std::mem::take(&mut self.carry);
        carry.extend_from_slice(chunk);
        let consumed = self.parse(&carry, &mut on_row)?;
        carry.drain(..consumed);
        self.carry = carry;
        Ok(())
    }

    /// Ends the stream and gives the number of its rows.
    ///
    /// # Errors
    /// When the trailer has not come.
    pub(crate) fn finish(self) -> Result<u64, CopyError> {
        match self.place {
            Place::End => Ok(self.rows),
            Place::Header | Place::Extension { .. } | Place::Tuples => {
                Err(CopyError::Truncated { rows: self.rows })
            }
        }
    }

    /// Parses what is whole and says how many bytes that took.
    fn parse(
        &mut self,
        bytes: &[u8],
        on_row: &mut impl FnMut([Option<&[u8]>; COLUMNS]),
    ) -> Result<usize, CopyError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.place {
                Place::Header => {
                    let Some(bytes_left) = header(&mut rest)? else {
                        break;
                    };
                    self.place = Place::Extension { bytes_left };
                }
                Place::Extension { bytes_left: 0 } => self.place = Place::Tuples,
                Place::Extension { bytes_left } => {
                    let skipped = bytes_left.min(rest.len());
                    rest = &rest[skipped..];
                    let bytes_left = bytes_left - skipped;
                    self.place = Place::Extension { bytes_left };
                }
                Place::Tuples => match tuple(&mut rest)? {
                    Element::Row(fields) => {
                        self.rows += 1;
                        on_row(fields);
                    }
                    Element::Trailer => self.place = Place::End,
                    Element::Partial => break,
                },
                Place::End => return Err(CopyError::AfterTrailer),
            }
        }
        Ok(bytes.len() - rest.len())
    }
}

/// What stands next among the tuples.
enum Element<'a, const COLUMNS: usize> {
    Row([Option<&'a [u8]>; COLUMNS]),
    Trailer,
    Partial,
}

/// Takes a header off the front and gives the length of its extension; none when it is not yet
/// whole. What has arrived of a wrong signature is refused at once.
fn header(rest: &mut &[u8]) -> Result<Option<usize>, CopyError> {
    let arrived = rest.len().min(SIGNATURE.len());
    if rest[..arrived] != SIGNATURE[..arrived] {
        return Err(CopyError::Signature);
    }
    if rest.len() < HEADER_BYTES {
        return Ok(None);
    }
    let mut cursor = &rest[SIGNATURE.len()..];
    let (Some(flags), Some(extension)) = (take_i32(&mut cursor), take_i32(&mut cursor)) else {
        return Ok(None);
    };
    let flags = flags.cast_unsigned();
    if flags >> 16 != 0 {
        return Err(CopyError::CriticalFlags { found: flags });
    }
    let length = usize::try_from(extension)
        .ok()
        .filter(|length| *length <= EXTENSION_LIMIT_BYTES)
        .ok_or(CopyError::ExtensionLength { found: extension })?;
    *rest = cursor;
    Ok(Some(length))
}

/// Takes a tuple or the trailer off the front; leaves `rest` alone when it is not yet whole.
fn tuple<'a, const COLUMNS: usize>(rest: &mut &'a [u8]) -> Result<Element<'a, COLUMNS>, CopyError> {
    let mut cursor = *rest;
    let Some(fields_found) = take::<2>(&mut cursor).map(i16::from_be_bytes) else {
        return Ok(Element::Partial);
    };
    if fields_found == -1 {
        *rest = cursor;
        return Ok(Element::Trailer);
    }
    if usize::try_from(fields_found) != Ok(COLUMNS) {
        return Err(CopyError::FieldNumber {
            expected: COLUMNS,
            found: fields_found,
        });
    }
    let mut fields = [None; COLUMNS];
    for field in &mut fields {
        let Some(found) = take_i32(&mut cursor) else {
            return Ok(Element::Partial);
        };
        if found == -1 {
            continue;
        }
        let length = usize::try_from(found)
            .ok()
            .filter(|length| *length <= FIELD_LIMIT_BYTES)
            .ok_or(CopyError::FieldLength { found })?;
        let Some((bytes, behind)) = cursor.split_at_checked(length) else {
            return Ok(Element::Partial);
        };
        *field = Some(bytes);
        cursor = behind;
    }
    *rest = cursor;
    Ok(Element::Row(fields))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (front, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*front)
}

fn take_i32(rest: &mut &[u8]) -> Option<i32> {
    take::<4>(rest).map(i32::from_be_bytes)
}

#[cfg(test)]
mod tests;
