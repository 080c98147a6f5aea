//! Rebuilding: a new generation is built beside the one that answers, and takes its place.
//!
//! Growth, removal, expiry and an operator's wish are all the same rebuild. In order:
//!
//! 1. the memory of the new generation is reserved, or nothing happens;
//! 2. it is registered beside the old one: from here on adds and polls set items in both;
//! 3. only then it is loaded, from store and sources, by the lifecycle;
//! 4. when it is complete, and a poll has brought both to the same cursor, it takes the old one's
//!    place.
//!
//! Invariant: a generation takes another's place only when it has whatever that one has, save for
//! rows that were removed or have expired.

use std::sync::Arc;

use super::Service;
use super::answers::{Progress, RebuildAnswer};
use super::error::ServiceError;
use super::generation::Generation;
use super::ports::{Moment, StoredFilter};
use super::registry::{Building, Hosted};
use crate::filter::bloom::Statistics;
use crate::filter::sizing::Sizing;
use crate::telemetry::{self, RebuildCause, RebuildOutcome};

/// One part in so many, the estimate from the bits may be wrong: ten standard deviations at a
/// million items and a rate of 0.01.
const ERROR_DIVISOR: u64 = 100;

impl Service {
    /// Begins a rebuild of a filter, or finds one under way.
    ///
    /// # Errors
    /// When the name is out of form or unknown, the filter is not hosted yet, or there is no memory
    /// for two generations: the old one answers on then.
    pub async fn rebuild(&self, filter: &str) -> Result<RebuildAnswer, ServiceError> {
        let hosted = self.hosted_or_asked_for(filter).await?;
        let generation = super::generation_of(&hosted)?;
        self.begin_rebuild(&hosted, generation, RebuildCause::Operator)?;
        let hosted = self.hosted(filter)?;
        Ok(RebuildAnswer {
            state: hosted.state(self.clock.now()),
            progress: hosted.progress().unwrap_or_else(|| Progress {
                rows_done: 0,
                rows_expected: 0,
                phase: "waiting".to_owned(),
            }),
        })
    }

    /// Begins the rebuilds that are due.
    pub(super) fn rebuild_what_is_due(&self, now: Moment) {
        for hosted in self.registry.all().filters() {
            let Some(generation) = &hosted.generation else {
                continue;
            };
            if hosted.building.is_some() || !generation.was_complete() {
                continue;
            }
            let Some(cause) = self.due(hosted, generation, now) else {
                continue;
            };
            // An operator knows what was lost, and says so by asking.
            if !generation.keeps_unaccounted_bits() {
                // What is refused is logged and shown, and tried again with the next poll.
                let _ = self.begin_rebuild(hosted, generation, cause);
            }
        }
    }

    fn due(&self, hosted: &Hosted, generation: &Generation, now: Moment) -> Option<RebuildCause> {
        let estimate = generation.bloom.statistics().estimated_cardinality;
        let expired: u64 = generation.sources.iter().map(|of| of.expired_since()).sum();
        let forgotten = hosted.forgotten.saturating_sub(generation.forgotten_before) + expired;
        if is_over_capacity(&generation.bloom.statistics(), generation.bloom.sizing()) {
            Some(RebuildCause::Growth)
        } else if forgotten.saturating_mul(4) > estimate && forgotten > 0 {
            Some(RebuildCause::Forgotten)
        } else if generation.age(now)? >= self.settings.rebuild_interval {
            Some(RebuildCause::Schedule)
        } else {
            None
        }
    }

    fn begin_rebuild(
        &self,
        hosted: &Arc<Hosted>,
        current: &Arc<Generation>,
        cause: RebuildCause,
    ) -> Result<(), ServiceError> {
        if hosted.building.is_some() {
            return Ok(());
        }
        let stored = StoredFilter {
            id: current.filter,
            name: hosted.name.clone(),
            declaration: hosted.declaration.clone(),
            profile_version: hosted.declaration.profile.version(),
            declared_by: hosted.declared_by,
            forgotten: hosted.forgotten,
        };
        let sizing = next_sizing(&hosted.declaration.sizing, current);
        let number = current.number + 1;
        let built = self.empty_generation(&stored, &hosted.sources, number, sizing);
        let building = match built {
            Ok(building) => Arc::new(building),
            Err(error) => {
                self.refuse_rebuild(hosted, current, cause, &error);
                return Err(error);
            }
        };
        self.registry.change(current.filter, |hosted| {
            // Another may have come in between; one is enough.
            if hosted.building.is_none() {
                let generation = Arc::clone(&building);
                hosted.building = Some(Building { generation, cause });
                hosted.rebuild_refused = None;
            }
        });
        self.registry_changed.notify_one();
        let (filter, cause, capacity) = (&hosted.name, cause.as_str(), sizing.capacity());
        tracing::info!(%filter, cause, capacity, "rebuilding");
        Ok(())
    }

    fn refuse_rebuild(
        &self,
        hosted: &Hosted,
        current: &Generation,
        cause: RebuildCause,
        error: &ServiceError,
    ) {
        let (filter, refusal) = (&hosted.name, format!("a rebuild is refused: {error}"));
        // Tried again with every poll, it is told once.
        if hosted.rebuild_refused.is_none() {
            tracing::error!(%filter, cause = cause.as_str(), %error, "a rebuild is refused; the old bits answer on");
            telemetry::record_rebuild(filter.as_str(), cause, RebuildOutcome::Refused);
        }
        self.registry.change(current.filter, |hosted| {
            hosted.rebuild_refused = Some(refusal.clone());
        });
    }

    /// Lets the generations that are complete take their places. To be called right after a poll was
    /// applied: then both have the same cursor.
    pub(super) fn put_rebuilt_in_place(&self, now: Moment) {
        for hosted in self.registry.all().filters() {
            let (Some(old), Some(building)) = (&hosted.generation, &hosted.building) else {
                continue;
            };
            let new = &building.generation;
            if !new.was_complete() || new.cursor() != old.cursor() {
                continue;
            }
            new.note_completion(now);
            self.registry.change(new.filter, |hosted| {
                if let Some(building) = hosted.building.take() {
                    hosted.generation = Some(building.generation);
                }
            });
            let filter = hosted.name.as_str();
            telemetry::record_rebuild(filter, building.cause, RebuildOutcome::Done);
            self.snapshot_due.notify_one();
            tracing::info!(filter, generation = new.number, "rebuilt");
        }
    }

    /// Gives up what is being built: the store may have lost rows whose bits only the old generations
    /// have.
    pub(super) fn abandon_rebuilds(&self) {
        for hosted in self.registry.all().filters() {
            if let Some(building) = &hosted.building {
                let filter = building.generation.filter;
                self.registry
                    .change(filter, |hosted| hosted.building = None);
                tracing::warn!(filter = %hosted.name, "a rebuild is given up");
            }
        }
    }
}

/// Whether more items are in than the bits are sized for, past what the estimate may err: a filter
/// that is just full does not come and go.
pub(super) fn is_over_capacity(statistics: &Statistics, sizing: &Sizing) -> bool {
    let capacity = sizing.capacity();
    statistics.estimated_cardinality > capacity.saturating_add(capacity / ERROR_DIVISOR)
}

/// What the next generation is sized for: one and a half times what is there, where that is more
/// than the present one is sized for; else as declared, or as grown where what is there needs it.
fn next_sizing(declared: &Sizing, current: &Generation) -> Sizing {
    let present = current.bloom.sizing();
    let estimate = current.bloom.statistics().estimated_cardinality;
    if !is_over_capacity(&current.bloom.statistics(), declared) {
        return *declared;
    }
    if !is_over_capacity(&current.bloom.statistics(), present) {
        return *present;
    }
    let wanted = (estimate + estimate / 2).min(Sizing::MAX_CAPACITY);
    // Within the bounds: the capacity by the line above, and the rate since it was declared.
    Sizing::new(wanted, declared.false_positive_rate()).unwrap_or(*present)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::cursor::{Cursor, Timeline};
    use crate::service::ports::Place;
    use crate::service::stand_in::{StandIn, service_on};

    const NOW: Moment = Moment {
        monotonic_ms: 0,
        wall_ms: 0,
    };

    fn cursor(next: u64) -> Arc<Cursor> {
        Arc::new(Cursor {
            timeline: Timeline([1; 16]),
            segment: 0,
            next: Place(next),
            in_progress: Box::default(),
        })
    }

    #[tokio::test]
    async fn a_rebuilt_generation_takes_the_place_when_both_have_followed_as_far() {
        let (service, _writer) = service_on(&Arc::new(StandIn::default())).await;
        service.rebuild("f").await.unwrap();
        let hosted = service.registry.get("f").unwrap();
        let [old, new] = [0, 1].map(|at| hosted.generations().nth(at).unwrap().clone());
        let number = || {
            service.put_rebuilt_in_place(NOW);
            let hosted = service.registry.get("f").unwrap();
            hosted.generation.as_ref().unwrap().number
        };
        old.store_loaded(1, cursor(10), NOW, 0.1);
        assert_eq!(number(), 1, "the new one is not loaded");
        new.store_loaded(1, cursor(9), NOW, 0.1);
        assert_eq!(number(), 1, "the new one has not come as far");
        new.followed(1, &cursor(12), NOW);
        assert_eq!(
            number(),
            1,
            "who answers may have what nobody has told the new one"
        );
        old.followed(1, &cursor(12), NOW);
        assert_eq!(number(), 2);
    }
}
