//! The reader of snapshots, on bytes that nobody wrote and on snapshots that were changed.
//!
//! * No bytes make it panic, or allocate more than a small multiple of what is there, whatever
//!   lengths they claim.
//! * A snapshot that was written is read back; with any byte changed, cut or added it is refused, and
//!   so it is under another key.
//! * Reading and verifying agree.
//!
//! Input: a byte that chooses, then either the bytes of a snapshot, or what to write and to change.

#![no_main]

#[allow(dead_code, unused_imports)] // A target calls its part.
#[path = "../../src/filter"]
mod filter {
    pub(crate) mod bits;
    pub(crate) mod bloom;
    pub(crate) mod codec;
    pub(crate) mod hashing;
    pub(crate) mod profile;
    pub(crate) mod sizing;
}

use std::alloc::System;

use cap::Cap;
use filter::bloom::BloomFilter;
use filter::codec::{self, SnapshotLabel, SnapshotReader, SourceLabel};
use filter::hashing::{HashKey, MasterKey};
use filter::profile::Profile;
use filter::sizing::Sizing;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// What may be allocated beside the bytes that are there: buffers of a fixed size, and an error's.
const FIXED_BYTES: usize = 2 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    if choice.is_multiple_of(2) {
        read_anything(bytes);
    } else {
        read_changed(bytes);
    }
});

fn key(number: u8) -> HashKey {
    MasterKey::from_bytes([number; MasterKey::BYTES]).filter_key(&[1; 16])
}

fn read_anything(bytes: &[u8]) {
    let bound = ALLOCATOR.allocated() + 4 * bytes.len() + FIXED_BYTES;
    ALLOCATOR
        .set_limit(bound)
        .expect("less is allocated by now");
    let limit_bytes = bytes.len() as u64;
    let read = codec::read(bytes, key(7), limit_bytes);
    let verified = SnapshotReader::new(bytes, limit_bytes).and_then(|read| read.verify(&key(7)));
    ALLOCATOR.set_limit(usize::MAX).expect("there is no bound");
    assert!(read.is_err(), "nobody has the key to write it");
    assert!(verified.is_err());
}

fn read_changed(bytes: &[u8]) {
    let Some((choices, items)) = bytes.split_first_chunk::<6>() else {
        return;
    };
    let [capacity, sources, at, above, change, how] = *choices;
    let sizing = Sizing::new(u64::from(capacity) + 1, 0.01).expect("in range");
    let bloom = BloomFilter::new(sizing, key(7)).expect("a small one");
    let items: Vec<&[u8]> = items.chunks(5).collect();
    bloom.add_batch(&items);
    let label = SnapshotLabel {
        filter_id: [1; 16],
        filter_name: "f".to_owned(),
        profile: Profile::Text.identity(),
        declared: sizing,
        store_id: [2; 16],
        cursor: vec![how; usize::from(at)],
        sources: (0..sources % 4)
            .map(|number| SourceLabel {
                name: format!("source-{number}"),
                cursor: (number > 0).then(|| vec![number; 40]),
            })
            .collect(),
        keeps_unaccounted_bits: how & 1 != 0,
        taken_at_unix_ms: i64::from(change),
        forgotten: u64::from(above),
    };
    let mut written = Vec::new();
    codec::write(&label, &bloom, &mut written).expect("a vector takes it");
    let limit_bytes = written.len() as u64;

    let (head, read) = codec::read(&written[..], key(7), limit_bytes).expect("as it was written");
    assert_eq!(head.label, label);
    assert!(
        items.iter().all(|item| read.check(item)),
        "every item is in"
    );
    assert!(
        codec::read(&written[..], key(8), limit_bytes).is_err(),
        "another key"
    );

    let position = (usize::from(at) << 8 | usize::from(above)) % written.len();
    let mut changed = written.clone();
    match how % 3 {
        0 => changed[position] ^= change.max(1),
        1 => changed.truncate(position),
        _ => changed.push(change),
    }
    let read = codec::read(&changed[..], key(7), u64::MAX);
    let verified =
        SnapshotReader::new(&changed[..], u64::MAX).and_then(|reader| reader.verify(&key(7)));
    assert!(read.is_err() && verified.is_err(), "changed at {position}");
}
