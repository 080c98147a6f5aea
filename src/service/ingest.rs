//! The way of an add: bits first, then the store, then the answer.
//!
//! Invariants:
//!
//! * an add is answered only after it is durable in the store and set in every generation of its
//!   filter, also in one whose building began while it was written;
//! * the writer's own task does both, so that a caller who hangs up changes nothing;
//! * requests that wait together share one commit; each is written whole or not at all;
//! * what waits is bounded, in bytes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::cursor::Timeline;
use super::error::ServiceError;
use super::ports::{FilterId, NewRow, Place, Store, StoreError};
use super::registry::{Entries, Registry};

/// What may wait for the store, of all requests together, in KiB.
const MAX_WAITING_KIB: u32 = 64 * 1024;
/// What a row takes beside its item and its canonical bytes.
const ROW_OVERHEAD_BYTES: usize = 128;
/// Requests that may wait for the store.
const MAX_WAITING_REQUESTS: usize = 8_192;
/// A commit takes requests until it has so many rows.
const ROWS_PER_COMMIT: usize = 10_000;
/// How long one commit may take before its adds are given up as not acknowledged.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a write stands in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// What the place counts within.
    pub timeline: Timeline,
    /// The place of the commit.
    pub place: Place,
}

/// What an add gets back.
pub type Written = oneshot::Receiver<Result<Position, ServiceError>>;

struct AddRequest {
    filter: FilterId,
    rows: Vec<NewRow>,
    answer: oneshot::Sender<Result<Position, ServiceError>>,
    _waiting: OwnedSemaphorePermit,
}

/// Where adds are handed in.
pub struct Ingest {
    requests: mpsc::Sender<AddRequest>,
    waiting_kib: Arc<Semaphore>,
}

/// The writer of one store.
pub struct Writer {
    requests: mpsc::Receiver<AddRequest>,
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
}

/// The two ends of the way. Nothing moves until [`Writer::run`] does.
#[must_use]
pub fn ingest(store: Arc<dyn Store>, registry: Arc<Registry>) -> (Ingest, Writer) {
    let (sender, requests) = mpsc::channel(MAX_WAITING_REQUESTS);
    let ingest = Ingest {
        requests: sender,
        waiting_kib: Arc::new(Semaphore::new(MAX_WAITING_KIB as usize)),
    };
    let writer = Writer {
        requests,
        store,
        registry,
    };
    (ingest, writer)
}

impl Ingest {
    /// Hands in the rows of one request, all of one filter, and waits until they are durable.
    ///
    /// # Errors
    /// [`ServiceError::TooManyAdds`] at once when too much is waiting already;
    /// [`ServiceError::UnknownFilter`] when the filter was deleted;
    /// [`ServiceError::StoreUnavailable`] when the store did not take them.
    pub async fn write(
        &self,
        filter: FilterId,
        rows: Vec<NewRow>,
    ) -> Result<Position, ServiceError> {
        let waiting = Arc::clone(&self.waiting_kib)
            .try_acquire_many_owned(permits(&rows))
            .map_err(|_| ServiceError::TooManyAdds)?;
        answered(self.hand_in(filter, rows, waiting).await?).await
    }

    /// The same for a stream of requests: waits for room, and gives the answer to wait for.
    ///
    /// # Errors
    /// [`ServiceError::StoreUnavailable`] when the writer has ended.
    pub async fn enqueue(
        &self,
        filter: FilterId,
        rows: Vec<NewRow>,
    ) -> Result<Written, ServiceError> {
        let waiting = Arc::clone(&self.waiting_kib)
            .acquire_many_owned(permits(&rows))
            .await
            .map_err(|_| ServiceError::StoreUnavailable(None))?;
        self.hand_in(filter, rows, waiting).await
    }

    async fn hand_in(
        &self,
        filter: FilterId,
        rows: Vec<NewRow>,
        waiting: OwnedSemaphorePermit,
    ) -> Result<Written, ServiceError> {
        let (answer, written) = oneshot::channel();
        let request = AddRequest {
            filter,
            rows,
            answer,
            _waiting: waiting,
        };
        self.requests
            .send(request)
            .await
            .map_err(|_| ServiceError::StoreUnavailable(None))?;
        Ok(written)
    }
}

/// Waits for the writer's answer.
///
/// # Errors
/// What the writer said, or [`ServiceError::StoreUnavailable`] when it ended without a word.
pub async fn answered(written: Written) -> Result<Position, ServiceError> {
    written
        .await
        .unwrap_or(Err(ServiceError::StoreUnavailable(None)))
}

/// KiB that the rows take in memory. A request larger than the bound waits until it is alone.
fn permits(rows: &[NewRow]) -> u32 {
    let kib = rows.iter().map(row_bytes).sum::<usize>() / 1024 + 1;
    u32::try_from(kib)
        .unwrap_or(MAX_WAITING_KIB)
        .min(MAX_WAITING_KIB)
}

/// Bytes that a row takes in memory.
pub(super) fn row_bytes(row: &NewRow) -> usize {
    row.item.len() + row.canonical.len() + ROW_OVERHEAD_BYTES
}

impl Writer {
    /// Writes until cancelled, and then what waits already.
    pub async fn run(mut self, cancelled: CancellationToken) {
        let mut group = Vec::new();
        loop {
            let received = tokio::select! {
                () = cancelled.cancelled(), if !self.requests.is_closed() => {
                    self.requests.close();
                    continue;
                }
                received = self.requests.recv() => received,
            };
            let Some(first) = received else { return };
            let mut rows_in_group = first.rows.len();
            group.push(first);
            while rows_in_group < ROWS_PER_COMMIT
                && let Ok(next) = self.requests.try_recv()
            {
                rows_in_group += next.rows.len();
                group.push(next);
            }
            self.commit(&mut group).await;
        }
    }

    async fn commit(&self, group: &mut Vec<AddRequest>) {
        let mut rows = Vec::with_capacity(group.iter().map(|request| request.rows.len()).sum());
        for request in group.iter_mut() {
            rows.append(&mut request.rows);
        }
        let before = self.registry.all();
        set_everywhere(&before, &rows);
        let outcome = match tokio::time::timeout(COMMIT_TIMEOUT, self.store.add(&rows)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(StoreError::Unreachable {
                what: "the store".to_owned(),
                detail: format!("no answer to a commit within {COMMIT_TIMEOUT:?}"),
            }),
        };
        match outcome {
            Ok(receipt) => {
                // A generation that came in meanwhile may have taken its cut before the commit. One
                // that comes in from here on takes it after, and finds the rows in the store.
                let after = self.registry.all();
                if !Arc::ptr_eq(&before, &after) {
                    set_everywhere(&after, &rows);
                }
                if let Some(cursor) = receipt.cursor.map(Arc::new) {
                    let generations = after.filters().flat_map(|hosted| hosted.generations());
                    generations.for_each(|generation| generation.advance(&cursor));
                }
                for request in group.drain(..) {
                    let answer = if receipt.deleted.contains(&request.filter) {
                        if let Some(hosted) = after.of(request.filter) {
                            let generations = hosted.generations();
                            generations.for_each(|generation| generation.filter_was_deleted());
                        }
                        Err(ServiceError::UnknownFilter)
                    } else {
                        Ok(Position {
                            timeline: receipt.timeline,
                            place: receipt.place,
                        })
                    };
                    // A caller who hung up needs no answer.
                    let _ = request.answer.send(answer);
                }
            }
            Err(error) => {
                tracing::warn!(%error, requests = group.len(), "adds were not acknowledged");
                crate::telemetry::record_store_error();
                let error = Arc::new(error);
                for request in group.drain(..) {
                    let answer = Err(ServiceError::StoreUnavailable(Some(Arc::clone(&error))));
                    let _ = request.answer.send(answer);
                }
            }
        }
    }
}

/// Sets rows in every generation of their filters.
fn set_everywhere(entries: &Entries, rows: &[NewRow]) {
    for rows in rows.chunk_by(|one, next| one.filter == next.filter) {
        let Some(hosted) = rows.first().and_then(|row| entries.of(row.filter)) else {
            continue;
        };
        for generation in hosted.generations() {
            let canonicals = rows.iter().map(|row| &row.canonical);
            generation.bloom.add_batch(canonicals);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::answers::Wait;
    use crate::service::stand_in::{StandIn, service_on};
    use crate::service::terms::Terms;

    #[tokio::test]
    async fn what_is_acknowledged_is_set_in_a_generation_that_came_in_during_the_commit() {
        let store = Arc::new(StandIn::default());
        let (service, writer) = service_on(&store).await;
        assert!(store.rebuilds.set(Arc::clone(&service)).is_ok());
        let stop = CancellationToken::new();
        let writing = tokio::spawn(writer.run(stop.clone()));
        let added = service.add("f", "added", Terms::default(), Wait::Local);
        added.await.unwrap();
        let hosted = service.registry.get("f").unwrap();
        assert!(hosted.building.is_some());
        for generation in hosted.generations() {
            assert!(generation.bloom.check(b"added"), "{}", generation.number);
        }
        stop.cancel();
        writing.await.unwrap();
    }
}
