//! Whatever is not a snapshot as it was written is refused, before anything large is allocated for
//! it.

use std::io;

use proptest::prelude::*;

use super::tests::{LIMIT, filter, key, label, other_key, read_all, snapshot, snapshot_of};
use super::*;
use crate::filter::profile::ProfileIdentity;
use crate::filter::sizing::Sizing;

/// What reading and verifying both say.
#[track_caller]
fn refusal(bytes: &[u8]) -> CodecError {
    let verified = SnapshotReader::new(bytes, LIMIT).and_then(|reader| reader.verify(&key()));
    let refused = read_all(bytes).unwrap_err();
    assert_eq!(verified.unwrap_err().to_string(), refused.to_string());
    refused
}

/// Puts the MAC right that a test has made wrong.
fn seal(bytes: &mut [u8]) {
    let (body, mac) = bytes.split_last_chunk_mut::<32>().unwrap();
    let ones_at = body.len() - 8;
    // A length that was changed may lead anywhere.
    let words_at = words_at(body).min(ones_at);
    let mut whole = key().snapshot_mac();
    whole.update(&body[..words_at]);
    for words in body[words_at..ones_at].chunks(SEGMENT_BYTES) {
        whole.update(
            key()
                .snapshot_segment_mac()
                .update(words)
                .finalize()
                .as_bytes(),
        );
    }
    *mac = *whole.update(&body[ones_at..]).finalize().as_bytes();
}

/// Where the bits begin.
fn words_at(bytes: &[u8]) -> usize {
    PREFIX_BYTES + u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize
}

#[test]
fn segments_in_another_order_are_refused() {
    let filter = BloomFilter::new(Sizing::new(8_000_000, 0.01).unwrap(), key()).unwrap();
    filter.add(b"item");
    let mut bytes = snapshot_of(&label(), &filter);
    let words_at = words_at(&bytes);
    let segments = &mut bytes[words_at..][..2 * SEGMENT_BYTES];
    let (first, second) = segments.split_at_mut(SEGMENT_BYTES);
    assert!(first != second, "an item has its bits everywhere");
    first.swap_with_slice(second);
    let refused = read(&*bytes, key(), bytes.len() as u64).unwrap_err();
    assert!(matches!(refused, CodecError::NotAuthentic), "{refused}");
}

/// Gives these bytes and panics when it is asked for more.
struct NothingBehind<'a>(&'a [u8]);

impl ReadAt for NothingBehind<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = offset + buffer.len() as u64;
        assert!(end <= self.0.len() as u64, "read past what it may look at");
        self.0.read_at(buffer, offset)
    }
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let bytes = snapshot();
    for index in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[index] ^= 1 << bit;
            refusal(&changed);
        }
    }
}

#[test]
fn a_snapshot_that_was_cut_anywhere_is_refused() {
    let bytes = snapshot();
    for end in 0..bytes.len() {
        assert!(
            matches!(refusal(&bytes[..end]), CodecError::CutShort),
            "{end}"
        );
    }
    let filter = BloomFilter::new(Sizing::new(10_000, 0.01).unwrap(), key()).unwrap();
    let large = snapshot_of(&label(), &filter);
    assert!(matches!(
        refusal(&large[..large.len() - 1_024]),
        CodecError::CutShort
    ));
}

#[test]
fn what_follows_a_snapshot_is_refused() {
    for more in [&b"\0"[..], b"garbage", &snapshot()] {
        let bytes = [&snapshot(), more].concat();
        assert!(matches!(refusal(&bytes), CodecError::TrailingBytes));
    }
}

#[test]
fn a_huge_length_in_any_field_is_refused_by_the_head_alone() {
    let bytes = snapshot();
    let head = &bytes[..words_at(&bytes)];
    let at = |needle: &[u8]| {
        let mut places = head.windows(needle.len());
        places.position(|place| place == needle).unwrap()
    };
    let sizing = *filter().sizing();
    let [name, profile] = [&b"registered-email"[..], b"email\x01"].map(|name| at(name) - 1);
    let sources = at(&[2, 0, 1, b'a']);
    let cursors = [at(&[3, 0, 0, 0, 1, 2, 3]), at(&[1, 0, 0, 0, 4])];
    let [capacity, bit_count] =
        [sizing.capacity(), sizing.bit_count()].map(|number| at(&number.to_le_bytes()));
    let hash_count = bit_count + 8;
    let u8s = [name, profile, sources + 2, cursors[1] - 2].map(|place| (place, 1));
    let u32s = [12, cursors[0], cursors[1], hash_count].map(|place| (place, 4));
    let u64s = [capacity, bit_count].map(|place| (place, 8));
    for (place, width) in [&u8s[..], &u32s, &u64s, &[(sources, 2)]].concat() {
        for huge in [u64::MAX, 1 << 63, 1 << 31, (1 << 31) - 1, 1 << 15, 200] {
            let mut changed = head.to_vec();
            let huge = huge.to_le_bytes();
            changed[place..place + width].copy_from_slice(&huge[..width]);
            // Of the head's own length the ones that the limit allows are simply cut short.
            let is_allowed = place == 12 && u64::from_le_bytes(huge) < LIMIT;
            if changed == head || is_allowed {
                continue;
            }
            let refused = SnapshotReader::new(NothingBehind(&changed), LIMIT)
                .and_then(|reader| reader.verify(&key()));
            assert!(
                matches!(
                    refused,
                    Err(CodecError::Field { .. } | CodecError::TooLong { .. })
                ),
                "{refused:?} of {huge:?} at {place}"
            );
        }
    }
}

#[test]
fn bits_past_the_limit_are_refused_before_they_are_allocated() {
    // Some 6 TB, with a head that is right in itself.
    let head = SnapshotHead {
        label: label(),
        sizing: Sizing::new(Sizing::MAX_CAPACITY, 1e-10).unwrap(),
        key_id: key().id(),
    };
    let prefix = with_prefix(&head.encode().unwrap()).unwrap();
    let needed_bytes = snapshot_bytes(&prefix, &head);
    for limit_bytes in [0, 1_000, LIMIT, needed_bytes - 1] {
        let refused = read(NothingBehind(&prefix), key(), limit_bytes).unwrap_err();
        assert!(matches!(refused, CodecError::TooLong { .. }), "{refused}");
    }
    assert_eq!(
        read_head(NothingBehind(&prefix), needed_bytes).unwrap(),
        head
    );
    let bytes = snapshot();
    assert!(read(&*bytes, key(), bytes.len() as u64).is_ok());
    assert!(read(&*bytes, key(), bytes.len() as u64 - 1).is_err());
}

#[test]
fn the_head_is_read_without_a_look_behind_it() {
    let bytes = snapshot();
    let head = read_head(NothingBehind(&bytes[..words_at(&bytes)]), LIMIT).unwrap();
    assert_eq!(head.label, label());
}

#[test]
fn a_wrong_count_of_ones_is_refused_even_under_a_right_mac() {
    for difference in [1, 1 << 31, u64::MAX] {
        let mut bytes = snapshot();
        let ones_at = bytes.len() - 40;
        let ones = filter().statistics().ones.wrapping_add(difference);
        bytes[ones_at..ones_at + 8].copy_from_slice(&ones.to_le_bytes());
        assert!(matches!(refusal(&bytes), CodecError::NotAuthentic));
        seal(&mut bytes);
        assert!(matches!(refusal(&bytes), CodecError::Ones { .. }));
    }
}

#[test]
fn ones_past_the_last_bit_are_refused_even_under_a_right_mac() {
    let mut bytes = snapshot();
    let (last, ones_at) = (bytes.len() - 41, bytes.len() - 40);
    bytes[last] |= 128;
    bytes[ones_at] += 1;
    seal(&mut bytes);
    assert!(matches!(refusal(&bytes), CodecError::StrayOnes));
}

#[test]
fn another_name_or_identity_in_the_head_is_refused() {
    let bytes = snapshot();
    let mut changed = vec![label(); 2];
    changed[0].filter_name = "registered-emaik".to_owned();
    changed[1].filter_id[15] ^= 1;
    for label in changed {
        let other = snapshot_of(&label, &filter());
        let words_at = words_at(&bytes);
        let mixed = [&other[..words_at], &bytes[words_at..]].concat();
        assert!(matches!(refusal(&mixed), CodecError::NotAuthentic));
    }
}

#[test]
fn another_key_is_refused_and_told_apart_where_it_can_be() {
    let refused = read(&*snapshot(), other_key(), LIMIT).unwrap_err();
    assert!(matches!(refused, CodecError::OtherKey { .. }));
    // Whoever writes the public identifier of the right key into it has not the key.
    let forged = BloomFilter::new(*filter().sizing(), other_key()).unwrap();
    let mut bytes = snapshot_of(&label(), &forged);
    let id = other_key().id().0;
    let id_at = bytes.windows(16).position(|place| place == id).unwrap();
    bytes[id_at..id_at + 16].copy_from_slice(&key().id().0);
    assert!(matches!(refusal(&bytes), CodecError::NotAuthentic));
}

#[test]
fn canonical_bytes_of_another_profile_are_refused_and_their_head_is_shown() {
    let identity = label().profile;
    let (name, version) = (identity.name.clone(), identity.version);
    for profile in [
        ProfileIdentity {
            version: version + 1,
            ..identity.clone()
        },
        ProfileIdentity {
            name: format!("{name}s"),
            ..identity.clone()
        },
        ProfileIdentity {
            options: 8,
            ..identity
        },
    ] {
        let label = SnapshotLabel {
            profile: profile.clone(),
            ..label()
        };
        let bytes = snapshot_of(&label, &filter());
        assert!(matches!(refusal(&bytes), CodecError::OtherProfile { .. }));
        let head = read_head(&*bytes, LIMIT).unwrap();
        assert_eq!(head.label.profile, profile);
    }
}

#[test]
fn another_version_of_the_format_and_what_is_no_snapshot_are_refused() {
    let mut bytes = snapshot();
    bytes[8] = 1;
    assert!(matches!(
        refusal(&bytes),
        CodecError::OtherVersion { found: 1 }
    ));
    assert!(matches!(refusal(&[0; 1_000]), CodecError::NotASnapshot));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(read_all(&bytes).is_err());
        let prefixed = [&MAGIC[..], &VERSION.to_le_bytes(), &[0, 1, 0, 0], &bytes].concat();
        prop_assert!(read_all(&prefixed).is_err());
    }

    #[test]
    fn arbitrary_changes_of_a_snapshot_are_refused_even_under_a_right_mac_or_read_as_written(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        let mut bytes = snapshot();
        for (index, byte) in changes {
            let length = bytes.len();
            bytes[index.index(length)] = byte;
        }
        seal(&mut bytes);
        if let Ok((head, found)) = read_all(&bytes) {
            prop_assert_eq!(found.statistics().ones, found.bits().recount());
            prop_assert_eq!(snapshot_of(&head.label, &found), bytes);
        }
    }
}
