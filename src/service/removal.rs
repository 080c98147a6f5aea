//! Removing an item.
//!
//! Bits cannot be cleared: another item may need them. A removal deletes the item's rows from the
//! store, durably, and the next generation is built without them. Until then the item may check
//! `maybe`; a check that asks for confirmation knows at once.
//!
//! A row that was digested under another form of the profile than today's (another version, other
//! options) may be missed: it stays, and the item stays `maybe`. That errs on the side that no one
//! gets in by.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Service;
use super::answers::RemoveAnswer;
use super::check::accept;
use super::confirm::Question;
use super::error::ServiceError;
use super::ingest::Position;
use super::watermark::Watermark;

impl Service {
    /// Removes an item, in every spelling that has its canonical bytes.
    ///
    /// # Errors
    /// When the name is out of form or unknown, the profile refuses the item, or the store does not
    /// take the removal.
    pub async fn remove(&self, filter: &str, item: &str) -> Result<RemoveAnswer, ServiceError> {
        let hosted = self.hosted_or_asked_for(filter).await?;
        let canonical = accept(&hosted, item, None)?;
        let generation = super::generation_of(&hosted)?;
        let removal = self.store.remove(generation.filter, &canonical.bytes).await;
        let removal = removal.map_err(|error| {
            tracing::warn!(%error, "a removal was not acknowledged");
            crate::telemetry::record_store_error();
            ServiceError::StoreUnavailable(Some(Arc::new(error)))
        })?;
        let Some(removal) = removal else {
            let generations = hosted.generations();
            generations.for_each(|generation| generation.filter_was_deleted());
            return Err(ServiceError::UnknownFilter);
        };
        if removal.rows > 0 {
            self.rows_were_forgotten.store(true, Ordering::Relaxed);
        }
        let question = Question {
            item,
            canonical: &canonical.bytes,
            issued_at: None,
            min_watermark: None,
        };
        Ok(RemoveAnswer {
            removed: removal.rows > 0,
            still_in_source: self.may_be_in_source(&hosted, question).await,
            watermark: Watermark(Position {
                timeline: removal.timeline,
                place: removal.place,
            }),
        })
    }
}
