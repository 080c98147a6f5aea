//! A store with transactions, whose every answer is cut into steps.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::task::Poll;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::{FILTER, HERE};
use crate::filter::profile::Profile;
use crate::service::cursor::Cursor;
use crate::service::declaration::{Declaration, DeclaredBy, FilterName};
use crate::service::ports::{
    AddReceipt, ChangeSink, FilterId, LookUp, NewRow, Place, Polled, Presence, Pruned, Removal,
    Replica, RowSink, Store, StoreError, StoreIdentity, StoredFilter,
};

/// A store with transactions, as far as following can tell.
#[derive(Default)]
struct Transactions {
    last: u64,
    running: BTreeSet<u64>,
    committed: Vec<(u64, Box<[u8]>)>,
}

impl Transactions {
    fn snapshot(&self) -> Cursor {
        Cursor {
            timeline: HERE,
            segment: 0,
            next: Place(self.last + 1),
            in_progress: self.running.iter().copied().map(Place).collect(),
        }
    }

    /// What `now` sees and `before` did not.
    fn seen(&self, now: &Cursor, before: Option<&Cursor>) -> Vec<Box<[u8]>> {
        let sees = |cursor: &Cursor, xid: u64| cursor.reaches(HERE, Place(xid));
        self.committed
            .iter()
            .filter(|(xid, _)| sees(now, *xid) && !before.is_some_and(|before| sees(before, *xid)))
            .map(|(_, item)| item.clone())
            .collect()
    }
}

/// The store of one filter, in steps.
#[derive(Default)]
pub(super) struct SteppingStore(Mutex<Transactions>);

/// Ends the present step.
pub(super) async fn step() {
    let mut has_ended = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_ended, true) {
            Poll::Ready(())
        } else {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

#[async_trait]
impl Store for SteppingStore {
    async fn open(&self) -> Result<StoreIdentity, StoreError> {
        Ok(StoreIdentity(Uuid::from_u128(2)))
    }

    async fn filters(&self) -> Result<Vec<StoredFilter>, StoreError> {
        Ok(vec![StoredFilter {
            id: FILTER,
            name: FilterName::parse("f").unwrap(),
            declaration: Declaration::new(Profile::Text, 100, 1e-9).unwrap(),
            profile_version: Profile::Text.version(),
            declared_by: DeclaredBy::Api,
            forgotten: 0,
        }])
    }

    async fn declare(
        &self,
        _: &FilterName,
        _: &Declaration,
        _: DeclaredBy,
    ) -> Result<Option<StoredFilter>, StoreError> {
        Ok(None)
    }

    async fn delete(&self, _: FilterId) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn purge(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn remove(&self, _: FilterId, _: &[u8]) -> Result<Option<Removal>, StoreError> {
        Ok(None)
    }

    async fn prune(&self, _: SignedDuration) -> Result<Pruned, StoreError> {
        Ok(Pruned {
            rows: 0,
            more: false,
        })
    }

    async fn look_up(
        &self,
        _: FilterId,
        _: &Declaration,
        _: &[u8],
        _: SignedDuration,
    ) -> Result<LookUp, StoreError> {
        Ok(LookUp {
            presence: Presence::UNSETTLED,
            as_of: self.0.lock().unwrap().snapshot(),
        })
    }

    async fn add(&self, rows: &[NewRow]) -> Result<AddReceipt, StoreError> {
        let xid = {
            let mut transactions = self.0.lock().unwrap();
            transactions.last += 1;
            let xid = transactions.last;
            transactions.running.insert(xid);
            xid
        };
        step().await;
        {
            let mut transactions = self.0.lock().unwrap();
            transactions.running.remove(&xid);
            let rows = rows.iter().map(|row| (xid, row.item.clone()));
            transactions.committed.extend(rows);
        }
        step().await;
        Ok(AddReceipt {
            timeline: HERE,
            place: Place(xid),
            cursor: None,
            deleted: Vec::new(),
        })
    }

    async fn load(
        &self,
        _: FilterId,
        since: Option<&Cursor>,
        sink: &mut dyn RowSink,
    ) -> Result<Cursor, StoreError> {
        let (cut, rows) = {
            let transactions = self.0.lock().unwrap();
            let cut = transactions.snapshot();
            let rows = transactions.seen(&cut, since);
            (cut, rows)
        };
        sink.begin(rows.len() as u64, Timestamp::UNIX_EPOCH);
        step().await;
        rows.iter().for_each(|row| sink.row(Some(row), None));
        step().await;
        Ok(cut)
    }

    async fn poll(
        &self,
        after: Option<&Cursor>,
        sink: &mut dyn ChangeSink,
    ) -> Result<Polled, StoreError> {
        let (cursor, rows) = {
            let transactions = self.0.lock().unwrap();
            let now = transactions.snapshot();
            let rows = after.map_or_else(Vec::new, |after| transactions.seen(&now, Some(after)));
            (now, rows)
        };
        step().await;
        rows.iter().for_each(|row| sink.change(FILTER, row));
        step().await;
        Ok(Polled {
            cursor,
            declarations: 0,
        })
    }

    async fn hint(&self) {
        std::future::pending().await
    }

    async fn replicas(&self) -> Result<Vec<Replica>, StoreError> {
        Ok(Vec::new())
    }

    async fn forget_replica(&self, _: Uuid) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) {}
}
