//! A stream of bytes, cut into lines.
//!
//! Lines end with LF; one CR before it belongs to the end, a byte order mark at the very beginning
//! does not belong to the first line, and the last line may lack its LF. Memory is bounded by one
//! line and one chunk.

use bytes::{Bytes, BytesMut};

/// The longest line, in bytes: an item of 4,096 bytes takes 24 KiB when each is escaped.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line is longer than [`MAX_LINE_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub struct LineTooLong;

/// Cuts chunks into lines.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: BytesMut,
    /// Bytes at the front of the buffer that are known to hold no LF.
    searched: usize,
    /// Lines given out so far.
    number: u64,
}

impl Lines {
    /// The number of the line that was given last, counted from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Takes the next chunk. To be called when [`Lines::next_line`] gives none.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete line, without its end; none when more bytes are needed.
    ///
    /// # Errors
    /// When the line is too long; its number has been counted.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        let unsearched = &self.buffer[self.searched..];
        let Some(position) = unsearched.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            if self.searched > MAX_LINE_BYTES + BYTE_ORDER_MARK.len() + b"\r".len() {
                self.number += 1;
                return Err(LineTooLong);
            }
            return Ok(None);
        };
        let line = self.buffer.split_to(self.searched + position + 1);
        self.searched = 0;
        let line = line.freeze();
        self.give(line.slice(..line.len() - 1)).map(Some)
    }

    /// The last line, when the stream ended without LF.
    ///
    /// # Errors
    /// As [`Lines::next_line`].
    pub fn last_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        self.searched = 0;
        let rest = self.buffer.split().freeze();
        if rest.is_empty() {
            return Ok(None);
        }
        self.give(rest).map(Some)
    }

    fn give(&mut self, mut line: Bytes) -> Result<Bytes, LineTooLong> {
        self.number += 1;
        if self.number == 1 && line.starts_with(BYTE_ORDER_MARK) {
            line = line.slice(BYTE_ORDER_MARK.len()..);
        }
        if line.ends_with(b"\r") {
            line.truncate(line.len() - 1);
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(LineTooLong);
        }
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(chunks: &[&[u8]]) -> Result<Vec<Vec<u8>>, (u64, LineTooLong)> {
        let mut lines = Lines::default();
        let mut given = Vec::new();
        for chunk in chunks {
            lines.push(chunk);
            while let Some(line) = lines.next_line().map_err(|error| (lines.number(), error))? {
                given.push(line.to_vec());
            }
        }
        let last = lines.last_line().map_err(|error| (lines.number(), error))?;
        given.extend(last.map(|line| line.to_vec()));
        Ok(given)
    }

    #[test]
    fn ends_of_lines_and_the_byte_order_mark_are_no_part_of_an_item() {
        let given = cut(&[b"\xEF\xBB\xBFone\r\ntwo\r\r\n\n  three\xEF\xBB\xBF"]).unwrap();
        assert_eq!(
            given,
            [
                b"one".to_vec(),
                b"two\r".to_vec(),
                b"".to_vec(),
                b"  three\xEF\xBB\xBF".to_vec()
            ]
        );
    }

    #[test]
    fn an_empty_stream_has_no_line_and_a_final_end_begins_none() {
        assert!(cut(&[]).unwrap().is_empty());
        assert!(cut(&[b""]).unwrap().is_empty());
        assert_eq!(cut(&[b"one\n"]).unwrap(), [b"one"]);
    }

    #[test]
    fn a_line_of_the_bound_is_taken_and_a_longer_one_is_not_even_without_its_end() {
        let bound = vec![b'a'; MAX_LINE_BYTES];
        let mark: &[u8] = b"\xEF\xBB\xBF";
        let taken = cut(&[mark, &bound, b"\r", b"\n"]).unwrap();
        assert_eq!(taken, std::slice::from_ref(&bound));
        assert_eq!(cut(&[b"x\n", &bound, b"a\n"]), Err((2, LineTooLong)));
        assert_eq!(cut(&[b"x\n", &bound, b"a"]), Err((2, LineTooLong)));
    }

    #[test]
    fn an_endless_line_is_refused_before_it_is_held() {
        let mut lines = Lines::default();
        lines.push(&vec![b'a'; MAX_LINE_BYTES + 5]);
        assert_eq!(lines.next_line(), Err(LineTooLong));
    }

    proptest! {
        #[test]
        fn where_the_chunks_end_makes_no_difference(
            text in "[ab\r\n\u{feff}]{0,40}",
            chunk_bytes in 1_usize..7,
        ) {
            let whole = cut(&[text.as_bytes()]);
            let chunks: Vec<_> = text.as_bytes().chunks(chunk_bytes).collect();
            prop_assert_eq!(cut(&chunks), whole);
        }
    }
}
