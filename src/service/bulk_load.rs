//! A bulk load: a stream of items that becomes durable part by part.
//!
//! Invariants: what is counted as accepted is durable and set, and is a prefix of the stream; after
//! a part that the store did not take nothing more is written. Memory is bounded by two parts (one
//! that fills while the other is being written) and by the number of bulk loads side by side.

use std::sync::Arc;

use tokio::sync::SemaphorePermit;

use super::answers::BulkLoadAnswer;
use super::error::ServiceError;
use super::ingest::{Position, Written, answered, row_bytes};
use super::ports::NewRow;
use super::registry::Hosted;
use super::terms::Terms;
use super::watermark::Watermark;
use super::{Service, accept, generation_of, new_row};
use crate::filter::profile::ItemError;
use crate::telemetry::Road;

/// Items in one part: enough that the commit is not what it costs.
const PART_ITEMS: usize = 2_000;
/// A part of large items ends earlier, at so many bytes.
const PART_BYTES: usize = 1024 * 1024;
/// Bulk loads side by side.
pub(super) const BULK_LOADS_AT_ONCE: usize = 32;

/// A bulk load under way.
pub struct BulkLoad<'s> {
    service: &'s Service,
    hosted: Arc<Hosted>,
    part: Vec<NewRow>,
    part_bytes: usize,
    in_flight: Option<(u64, Written)>,
    /// Where the last part stands that is durable.
    position: Option<Position>,
    accepted: u64,
    blank: u64,
    _place_among_loads: SemaphorePermit<'s>,
}

impl Service {
    /// Begins a bulk load into a filter. Nothing is written yet.
    ///
    /// # Errors
    /// When the name is out of form or unknown, the store was not reached yet, or too many bulk
    /// loads are under way.
    pub async fn bulk_load(&self, filter: &str) -> Result<BulkLoad<'_>, ServiceError> {
        let hosted = self.hosted_or_asked_for(filter).await?;
        generation_of(&hosted)?;
        let place_among_loads = self
            .bulk_loads
            .try_acquire()
            .map_err(|_| ServiceError::TooManyAdds)?;
        Ok(BulkLoad {
            service: self,
            hosted,
            part: Vec::new(),
            part_bytes: 0,
            in_flight: None,
            position: None,
            accepted: 0,
            blank: 0,
            _place_among_loads: place_among_loads,
        })
    }
}

impl BulkLoad<'_> {
    /// Takes one item; a blank one is counted and passed over. Waits while the store is behind.
    ///
    /// # Errors
    /// When the profile refuses the item, or the store did not take an earlier part. The load may
    /// be finished after the first, and tells what was accepted.
    pub async fn push(&mut self, item: &str, terms: Terms) -> Result<(), ServiceError> {
        let row = match accept(&self.hosted, item, None) {
            Ok(canonical) => new_row(generation_of(&self.hosted)?, item, &canonical, terms),
            Err(ServiceError::InvalidItem {
                error: ItemError::Blank,
                ..
            }) => {
                self.push_blank();
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.part_bytes += row_bytes(&row);
        self.part.push(row);
        if self.part.len() >= PART_ITEMS || self.part_bytes >= PART_BYTES {
            self.hand_in().await?;
        }
        Ok(())
    }

    /// Counts a blank line.
    pub fn push_blank(&mut self) {
        self.blank += 1;
    }

    /// Items that are durable and set so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Blank items so far.
    #[must_use]
    pub fn blank(&self) -> u64 {
        self.blank
    }

    /// Makes durable what was pushed, and says how far the load came.
    ///
    /// # Errors
    /// When the store did not take the last parts; those before it are durable all the same.
    pub async fn finish(&mut self) -> Result<BulkLoadAnswer, ServiceError> {
        if !self.part.is_empty() {
            self.hand_in().await?;
        }
        self.settle().await?;
        let generation = generation_of(&self.hosted)?;
        // Where nothing was written, any watermark of this store does.
        let position = self.position.unwrap_or_else(|| generation.position());
        Ok(BulkLoadAnswer {
            accepted: self.accepted,
            blank: self.blank,
            watermark: Watermark(position),
            estimated_fp_rate: generation.bloom.estimated_fp_rate(),
        })
    }

    /// Settles the part in flight and sends the next one on its way. Where that fails the next one
    /// is forgotten: were it written, `accepted` would count past a gap.
    async fn hand_in(&mut self) -> Result<(), ServiceError> {
        self.part_bytes = 0;
        let part = std::mem::take(&mut self.part);
        self.settle().await?;
        let items = part.len() as u64;
        let generation = generation_of(&self.hosted)?;
        let written = self.service.ingest.enqueue(generation.filter, part).await?;
        self.in_flight = Some((items, written));
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), ServiceError> {
        if let Some((items, written)) = self.in_flight.take() {
            self.position = Some(answered(written).await?);
            self.accepted += items;
            self.hosted.meters.added(Road::BulkLoad, items);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
