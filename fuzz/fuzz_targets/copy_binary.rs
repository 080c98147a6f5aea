//! The reader of PostgreSQL's binary COPY, on bytes that no server would send and on streams that
//! one would.
//!
//! * No bytes make it panic, and it keeps no more than twice what has arrived, whatever lengths
//!   the stream claims.
//! * Where the chunks end changes neither the rows nor the error.
//! * The rows of a whole stream are those that were written; a stream that is cut off is an error,
//!   behind rows that were written.
//!
//! Input: five bytes that say how long the chunks are, then the stream.

#![no_main]

#[allow(dead_code, unused_imports)] // A target calls its part.
#[path = "../../src/store"]
mod store {
    pub(crate) mod copy_binary;
}

use std::alloc::System;

use cap::Cap;
use libfuzzer_sys::fuzz_target;
use store::copy_binary::{CopyError, CopyParser};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// What may be allocated beside the bytes that wait: the smallest vector, and an error's.
const SMALL_BYTES: usize = 64;

const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

type Row<const COLUMNS: usize> = [Option<Vec<u8>>; COLUMNS];
type Outcome<const COLUMNS: usize> = (Vec<Row<COLUMNS>>, Result<u64, CopyError>);

fuzz_target!(|input: &[u8]| {
    let Some((chunk_lengths, bytes)) = input.split_first_chunk::<5>() else {
        return;
    };
    let behind_header = [HEADER, bytes].concat();
    for stream in [bytes, &behind_header] {
        assert_bounded(stream, chunk_lengths);
        assert_chunks_tell_nowhere::<1>(stream, chunk_lengths);
        assert_chunks_tell_nowhere::<2>(stream, chunk_lengths);
        assert_chunks_tell_nowhere::<3>(stream, chunk_lengths);
    }
    assert_read_back(&rows_from(bytes), chunk_lengths);
});

/// Splits by lengths that come around again. A chunk may be empty; one of each turn is not.
fn chunks<'a>(mut rest: &'a [u8], lengths: &'a [u8; 5]) -> impl Iterator<Item = &'a [u8]> {
    let mut turn = (0..5).cycle();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let place = turn.next()?;
        let length = usize::from(lengths[place]) + usize::from(place == 0);
        let (chunk, behind) = rest.split_at(length.min(rest.len()));
        rest = behind;
        Some(chunk)
    })
}

fn parse<'a, const COLUMNS: usize>(chunks: impl Iterator<Item = &'a [u8]>) -> Outcome<COLUMNS> {
    let mut rows = Vec::new();
    let mut parser = CopyParser::<COLUMNS>::new();
    for chunk in chunks {
        let pushed = parser.push(chunk, |row| {
            rows.push(row.map(|field| field.map(<[u8]>::to_vec)));
        });
        assert_eq!(parser.rows(), rows.len() as u64);
        if let Err(error) = pushed {
            return (rows, Err(error));
        }
    }
    (rows, parser.finish())
}

fn assert_chunks_tell_nowhere<const COLUMNS: usize>(stream: &[u8], chunk_lengths: &[u8; 5]) {
    let whole = parse::<COLUMNS>([stream].into_iter());
    assert_eq!(parse::<COLUMNS>(chunks(stream, chunk_lengths)), whole);
    assert_eq!(parse::<COLUMNS>(stream.chunks(1)), whole);
}

/// Parses while the allocator refuses what is over the bound, which would end the process.
fn assert_bounded(stream: &[u8], chunk_lengths: &[u8; 5]) {
    let before = ALLOCATOR.allocated();
    let mut parser = CopyParser::<2>::new();
    let mut arrived = 0;
    for chunk in chunks(stream, chunk_lengths) {
        arrived += chunk.len();
        let limit = before + 2 * arrived + SMALL_BYTES;
        ALLOCATOR
            .set_limit(limit)
            .expect("the limit is over what is kept");
        let pushed = parser.push(chunk, |_| {});
        ALLOCATOR.set_limit(usize::MAX).expect("no limit");
        if pushed.is_err() {
            break;
        }
    }
}

/// Rows out of any bytes: each field says by its first byte whether it is NULL or how long it is.
fn rows_from(mut bytes: &[u8]) -> Vec<Row<2>> {
    let mut field = || {
        let (first, rest) = bytes.split_first()?;
        let length = usize::from(*first).min(rest.len());
        let (field, behind) = rest.split_at(if *first == u8::MAX { 0 } else { length });
        bytes = behind;
        Some((*first != u8::MAX).then(|| field.to_vec()))
    };
    std::iter::from_fn(|| Some([field()?, field()?])).collect()
}

/// The stream that a server sends for these rows.
fn written(rows: &[Row<2>]) -> Vec<u8> {
    let mut stream = HEADER.to_vec();
    for row in rows {
        stream.extend(2_i16.to_be_bytes());
        for field in row {
            let length = field.as_ref().map_or(-1, |field| field.len() as i32);
            stream.extend(length.to_be_bytes());
            stream.extend(field.iter().flatten());
        }
    }
    stream.extend((-1_i16).to_be_bytes());
    stream
}

fn assert_read_back(rows: &[Row<2>], chunk_lengths: &[u8; 5]) {
    let stream = written(rows);
    let (found, end) = parse::<2>(chunks(&stream, chunk_lengths));
    assert_eq!(end, Ok(rows.len() as u64));
    assert_eq!(found, rows);

    let cut = usize::from(u16::from_be_bytes([chunk_lengths[0], chunk_lengths[1]])) % stream.len();
    let (found, end) = parse::<2>(chunks(&stream[..cut], chunk_lengths));
    let arrived = found.len() as u64;
    assert_eq!(end, Err(CopyError::Truncated { rows: arrived }));
    assert_eq!(found, rows[..found.len()]);
}
