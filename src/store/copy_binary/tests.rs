//! The grammar, kept whatever the chunks are.

use proptest::prelude::*;

use super::*;

type Row = [Option<Vec<u8>>; 2];

fn header_bytes() -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend([0; 8]);
    bytes
}

fn row_bytes(row: &Row) -> Vec<u8> {
    let mut bytes = 2i16.to_be_bytes().to_vec();
    for field in row {
        match field {
            None => bytes.extend((-1i32).to_be_bytes()),
            Some(field) => {
                bytes.extend(i32::try_from(field.len()).unwrap().to_be_bytes());
                bytes.extend(field);
            }
        }
    }
    bytes
}

fn stream(rows: &[Row]) -> Vec<u8> {
    let mut bytes = header_bytes();
    for row in rows {
        bytes.extend(row_bytes(row));
    }
    bytes.extend((-1i16).to_be_bytes());
    bytes
}

/// Parses `bytes` cut at `cuts`, and gives the rows and how the stream ended.
fn parse(bytes: &[u8], cuts: &[usize]) -> (Vec<Row>, Result<u64, CopyError>) {
    let mut rows = Vec::new();
    let mut parser = CopyParser::<2>::new();
    let mut start = 0;
    for end in cuts.iter().copied().chain([bytes.len()]) {
        let pushed = parser.push(&bytes[start..end], |row| {
            rows.push(row.map(|field| field.map(<[u8]>::to_vec)));
        });
        if let Err(error) = pushed {
            return (rows, Err(error));
        }
        start = end;
    }
    (rows, parser.finish())
}

fn any_rows() -> impl Strategy<Value = Vec<Row>> {
    let field = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40));
    proptest::collection::vec([field(), field()], 0..20)
}

proptest! {
    #[test]
    fn rows_are_the_same_whatever_the_chunks(
        rows in any_rows(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let bytes = stream(&rows);
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let (found, end) = parse(&bytes, &cuts);
        prop_assert_eq!(end, Ok(rows.len() as u64));
        prop_assert_eq!(found, rows);
    }

    #[test]
    fn a_stream_that_is_cut_anywhere_is_an_error(
        rows in any_rows(),
        at in any::<prop::sample::Index>(),
    ) {
        let bytes = stream(&rows);
        let (found, end) = parse(&bytes[..at.index(bytes.len())], &[]);
        let is_truncated = matches!(end, Err(CopyError::Truncated { .. }));
        prop_assert!(is_truncated);
        prop_assert_eq!(&found[..], &rows[..found.len()]);
    }

    #[test]
    fn no_bytes_make_the_parser_panic_or_keep_more_than_they_are(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut hostile = header_bytes();
        hostile.extend(&bytes);
        let mut parser = CopyParser::<2>::new();
        let _ = parser.push(&hostile, |_| {});
        prop_assert!(parser.carry.capacity() <= 2 * hostile.len());
        let _ = parse(&bytes, &[]);
    }
}

#[test]
fn a_byte_at_a_time_is_enough() {
    let rows = vec![[Some(b"a".to_vec()), None], [None, Some(vec![0; 300])]];
    let bytes = stream(&rows);
    let cuts: Vec<_> = (0..bytes.len()).collect();
    assert_eq!(parse(&bytes, &cuts), (rows, Ok(2)));
}

#[test]
fn an_extension_is_skipped_and_a_long_one_refused() {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend(0i32.to_be_bytes());
    bytes.extend(5i32.to_be_bytes());
    bytes.extend(b"extra");
    bytes.extend((-1i16).to_be_bytes());
    for cut in 0..bytes.len() {
        assert_eq!(parse(&bytes, &[cut]), (vec![], Ok(0)));
    }
    for found in [i32::MAX, -1, 65_537] {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend(0i32.to_be_bytes());
        bytes.extend(found.to_be_bytes());
        assert_eq!(
            parse(&bytes, &[]).1,
            Err(CopyError::ExtensionLength { found })
        );
    }
}

#[test]
fn an_unknown_critical_flag_is_refused_and_another_ignored() {
    let with_flags = |flags: u32| {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(0i32.to_be_bytes());
        bytes.extend((-1i16).to_be_bytes());
        parse(&bytes, &[]).1
    };
    assert_eq!(with_flags(0xffff), Ok(0));
    for found in [0x0001_0000, 0x8000_0000] {
        assert_eq!(with_flags(found), Err(CopyError::CriticalFlags { found }));
    }
}

#[test]
fn another_signature_is_refused_at_its_first_byte() {
    assert_eq!(parse(b"id,name", &[]).1, Err(CopyError::Signature));
    assert_eq!(parse(b"PGCOPY\r\n", &[3]).1, Err(CopyError::Signature));
}

#[test]
fn another_number_of_fields_is_refused() {
    for found in [0i16, 1, 3, -2, i16::MAX, i16::MIN] {
        let mut bytes = header_bytes();
        bytes.extend(found.to_be_bytes());
        assert_eq!(
            parse(&bytes, &[]).1,
            Err(CopyError::FieldNumber { expected: 2, found })
        );
    }
}

#[test]
fn hostile_field_lengths_are_refused_before_anything_is_kept() {
    for found in [-2, i32::MIN, i32::MAX, 1024 * 1024 * 1024 + 1] {
        let mut bytes = header_bytes();
        bytes.extend(2i16.to_be_bytes());
        bytes.extend(found.to_be_bytes());
        assert_eq!(parse(&bytes, &[]).1, Err(CopyError::FieldLength { found }));
    }
}

#[test]
fn bytes_behind_the_trailer_are_refused() {
    let mut bytes = stream(&[]);
    bytes.push(0);
    for cut in 0..bytes.len() {
        assert_eq!(parse(&bytes, &[cut]).1, Err(CopyError::AfterTrailer));
    }
}
