//! The port for snapshots: a generation's bits and how far they have followed what feeds them, kept
//! on disk.
//!
//! Invariants an implementation holds:
//!
//! * after [`SnapshotStore::save`] has failed the snapshot before it is there as it was, or, where
//!   only the last step failed, the new one in its place: never a part of one;
//! * [`SnapshotStore::restore`] gives bits only of a snapshot that is whole, authentic under the
//!   filter's key, and the one whose head was judged.
//!
//! This module must not know files or the bytes of a snapshot.

use jiff::Timestamp;
use uuid::Uuid;

use super::cursor::Cursor;
use super::declaration::FilterName;
use super::ports::{FilterId, StoreIdentity};
use crate::filter::bloom::BloomFilter;
use crate::filter::codec::{CodecError, SnapshotHead, SnapshotLabel, SourceLabel};
use crate::filter::hashing::{HashKey, KeyId};
use crate::filter::profile::Profile;
use crate::filter::sizing::Sizing;

/// What a snapshot is of, and how far it had followed what feeds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The filter.
    pub filter: FilterId,
    /// Its name.
    pub name: FilterName,
    /// What made the canonical bytes of its items.
    pub profile: Profile,
    /// What it was declared for. Its bits may be sized for more.
    pub declared: Sizing,
    /// The store that it follows.
    pub store: StoreIdentity,
    /// How far it had followed the store.
    pub cursor: Cursor,
    /// The sources that feed it, sorted by name.
    pub sources: Vec<SnapshotSource>,
    /// Whether it has bits of items that store and sources may have lost.
    pub keeps_unaccounted_bits: bool,
    /// When the saving began, by the wall clock, to the millisecond.
    pub taken_at: Timestamp,
    /// Rows that the store had forgotten before its bits were loaded: what was forgotten since is
    /// still in them.
    pub forgotten: u64,
}

/// How far a filter had followed one of its sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSource {
    /// The name of the source.
    pub name: String,
    /// How far; none where it is only ever loaded in full.
    pub cursor: Option<Cursor>,
}

/// What a snapshot that is there says of itself. It is to be judged, and not to be trusted before
/// [`SnapshotStore::restore`] has given the bits.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedSnapshot {
    /// What was saved.
    pub snapshot: Snapshot,
    /// What its bits are sized for. They take [`Sizing::memory_bytes`].
    pub sizing: Sizing,
    /// Which key its items are hashed under.
    pub key_id: KeyId,
}

/// Why a snapshot was not saved or not given. No message holds an item or a key.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// There is none of this filter.
    #[error("there is no snapshot of the filter {0}")]
    NotThere(Uuid),
    /// There was one that cannot be used, now or later. It has been set aside.
    #[error("the snapshot {what} does not fit and was set aside: {detail}")]
    DoesNotFit {
        /// Which file.
        what: String,
        /// What was expected, what was found, and what to do.
        detail: String,
    },
    /// It could not be written, read, set aside or removed. What was there is there still.
    #[error("the snapshot {what} cannot be {action}: {detail}")]
    Failed {
        /// Which file.
        what: String,
        /// `written`, `read` and so on.
        action: &'static str,
        /// What happened.
        detail: String,
    },
}

/// Keeps one snapshot of each filter.
///
/// Its methods block for as long as the disk takes, which for a large filter is seconds: call them
/// where blocking is allowed. They may be called from several threads at once.
pub trait SnapshotStore: Send + Sync + 'static {
    /// Saves the bits in place of the snapshot before, durably, and gives its length in bytes.
    /// The filter may be added to meanwhile: what was added before the call is in the snapshot.
    ///
    /// # Errors
    /// [`SnapshotError::Failed`].
    fn save(&self, snapshot: &Snapshot, bloom: &BloomFilter) -> Result<u64, SnapshotError>;

    /// The filters that there is a snapshot of, in no particular order.
    ///
    /// # Errors
    /// [`SnapshotError::Failed`].
    fn filters(&self) -> Result<Vec<FilterId>, SnapshotError>;

    /// What the snapshot of a filter says of itself, without a look at its bits. One that cannot
    /// be of the filter, or that this program does not know, is set aside.
    ///
    /// # Errors
    /// Any [`SnapshotError`].
    fn head(&self, filter: FilterId) -> Result<SavedSnapshot, SnapshotError>;

    /// Reads the bits of the snapshot that [`head`](Self::head) told of, into
    /// [`Sizing::memory_bytes`] of new memory. One that does not prove to be whole and authentic is
    /// set aside.
    ///
    /// # Errors
    /// Any [`SnapshotError`]; [`SnapshotError::Failed`] as well when another was saved since.
    fn restore(&self, saved: &SavedSnapshot, key: HashKey) -> Result<BloomFilter, SnapshotError>;

    /// Sets the snapshot of a filter aside, for whoever wants to know `why`. One is kept for each
    /// filter, the last. Nothing happens where there is none.
    ///
    /// # Errors
    /// [`SnapshotError::Failed`].
    fn set_aside(&self, filter: FilterId, why: &str) -> Result<(), SnapshotError>;

    /// Removes what there is, set aside or not, of every filter that is not among these.
    ///
    /// # Errors
    /// [`SnapshotError::Failed`] for the first that cannot be removed, after all were tried.
    fn retain(&self, filters: &[FilterId]) -> Result<(), SnapshotError>;
}

impl Snapshot {
    /// The same as the core writes it.
    #[must_use]
    pub fn to_label(&self) -> SnapshotLabel {
        SnapshotLabel {
            filter_id: self.filter.0.into_bytes(),
            filter_name: self.name.as_str().to_owned(),
            profile: self.profile.identity(),
            declared: self.declared,
            store_id: self.store.0.into_bytes(),
            cursor: self.cursor.encode(),
            sources: self
                .sources
                .iter()
                .map(|source| SourceLabel {
                    name: source.name.clone(),
                    cursor: source.cursor.as_ref().map(Cursor::encode),
                })
                .collect(),
            keeps_unaccounted_bits: self.keeps_unaccounted_bits,
            taken_at_unix_ms: self.taken_at.as_millisecond(),
            forgotten: self.forgotten,
        }
    }

    fn from_label(label: &SnapshotLabel) -> Result<Self, CodecError> {
        let profile = label
            .profile
            .profile()
            .ok_or_else(|| CodecError::OtherProfile {
                found: label.profile.to_string(),
            })?;
        let sources = label.sources.iter().map(|source| {
            Ok(SnapshotSource {
                name: source.name.clone(),
                cursor: source.cursor.as_deref().map(cursor).transpose()?,
            })
        });
        Ok(Self {
            filter: FilterId(Uuid::from_bytes(label.filter_id)),
            name: FilterName::parse(&label.filter_name)
                .ok_or_else(|| out_of_form("the name of the filter", "the name of a filter"))?,
            profile,
            declared: label.declared,
            store: StoreIdentity(Uuid::from_bytes(label.store_id)),
            cursor: cursor(&label.cursor)?,
            sources: sources.collect::<Result<_, CodecError>>()?,
            keeps_unaccounted_bits: label.keeps_unaccounted_bits,
            taken_at: Timestamp::from_millisecond(label.taken_at_unix_ms)
                .map_err(|_| out_of_form("when it was taken", "a moment"))?,
            forgotten: label.forgotten,
        })
    }
}

impl SavedSnapshot {
    /// What the head of a snapshot says.
    ///
    /// # Errors
    /// When it is of a profile that this program does not have, or the service cannot have
    /// written it.
    pub fn from_head(head: &SnapshotHead) -> Result<Self, CodecError> {
        Ok(Self {
            snapshot: Snapshot::from_label(&head.label)?,
            sizing: head.sizing,
            key_id: head.key_id,
        })
    }
}

fn cursor(bytes: &[u8]) -> Result<Cursor, CodecError> {
    Cursor::decode(bytes).ok_or_else(|| out_of_form("a cursor", "a place of a store"))
}

fn out_of_form(field: &'static str, expected: &str) -> CodecError {
    CodecError::Field {
        field,
        expected: expected.to_owned(),
        found: "something else".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cursor::Timeline;
    use super::super::ports::Place;
    use super::*;

    fn snapshot() -> Snapshot {
        let cursor = Cursor {
            timeline: Timeline([3; 16]),
            segment: 4,
            next: Place(90),
            in_progress: [Place(7), Place(80)].into(),
        };
        Snapshot {
            filter: FilterId(Uuid::from_u128(1)),
            name: FilterName::parse("revoked-jti").unwrap(),
            profile: Profile::Jti,
            declared: Sizing::new(1_000, 0.01).unwrap(),
            store: StoreIdentity(Uuid::from_u128(2)),
            cursor: cursor.clone(),
            sources: ["legacy", "main"]
                .into_iter()
                .zip([None, Some(cursor)])
                .map(|(name, cursor)| SnapshotSource {
                    name: name.to_owned(),
                    cursor,
                })
                .collect(),
            keeps_unaccounted_bits: true,
            taken_at: Timestamp::from_millisecond(1_700_000_000_123).unwrap(),
            forgotten: 12,
        }
    }

    #[test]
    fn what_is_written_on_a_snapshot_is_read_back() {
        let snapshot = snapshot();
        assert_eq!(
            Snapshot::from_label(&snapshot.to_label()).unwrap(),
            snapshot
        );
    }

    #[test]
    fn what_the_service_cannot_have_written_is_refused() {
        let label = snapshot().to_label();
        let mut changed = vec![label.clone(); 5];
        changed[0].filter_name = "Upper".to_owned();
        changed[1].cursor.pop();
        changed[2].sources[1].cursor = Some(Vec::new());
        changed[3].taken_at_unix_ms = i64::MAX;
        changed[4].profile.version += 1;
        for label in &changed {
            assert!(Snapshot::from_label(label).is_err(), "{label:?}");
        }
    }
}
