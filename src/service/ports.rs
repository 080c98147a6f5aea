//! The ports: what the service needs of the world, as traits that the adapters implement.
//!
//! Invariants an implementation holds:
//!
//! * [`Store::add`] returns only after the rows are durable, and writes all of them or none;
//! * [`Store::load`] and [`Source::load`] give every row of one consistent cut to the sink, or
//!   end with an error: a short stream is an error, never a short set; so does
//!   [`Source::poll`] with what was committed since its cursor;
//! * [`Store::poll`] gives every row that was committed since the cursor it is handed, whoever
//!   committed it, or an error: it never passes a row over as one of this process' own;
//! * no error carries an item, a password or a key.
//!
//! This module must not know SQL, files, HTTP, or which store is behind a trait.

use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::cursor::{Cursor, Timeline};
use super::declaration::{Declaration, DeclaredBy, FilterName};
use super::terms::{Revoked, Terms};

/// The identity of a filter: what rows, cursors and watermarks point to.
///
/// A name that is deleted and declared again gets a new one, so that nothing of the old filter
/// can reach the new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilterId(pub Uuid);

/// The identity of a store: made with its first migration and kept in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreIdentity(pub Uuid);

/// The place of an add in its store: a transaction id (Postgres) or a commit number (SQLite).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub u64);

/// A filter as the store records it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredFilter {
    /// The identity that its rows point to.
    pub id: FilterId,
    /// Its name.
    pub name: FilterName,
    /// As last declared.
    pub declaration: Declaration,
    /// The version of the profile in the program that declared it.
    pub profile_version: u32,
    /// Who declared it last.
    pub declared_by: DeclaredBy,
    /// Rows that were removed, or deleted past their expiry, since it was made.
    pub forgotten: u64,
}

/// One item on its way into the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRow {
    /// The filter that it belongs to.
    pub filter: FilterId,
    /// The item as it came.
    pub item: Box<[u8]>,
    /// The item's canonical bytes under the filter's profile.
    pub canonical: Box<[u8]>,
    /// The version of the profile that made `canonical`.
    pub profile_version: u32,
    /// Until when it is kept, and which of its tokens are revoked.
    pub terms: Terms,
}

/// What a committed [`Store::add`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddReceipt {
    /// What the place counts within.
    pub timeline: Timeline,
    /// The place of this commit in the store.
    pub place: Place,
    /// The cursor right behind this commit, where nobody but this process writes to the store.
    pub cursor: Option<Cursor>,
    /// Filters that were deleted in the meantime: their rows were not written.
    pub deleted: Vec<FilterId>,
}

/// What a committed [`Store::remove`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removal {
    /// What the place counts within.
    pub timeline: Timeline,
    /// The place of this commit in the store.
    pub place: Place,
    /// Rows that were there and are not any more.
    pub rows: u64,
}

/// What one part of the deletion of expired rows has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pruned {
    /// Rows that were deleted.
    pub rows: u64,
    /// Whether more may be left.
    pub more: bool,
}

/// Whether an item is there, as those can tell that were asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// Which of its tokens are revoked by what was found; none where nothing was found.
    pub found: Option<Revoked>,
    /// Whether nothing can be there beside it.
    pub is_all: bool,
}

impl Presence {
    /// Nothing was found, and it may be there all the same.
    pub const UNSETTLED: Self = Self {
        found: None,
        is_all: false,
    };

    /// What two can tell that were asked.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self {
            found: self.found.max(other.found),
            is_all: self.is_all && other.is_all,
        }
    }

    /// Whether the item is there at all; none where that is not settled.
    #[must_use]
    pub fn is_there(self) -> Option<bool> {
        match self.found {
            Some(_) => Some(true),
            None => self.is_all.then_some(false),
        }
    }

    /// Whether the item is there for a token that was issued at this time; none where that is not
    /// settled.
    #[must_use]
    pub fn is_revoked(self, issued_at: Option<Timestamp>) -> Option<bool> {
        let by_what_was_found = self
            .found
            .map_or(Some(false), |found| found.includes(issued_at));
        // What was not found may be there for more.
        by_what_was_found.filter(|is_revoked| *is_revoked || self.is_all)
    }
}

/// What the store says of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookUp {
    /// Whether it is there, and for which of its tokens.
    pub presence: Presence,
    /// The moment that this is true of.
    pub as_of: Cursor,
}

/// A row of a source that may be the item that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// As it lies in the source.
    pub item: Box<[u8]>,
    /// When it may be forgotten; none means never.
    pub expires_at: Option<Timestamp>,
}

/// What a source has for one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// Its rows, a bounded number.
    pub rows: Vec<Candidate>,
    /// Whether nothing can be there beside them: the source does not lag behind another server, and
    /// no bound was met.
    pub are_all: bool,
    /// What the database's clock says.
    pub database_now: Timestamp,
}

/// Takes the rows of one load, in no particular order.
pub trait RowSink: Send {
    /// Called once, before the first row: how many rows the cut holds, and what the database's
    /// clock says at the cut.
    fn begin(&mut self, rows_expected: u64, database_now: Timestamp);

    /// One row. `item` is none for SQL NULL. The bytes need be no UTF-8.
    fn row(&mut self, item: Option<&[u8]>, expires_at: Option<Timestamp>);
}

/// Takes what a poll brings, in no particular order.
pub trait ChangeSink: Send {
    /// A row that was written since the cursor: new, or added again.
    fn change(&mut self, filter: FilterId, item: &[u8]);
}

/// What a poll tells beside the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polled {
    /// Up to where the store is followed now.
    pub cursor: Cursor,
    /// Counts the filters that were ever declared, changed or deleted: another number than last
    /// time means that [`Store::filters`] has something new to tell.
    pub declarations: u64,
}

/// How far another process on the same store says that it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Drawn at random by each process at its start.
    pub id: Uuid,
    /// Rises with every poll of that process; 0 where its last report was lost.
    pub reports: i64,
    /// How long it may say `definitely-not` after its last poll.
    pub max_staleness: Duration,
    /// What every filter of it that may say `definitely-not` has followed; none while it follows
    /// nothing yet.
    pub cursor: Option<Cursor>,
}

/// The durable record of what was added through the API. Any number of processes may share one.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Connects and migrates. Called until it succeeds; after that, again only when
    /// [`Store::poll`] said that the cursor is void.
    async fn open(&self) -> Result<StoreIdentity, StoreError>;

    /// Every filter that the store records.
    async fn filters(&self) -> Result<Vec<StoredFilter>, StoreError>;

    /// Records a declaration under its name: makes the filter, or replaces the declaration of
    /// the one that is there. The identity of a filter that is there stays. A PUT replaces nothing:
    /// it gives none where the filter is there and declared otherwise.
    async fn declare(
        &self,
        name: &FilterName,
        declaration: &Declaration,
        declared_by: DeclaredBy,
    ) -> Result<Option<StoredFilter>, StoreError>;

    /// Deletes a filter; false when it was not there. No row is added to it from then on, and the
    /// rows that it has are left to [`Store::purge`]: there may be a thousand million of them.
    async fn delete(&self, filter: FilterId) -> Result<bool, StoreError>;

    /// Deletes some rows of deleted filters, few enough that nobody waits for it; false when none
    /// are left.
    async fn purge(&self) -> Result<bool, StoreError>;

    /// Makes the rows durable in one commit. For a row that is there the terms are
    /// [joined](Terms::joined). Rows may name several filters, and the same item more than once. Times
    /// are kept in whole microseconds at least, upwards.
    async fn add(&self, rows: &[NewRow]) -> Result<AddReceipt, StoreError>;

    /// Deletes the rows of a filter whose canonical bytes, digested as they were added, are these, and
    /// counts them into what it has forgotten, in one durable commit. None when there is no such
    /// filter.
    async fn remove(
        &self,
        filter: FilterId,
        canonical: &[u8],
    ) -> Result<Option<Removal>, StoreError>;

    /// Deletes some rows that have expired longer ago than `leeway` by the database's clock, and counts
    /// them into what their filters have forgotten, in one commit. It waits for nobody: rows that
    /// are being added again are left.
    async fn prune(&self, leeway: SignedDuration) -> Result<Pruned, StoreError>;

    /// Looks for the rows of a filter with these canonical bytes that have not expired longer ago than
    /// `leeway` by the database's clock; of several the one counts that revokes most. That they are all
    /// is said only where every row of the filter was digested as `declaration` has it, where the filter
    /// is still declared so, and where whatever was acknowledged is seen.
    async fn look_up(
        &self,
        filter: FilterId,
        declaration: &Declaration,
        canonical: &[u8],
        leeway: SignedDuration,
    ) -> Result<LookUp, StoreError>;

    /// Streams the rows of a filter as of one cut: all of them, or those written since a cursor.
    /// Gives the cursor of the cut.
    ///
    /// # Errors
    /// [`StoreError::CursorVoid`] when `since` says nothing about this store any more.
    async fn load(
        &self,
        filter: FilterId,
        since: Option<&Cursor>,
        sink: &mut dyn RowSink,
    ) -> Result<Cursor, StoreError>;

    /// Gives the rows of all filters that were written since `after`, and the cursor of the
    /// moment. Without `after` it gives no rows: following begins at this moment. It also tells
    /// other processes that this one has followed up to `after` ([`Store::replicas`]).
    ///
    /// # Errors
    /// [`StoreError::CursorVoid`] when the store may have lost or reused places since `after`.
    async fn poll(
        &self,
        after: Option<&Cursor>,
        sink: &mut dyn ChangeSink,
    ) -> Result<Polled, StoreError>;

    /// Waits for a hint that a poll would bring something. Hints may be missing or in vain. It
    /// gives up its wait after an error, too.
    async fn hint(&self);

    /// What the other processes on this store have reported.
    async fn replicas(&self) -> Result<Vec<Replica>, StoreError>;

    /// Takes back what a process has reported that is gone without a word.
    async fn forget_replica(&self, replica: Uuid) -> Result<(), StoreError>;

    /// Lets go of the store, and tells the other processes that this one is gone.
    async fn close(&self);
}

/// Ties the store to what this process keeps on disk.
pub trait StoreTie: Send + Sync + 'static {
    /// Called with the identity of the store that was opened. Remembers the first, durably, and
    /// refuses any other.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for another store, with the remedy; [`StoreError::Failed`] when it
    /// cannot be remembered.
    fn tie(&self, identity: StoreIdentity) -> Result<(), StoreError>;
}

/// A query on the user's own database that feeds a filter.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// Looks at the query's columns without reading rows.
    async fn examine(&self) -> Result<(), StoreError>;

    /// Streams the rows of the query, as of one cut, and gives the cursor of that cut. None where
    /// the database records no changes of it: then only the next load tells them.
    async fn load(&self, sink: &mut dyn RowSink) -> Result<Option<Cursor>, StoreError>;

    /// Streams what was changed since `after`, which came from [`Source::load`] or from here, and
    /// gives the cursor of this moment. [`StoreError::CursorVoid`] before any row was given when
    /// `after` does not hold any more.
    async fn poll(&self, after: &Cursor, sink: &mut dyn RowSink) -> Result<Cursor, StoreError>;

    /// Deletes some records of changes that are older than `retention`; false when none are left.
    /// A cursor from before what was deleted is void.
    async fn prune(&self, retention: Duration) -> Result<bool, StoreError>;
    /// Asks for the rows that may be one item, for each of its spellings, as of one cut. None where the
    /// source has no query for that. What is given is to be compared by canonical bytes.
    async fn look_up(&self, spellings: &[String]) -> Result<Option<Vec<Candidates>>, StoreError>;

    /// Some rows of the source, few, whichever come first: to try on them whether
    /// [`Source::look_up`] finds what is there.
    async fn sample(&self) -> Result<Vec<Candidate>, StoreError>;
}

/// Why a store or a source did not do what it was asked.
///
/// The messages name hosts, databases, relations and columns; never an item or a secret.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or the connection broke: trying again may help.
    #[error("{what} cannot be reached: {detail}")]
    Unreachable {
        /// Which store or source.
        what: String,
        /// What happened.
        detail: String,
    },
    /// It was reached and refuses us as we are configured: trying again will not help.
    #[error("{what} refuses this configuration: {detail}")]
    Refused {
        /// Which store or source.
        what: String,
        /// What was found, and the remedy.
        detail: String,
    },
    /// What was followed may have lost or reused places: what was known of it may lack something.
    #[error("{what} has to be loaded in full: {detail}")]
    CursorVoid {
        /// Which store or source.
        what: String,
        /// What happened.
        detail: String,
    },
    /// It was reached, and a statement failed.
    #[error("{what} failed: {detail}")]
    Failed {
        /// Which store or source.
        what: String,
        /// What failed, with the SQLSTATE where there is one.
        detail: String,
    },
    /// A load did not bring the rows that its cut holds.
    #[error("{what} gave an incomplete set: expected {expected} rows, found {found}")]
    Incomplete {
        /// Which store or source.
        what: String,
        /// Rows counted in the cut.
        expected: u64,
        /// Rows that arrived.
        found: u64,
    },
}

/// A moment by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since an arbitrary start; never runs backwards and goes on while the machine
    /// is suspended.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970 by the wall clock, which may be set at any time.
    pub wall_ms: i64,
}

/// Time, as the service needs it.
pub trait Clock: Send + Sync + 'static {
    /// Now, by both clocks. Called for every check: nanoseconds, not microseconds.
    fn now(&self) -> Moment;
}
