//! Snapshots are read back as they were written.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::filter::hashing::MasterKey;
use crate::filter::profile::{EmailOptions, Profile};
use crate::filter::sizing::Sizing;

const ID: [u8; 16] = [7; 16];
pub(super) const LIMIT: u64 = 1 << 20;

pub(super) fn key() -> HashKey {
    MasterKey::from_bytes([1; MasterKey::BYTES]).filter_key(&ID)
}

pub(super) fn other_key() -> HashKey {
    MasterKey::from_bytes([2; MasterKey::BYTES]).filter_key(&ID)
}

pub(super) fn label() -> SnapshotLabel {
    SnapshotLabel {
        filter_id: ID,
        filter_name: "registered-email".to_owned(),
        profile: Profile::Email(EmailOptions {
            gmail_dots: true,
            ..EmailOptions::default()
        })
        .identity(),
        declared: Sizing::new(10, 0.1).unwrap(),
        store_id: [9; 16],
        cursor: vec![1, 2, 3],
        sources: ["a", "b"]
            .into_iter()
            .zip([None, Some(vec![4])])
            .map(|(name, cursor)| SourceLabel {
                name: name.to_owned(),
                cursor,
            })
            .collect(),
        keeps_unaccounted_bits: true,
        taken_at_unix_ms: 1_700_000_000_123,
        forgotten: 5,
    }
}

/// With 144 bits, so that the last word has room for stray ones.
pub(super) fn filter() -> BloomFilter {
    let filter = BloomFilter::new(Sizing::new(15, 0.01).unwrap(), key()).unwrap();
    for number in 0..5_u8 {
        filter.add(&[number]);
    }
    filter
}

pub(super) fn snapshot_of(label: &SnapshotLabel, filter: &BloomFilter) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = write(label, filter, &mut bytes).unwrap();
    assert_eq!(written, bytes.len() as u64);
    bytes
}

pub(super) fn snapshot() -> Vec<u8> {
    snapshot_of(&label(), &filter())
}

pub(super) fn read_all(bytes: &[u8]) -> Result<(SnapshotHead, BloomFilter), CodecError> {
    read(bytes, key(), LIMIT)
}

/// Gives bytes in parts of odd lengths.
struct InOddParts<'a>(&'a [u8]);

impl ReadAt for InOddParts<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = buffer.len().min(1_021);
        self.0.read_at(&mut buffer[..end], offset)
    }
}

#[test]
fn what_was_written_is_read_back_with_every_item() {
    let filter = filter();
    let (head, found) = read_all(&snapshot_of(&label(), &filter)).unwrap();
    assert_eq!(head.label, label());
    assert_eq!(head.sizing, *filter.sizing());
    assert_eq!(head.key_id, key().id());
    assert_eq!(found.statistics(), filter.statistics());
    for number in 0..=u8::MAX {
        assert_eq!(found.check(&[number]), filter.check(&[number]));
    }
    assert!(found.add(b"one more") && found.check(b"one more"));
    assert_eq!(found.statistics().ones, found.bits().recount());
}

#[test]
fn a_filter_of_many_parts_is_read_back_from_whatever_gives_its_bytes() {
    // Two whole segments and the beginning of a third.
    let filter = BloomFilter::new(Sizing::new(8_000_000, 0.01).unwrap(), key()).unwrap();
    let segments = filter.sizing().memory_bytes() as f64 / SEGMENT_BYTES as f64;
    assert!((2.0..3.0).contains(&segments), "{segments}");
    for number in 0..10_000_u32 {
        filter.add(&number.to_le_bytes());
    }
    let bytes = snapshot_of(&label(), &filter);
    let (_, found) = read(InOddParts(&bytes), key(), bytes.len() as u64).unwrap();
    assert!((0..10_000_u32).all(|number| found.check(&number.to_le_bytes())));
    assert_eq!(found.statistics(), filter.statistics());
    let reader = SnapshotReader::new(InOddParts(&bytes), bytes.len() as u64).unwrap();
    reader.verify(&key()).unwrap();
}

#[test]
fn an_empty_label_and_the_fullest_one_are_read_back() {
    let mut changed = label();
    changed.cursor = Vec::new();
    changed.sources = Vec::new();
    changed.keeps_unaccounted_bits = false;
    changed.taken_at_unix_ms = i64::MIN;
    changed.forgotten = u64::MAX;
    let (head, _) = read_all(&snapshot_of(&changed, &filter())).unwrap();
    assert_eq!(head.label, changed);
    changed.cursor = vec![5; MAX_CURSOR_BYTES];
    changed.filter_name = "n".repeat(MAX_NAME_BYTES);
    let source = SourceLabel {
        name: "s".repeat(MAX_NAME_BYTES),
        cursor: Some(vec![6; 8_000]),
    };
    changed.sources = vec![source; MAX_SOURCES];
    let bytes = snapshot_of(&changed, &filter());
    let (head, _) = read(&*bytes, key(), bytes.len() as u64).unwrap();
    assert_eq!(head.label, changed);
}

#[test]
fn a_label_out_of_bounds_is_not_written() {
    let mut changed = vec![label(); 5];
    changed[0].filter_name = String::new();
    changed[1].filter_name = "n".repeat(MAX_NAME_BYTES + 1);
    changed[2].cursor = vec![0; MAX_CURSOR_BYTES + 1];
    changed[3].sources = vec![changed[3].sources[0].clone(); MAX_SOURCES + 1];
    changed[4].sources = vec![
        SourceLabel {
            name: "s".to_owned(),
            cursor: Some(vec![0; MAX_CURSOR_BYTES]),
        };
        4
    ];
    for label in changed {
        let mut bytes = Vec::new();
        let refused = write(&label, &filter(), &mut bytes).unwrap_err();
        assert!(matches!(refused, CodecError::Field { .. }), "{refused}");
        assert!(bytes.is_empty());
    }
}

/// The format of version 2: what changes it takes another version. The key's identifier and the MAC
/// are those of another implementation of BLAKE3.
#[test]
fn the_bytes_of_a_known_snapshot_do_not_change() {
    let bytes = snapshot();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN);
}

const GOLDEN: &str = concat!(
    "89626c6f6f6d0d0a020000009d00000007070707070707070707070707070707",
    "10726567697374657265642d656d61696c05656d61696c01000000010a000000",
    "000000009a9999999999b93f0f000000000000007b14ae47e17a843f90000000",
    "0000000007000000894ba598aa6b1055aa68399f33a4227a0909090909090909",
    "09090909090909090300000001020302000161000162010100000004017b68e5",
    "cf8b010000050000000000000000130924428601232010540700200082400a00",
    "00000000001e000000000000003290ed4eb8ae81920392a930eaf0c967037d6e",
    "1e3b1ec07d6a558140f1b8ee6c",
);

#[test]
fn a_reader_that_fails_is_no_fault_of_the_snapshot() {
    struct BrokenBehind<'a>(&'a [u8]);
    impl ReadAt for BrokenBehind<'_> {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            match self.0.read_at(buffer, offset)? {
                0 => Err(io::Error::other("the disk is gone")),
                read_bytes => Ok(read_bytes),
            }
        }
    }
    let bytes = snapshot();
    for end in [0, 10, 40, bytes.len() - 60, bytes.len() - 1, bytes.len()] {
        let failed = read(BrokenBehind(&bytes[..end]), key(), LIMIT).unwrap_err();
        assert!(!failed.is_of_the_snapshot(), "{end}: {failed}");
    }
    assert!(read_all(&bytes[..50]).unwrap_err().is_of_the_snapshot());
}

#[test]
fn a_writer_that_fails_anywhere_is_told_of() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            Ok(taken)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let length = snapshot().len();
    for room in 0..length {
        let failed = write(&label(), &filter(), &mut Full(room)).unwrap_err();
        assert!(matches!(failed, CodecError::Io(_)), "{room}: {failed}");
    }
    write(&label(), &filter(), &mut Full(length)).unwrap();
}

/// The count is of what was written, whatever is added meanwhile.
#[test]
fn what_was_added_before_the_saving_began_is_in_it_while_others_add() {
    const CAPACITY: u64 = 5_000_000;
    let filter = BloomFilter::new(Sizing::new(CAPACITY, 0.01).unwrap(), key()).unwrap();
    let (added, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..CAPACITY {
                filter.add(&number.to_le_bytes());
                added.store(number + 1, Ordering::Release);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..8 {
            let before = added.load(Ordering::Acquire);
            let bytes = snapshot_of(&label(), &filter);
            let (_, found) = read(&*bytes, key(), bytes.len() as u64).unwrap();
            let mut newest = before.saturating_sub(20_000)..before;
            assert!(newest.all(|number| found.check(&number.to_le_bytes())));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
