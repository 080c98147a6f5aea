//! From canonical bytes to probe positions, under a secret key.
//!
//! Invariants: the positions of an item depend on the key, its bytes, m and k alone, and are the
//! same in every process and on every machine; a key shows in no Debug output.
//! This module must not know what the bytes stand for.
//!
//! * The key: whoever knows how items are hashed can choose items that set bits at will or that
//!   collide with another's. A secret key for each filter takes that away.
//! * The hash: SipHash-1-3 with 128 bits (J.-P. Aumasson, D. J. Bernstein, *SipHash: a fast
//!   short-input PRF*, 2012), over the raw bytes: what [`std::hash::Hash`] feeds to a hasher is no
//!   stable format.
//! * The positions: double hashing (A. Kirsch, M. Mitzenmacher, *Less Hashing, Same Performance:
//!   Building a Better Bloom Filter*, 2006) in 64-bit arithmetic, with an odd step, so that the
//!   terms of one item are all different. Each term is mixed before it is scaled to [0, m).
//!
//! Why mixed: scaling looks at the high bits of a term. Unmixed, two items whose start and step
//! agree in about log2 m bits share all their probes; that adds about 2kn/m² to the rate, which at
//! capacity 1,000 is 5 times a rate of 1e-6. The growing increments of enhanced double hashing
//! (P. C. Dillinger, P. Manolios, 2004) are meant for that, but in 64 bits they are too small to
//! reach the high ones. Mixed, all 128 bits of the hash count.

use std::fmt;

use siphasher::sip128::SipHasher13;

/// Separates the keys of filters from whatever else is derived from a master key.
const FILTER_KEY_CONTEXT: &str = "bloomgate v1: hash key of a filter";

/// Separates the public identifier of a filter's key from whatever else is derived from it.
const KEY_ID_CONTEXT: &str = "bloomgate v1: public identifier of a filter's hash key";

/// Separates the key that authenticates a filter's snapshots from whatever else is derived.
const SNAPSHOT_MAC_CONTEXT: &str = "bloomgate v1: authentication of a filter's snapshot";

/// The same for the parts that a snapshot authenticates one by one.
const SNAPSHOT_SEGMENT_MAC_CONTEXT: &str =
    "bloomgate v1: authentication of a segment of a filter's snapshot";

/// 2^64 divided by the golden ratio, made odd (D. E. Knuth, *The Art of Computer Programming*,
/// volume 3, §6.4, multiplicative hashing).
const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

/// The secret of an installation, from which the key of each filter is derived.
#[derive(Clone)]
pub struct MasterKey([u8; Self::BYTES]);

impl MasterKey {
    /// Length, in bytes.
    pub const BYTES: usize = 32;

    /// Takes the key's bytes, which must come from a secure random generator.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The key of the filter with this identity (the 16 bytes of its UUID), by BLAKE3's key
    /// derivation: it tells nothing of the master key or of another filter's key.
    #[must_use]
    pub fn filter_key(&self, filter_id: &[u8; 16]) -> HashKey {
        let mut hasher = blake3::Hasher::new_derive_key(FILTER_KEY_CONTEXT);
        hasher.update(&self.0).update(filter_id);
        let mut key = [0; HashKey::BYTES];
        hasher.finalize_xof().fill(&mut key);
        HashKey(key)
    }
}

/// The secret key under which the items of one filter are hashed.
#[derive(Clone)]
pub struct HashKey([u8; Self::BYTES]);

impl HashKey {
    /// Length, in bytes.
    pub const BYTES: usize = 16;

    /// Takes the key's bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Which key this is, without telling anything of it.
    #[must_use]
    pub fn id(&self) -> KeyId {
        let derived = blake3::derive_key(KEY_ID_CONTEXT, &self.0);
        let (id, _) = derived.split_first_chunk().expect("16 of 32 bytes");
        KeyId(*id)
    }

    /// Authenticates what is fed to it as a snapshot of the filter with this key.
    pub(super) fn snapshot_mac(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&blake3::derive_key(SNAPSHOT_MAC_CONTEXT, &self.0))
    }

    /// Authenticates what is fed to it as a segment of such a snapshot, and as nothing else.
    pub(super) fn snapshot_segment_mac(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&blake3::derive_key(SNAPSHOT_SEGMENT_MAC_CONTEXT, &self.0))
    }

    /// Hashes an item's canonical bytes. O(length).
    #[must_use]
    pub fn hash(&self, canonical: &[u8]) -> ItemHash {
        let hash = SipHasher13::new_with_key(&self.0).hash(canonical);
        ItemHash {
            start: hash.h1,
            step: hash.h2 | 1,
        }
    }
}

/// Tells which [`HashKey`] something was made with. It is public: nobody can get from it to the
/// key, nor to anything else that is derived from the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId(pub [u8; Self::BYTES]);

impl KeyId {
    /// Length, in bytes.
    pub const BYTES: usize = 16;
}

impl fmt::Display for KeyId {
    /// As hexadecimal digits.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// The hash of one item under one key. It does for a filter of any m and k.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ItemHash {
    start: u64,
    /// Odd.
    step: u64,
}

impl ItemHash {
    /// The `hash_count` positions in [0, `bit_count`) that an item sets and a check reads. The
    /// same position may come twice.
    pub fn probes(self, bit_count: u64, hash_count: u32) -> impl Iterator<Item = u64> {
        (0..u64::from(hash_count)).map(move |index| {
            let term = self.start.wrapping_add(index.wrapping_mul(self.step));
            scale(mix(term), bit_count)
        })
    }
}

/// Lets every bit of `term` count in the high bits of the result; one to one.
fn mix(term: u64) -> u64 {
    (term ^ (term >> 32)).wrapping_mul(GOLDEN_RATIO)
}

/// Scales a 64-bit number to [0, `bit_count`): the high word of their product (D. Lemire, *Fast
/// Random Integer Generation in an Interval*, 2019). There is no division, and m may pass 2^32.
fn scale(mixed: u64, bit_count: u64) -> u64 {
    mixed.carrying_mul(bit_count, 0).1
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MasterKey(redacted)")
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HashKey(redacted)")
    }
}

impl fmt::Debug for ItemHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ItemHash(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::Hasher as _;

    use siphasher::sip128::Hasher128 as _;

    use super::*;

    const KEY: HashKey = HashKey([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    /// The positions come from an implementation of the whole path in another language. m is that
    /// of 1,000,000 items at 1 % and of 10^12 at 1e-10.
    #[test]
    fn positions_of_known_items_under_a_known_key_do_not_change() {
        let (small, large) = (9_585_059, 47_925_291_886_783);
        for (item, in_small, in_large) in [
            (
                "",
                [728_580, 1_107_204, 7_368_886, 891_389],
                [3_642_900_110_456, 5_536_023_873_019, 36_844_432_476_247],
            ),
            (
                "a",
                [8_972_158, 8_349_188, 853_545, 4_829_301],
                [44_860_788_114_837, 41_745_939_115_003, 4_267_727_306_159],
            ),
            (
                "ann@example.com",
                [1_819_316, 5_537_342, 1_901_075, 9_537_956],
                [9_096_582_782_127, 27_686_712_205_164, 9_505_378_464_279],
            ),
        ] {
            let hash = KEY.hash(item.as_bytes());
            assert!(hash.probes(small, 4).eq(in_small), "{item:?}");
            assert!(hash.probes(large, 3).eq(in_large), "{item:?}");
        }
    }

    #[test]
    fn the_hash_is_that_of_the_raw_bytes_without_any_framing() {
        let item = b"00000000-0000-4000-8000-000000000000";
        let mut hasher = SipHasher13::new_with_key(&KEY.0);
        hasher.write(&item[..5]);
        hasher.write(&item[5..]);
        let (whole, in_parts) = (KEY.hash(item), hasher.finish128());
        assert_eq!((whole.start, whole.step), (in_parts.h1, in_parts.h2 | 1));
    }

    #[test]
    fn the_terms_of_one_item_are_all_different() {
        // An even step with many twos would come back to its start, and a step of 0 never leave it.
        for number in 0..10_000_u32 {
            assert_eq!(KEY.hash(&number.to_le_bytes()).step % 2, 1);
        }
        let worst = ItemHash { start: 0, step: 1 };
        let positions: HashSet<_> = worst.probes(1 << 50, 34).collect();
        assert_eq!(positions.len(), 34);
    }

    #[test]
    fn every_position_is_below_the_bit_count() {
        for bit_count in [2, 3, 64, 9_586, u64::from(u32::MAX) + 2, 47_925_291_886_783] {
            for number in 0..2_000_u32 {
                let hash = KEY.hash(&number.to_le_bytes());
                assert!(
                    hash.probes(bit_count, 34)
                        .all(|position| position < bit_count)
                );
            }
        }
        let highest = scale(u64::MAX, 47_925_291_886_783);
        assert_eq!(highest, 47_925_291_886_782);
    }

    #[test]
    fn every_filter_has_a_key_of_its_own_and_keeps_it() {
        let master = MasterKey::from_bytes([1; MasterKey::BYTES]);
        let key = master.filter_key(&[2; 16]);
        assert_eq!(key.0, master.filter_key(&[2; 16]).0);
        assert_ne!(key.0, master.filter_key(&[3; 16]).0);
        let other = MasterKey::from_bytes([4; MasterKey::BYTES]);
        assert_ne!(key.0, other.filter_key(&[2; 16]).0);
        // By BLAKE3's own binding for another language.
        let expected = [
            93, 167, 84, 149, 75, 195, 216, 119, 23, 145, 77, 238, 144, 80, 205, 190,
        ];
        assert_eq!(key.0, expected);
    }

    #[test]
    fn the_public_identifier_of_a_key_is_its_own_and_no_part_of_what_is_secret() {
        let id = KEY.id();
        assert_eq!(id, KEY.clone().id());
        assert_ne!(id, HashKey([0; 16]).id());
        assert_ne!(id.0, KEY.0);
        let mac_key = blake3::derive_key(SNAPSHOT_MAC_CONTEXT, &KEY.0);
        assert_ne!(id.0, mac_key[..16]);
        // Of another implementation of BLAKE3; snapshots hold it.
        assert_eq!(id.to_string(), "1a6cb8c3a3aad1c1a444b83e106818f1");
    }

    #[test]
    fn debug_output_shows_no_key() {
        let master = MasterKey::from_bytes([7; MasterKey::BYTES]);
        let key = master.filter_key(&[2; 16]);
        let output = format!("{master:?} {key:?} {:?}", key.hash(b"item"));
        assert_eq!(
            output,
            "MasterKey(redacted) HashKey(redacted) ItemHash(redacted)"
        );
    }
}
