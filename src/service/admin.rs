//! Declaring, deleting and describing filters.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Service;
use super::answers::{Description, Progress, PutOutcome, Readiness, State};
use super::budget::Reservation;
use super::declaration::{Declaration, DeclaredBy, FilterName};
use super::error::ServiceError;
use super::feed::Feed;
use super::generation::{Generation, Parts};
use super::ports::{Moment, StoreError, StoredFilter};
use super::rebuild::is_over_capacity;
use super::registry::{ConfiguredFilter, ConfiguredSource, Hosted};
use crate::filter::bloom::{BloomFilter, Statistics};
use crate::filter::sizing::Sizing;
use crate::telemetry::FilterMeters;

/// How long a PUT waits for its filter to be live before it answers with the state as it is.
const FIRST_LOAD_PATIENCE: Duration = Duration::from_secs(5);

impl Hosted {
    /// An entry for the registry.
    #[must_use]
    pub fn new(
        stored: StoredFilter,
        sources: Arc<[ConfiguredSource]>,
        generation: Option<Arc<Generation>>,
    ) -> Self {
        Self {
            meters: Arc::new(FilterMeters::new(stored.name.as_str())),
            name: stored.name,
            declaration: stored.declaration,
            declared_by: stored.declared_by,
            sources,
            generation,
            building: None,
            outdated: None,
            rebuild_refused: None,
            forgotten: stored.forgotten,
            confirmations: Arc::default(),
        }
    }

    /// An entry for a configured filter whose store was not reached yet.
    #[must_use]
    pub fn waiting(configured: &ConfiguredFilter) -> Self {
        Self {
            meters: Arc::new(FilterMeters::new(configured.name.as_str())),
            name: configured.name.clone(),
            declaration: configured.declaration.clone(),
            declared_by: DeclaredBy::Config,
            sources: Arc::clone(&configured.sources),
            generation: None,
            building: None,
            outdated: None,
            rebuild_refused: None,
            forgotten: 0,
            confirmations: Arc::default(),
        }
    }

    /// Whether the store was found to have no such filter any more.
    pub(super) fn was_deleted(&self) -> bool {
        let generation = self.generation.as_ref();
        generation.is_some_and(|generation| generation.is_of_deleted_filter())
    }

    /// The load under way: of a generation that is being built, or of the one that answers.
    pub(super) fn progress(&self) -> Option<Progress> {
        let building = self.building.iter().map(|building| &building.generation);
        let mut newest_first = building.chain(&self.generation);
        newest_first.find_map(|generation| generation.progress())
    }

    pub(super) fn state(&self, now: Moment) -> State {
        let generation = self.generation.as_ref();
        let state = generation.map_or(State::Loading, |generation| generation.state(now));
        match state {
            State::Live if self.outdated.is_some() => State::Stale,
            State::Loading | State::Live | State::Stale => state,
        }
    }

    fn describe(&self, now: Moment) -> Description {
        let generation = self.generation.as_deref();
        // Its bits may have grown past what it was declared for.
        let sizing = generation.map_or(self.declaration.sizing, |generation| {
            *generation.bloom.sizing()
        });
        let statistics = generation.map_or_else(
            || Statistics::from_ones(&sizing, 0),
            |generation| generation.bloom.statistics(),
        );
        Description {
            filter: self.name.clone(),
            state: self.state(now),
            declaration: self.declaration.clone(),
            declared_by: self.declared_by,
            memory_bytes: generation.map_or(0, |generation| generation.bloom.memory_bytes()),
            capacity: sizing.capacity(),
            over_capacity: is_over_capacity(&statistics, &sizing),
            statistics,
            measured_fp_rate: self.confirmations.measured_fp_rate(),
            generation: generation.map_or(0, |generation| generation.number),
            as_of: generation.and_then(|generation| generation.store.followed.as_of()),
            staleness_seconds: generation.and_then(|generation| generation.staleness_seconds(now)),
            sources: generation.map_or_else(Vec::new, |generation| {
                let feeds = generation.sources.iter();
                feeds.map(|feed: &Feed| feed.describe(now)).collect()
            }),
            progress: self.progress(),
            problem: self
                .outdated
                .map(str::to_owned)
                .or_else(|| self.rebuild_refused.clone()),
        }
    }
}

impl Service {
    /// Describes every filter, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Description> {
        let now = self.clock.now();
        let entries = self.registry.all();
        entries
            .filters()
            .map(|hosted| hosted.describe(now))
            .collect()
    }

    /// Describes one filter.
    ///
    /// # Errors
    /// When the name is out of form or unknown, or the store has not told its filters yet.
    pub async fn describe(&self, filter: &str) -> Result<Description, ServiceError> {
        let hosted = self.hosted_or_asked_for(filter).await?;
        Ok(hosted.describe(self.clock.now()))
    }

    /// Whether traffic should come, and every filter's state.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let now = self.clock.now();
        let entries = self.registry.all();
        let complete = |hosted: &Hosted| {
            let generation = hosted.generation.as_ref();
            generation.is_some_and(|generation| generation.was_complete())
        };
        Readiness {
            ready: self.listed.as_of().is_some()
                && !self.draining.load(Ordering::Relaxed)
                && entries.filters().all(|hosted| complete(hosted)),
            filters: entries
                .filters()
                .map(|hosted| (hosted.name.clone(), hosted.state(now)))
                .collect(),
        }
    }

    /// From now on [`Service::readiness`] says no, so that traffic goes elsewhere.
    pub fn begin_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Makes a filter, or finds it declared the same already. A filter that is made is live when
    /// this returns, unless the store takes longer than a few seconds.
    ///
    /// # Errors
    /// When the name is out of form, the filter is declared otherwise, its bits are over the
    /// memory budget, or the store does not take the declaration.
    pub async fn put(
        &self,
        filter: &str,
        declaration: Declaration,
    ) -> Result<PutOutcome, ServiceError> {
        let name = FilterName::parse(filter).ok_or(ServiceError::InvalidFilterName)?;
        let generation = {
            let _one_at_a_time = self.declaring.lock().await;
            match self.hosted(filter) {
                Ok(hosted) => {
                    let there = Declaration {
                        sources: Vec::new(),
                        ..hosted.declaration.clone()
                    };
                    same_declaration(&there, &declaration)?;
                    return Ok(PutOutcome::SameAlready(hosted.describe(self.clock.now())));
                }
                Err(ServiceError::UnknownFilter) => {}
                Err(error) => return Err(error),
            }
            // One that the store has and nobody serves: the configuration declared it once, or a
            // caller hung up on its PUT.
            let recorded = self.store.filters().await.map_err(unavailable)?;
            if let Some(there) = recorded.iter().find(|stored| stored.name == name) {
                same_declaration(&there.declaration, &declaration)?;
            }
            // Before the store is told: a filter that does not fit is not made.
            let room = self.budget.reserve(declaration.sizing.memory_bytes())?;
            let declared = self.store.declare(&name, &declaration, DeclaredBy::Api);
            let Some(stored) = declared.await.map_err(unavailable)? else {
                // Another process was faster.
                return Err(ServiceError::DeclaredOtherwise {
                    what: "declaration",
                });
            };
            drop(room);
            let generation = Arc::new(self.first_generation(&stored, &[])?);
            let hosted = Hosted::new(stored, Arc::from([]), Some(Arc::clone(&generation)));
            self.registry.put(&[Arc::new(hosted)]);
            self.registry_changed.notify_one();
            generation
        };
        // Past the patience the description says `loading`, which is the truth.
        let _ = tokio::time::timeout(FIRST_LOAD_PATIENCE, generation.store_was_loaded()).await;
        tracing::info!(filter = %name, "filter declared through the API");
        Ok(PutOutcome::Made(self.describe(filter).await?))
    }

    /// Deletes a filter and its bits at once. Its rows are unreachable from then on and go in small
    /// parts behind it.
    ///
    /// # Errors
    /// When the name is out of form or unknown, the configuration declares it, or the store does
    /// not delete it.
    pub async fn delete(&self, filter: &str) -> Result<(), ServiceError> {
        let name = FilterName::parse(filter).ok_or(ServiceError::InvalidFilterName)?;
        let _one_at_a_time = self.declaring.lock().await;
        if self
            .configured
            .iter()
            .any(|configured| configured.name == name)
        {
            return Err(ServiceError::DeclaredByConfig);
        }
        // The store knows filters that are not hosted here: those that the configuration declared
        // once and does not any more.
        let stored = self.store.filters().await.map_err(unavailable)?;
        let found = stored.into_iter().find(|stored| stored.name == name);
        let was_hosted = self.registry.get(filter).is_some();
        if let Some(stored) = &found {
            self.store.delete(stored.id).await.map_err(unavailable)?;
            self.rows_to_purge.store(true, Ordering::Relaxed);
        }
        self.registry.retain(|hosted| hosted.name != name);
        self.registry_changed.notify_one();
        if found.is_none() && !was_hosted {
            return Err(ServiceError::UnknownFilter);
        }
        tracing::info!(filter = %name, "filter deleted through the API");
        Ok(())
    }

    /// The first generation of a filter in this process, its memory reserved.
    pub(super) fn first_generation(
        &self,
        stored: &StoredFilter,
        sources: &[ConfiguredSource],
    ) -> Result<Generation, ServiceError> {
        let sizing = stored.declaration.sizing;
        self.empty_generation(stored, sources, 1, sizing)
    }

    /// An empty generation of a filter, its memory reserved. The bits are for `sizing`, which may be
    /// more than was declared.
    pub(super) fn empty_generation(
        &self,
        stored: &StoredFilter,
        sources: &[ConfiguredSource],
        number: u64,
        sizing: Sizing,
    ) -> Result<Generation, ServiceError> {
        let reservation = self.budget.reserve(sizing.memory_bytes())?;
        let key = self.master_key.filter_key(stored.id.0.as_bytes());
        let bloom = BloomFilter::new(sizing, key).map_err(|_| ServiceError::OverMemoryBudget {
            needed_bytes: sizing.memory_bytes(),
            left_bytes: 0,
        })?;
        let parts = self.parts(stored, sources, number, bloom, reservation);
        Ok(Generation::new(parts))
    }

    /// What a generation of a filter is made of, around its bits.
    pub(super) fn parts(
        &self,
        stored: &StoredFilter,
        sources: &[ConfiguredSource],
        number: u64,
        bloom: BloomFilter,
        reservation: Reservation,
    ) -> Parts {
        Parts {
            filter: stored.id,
            number,
            declaration: stored.declaration.clone(),
            bloom,
            reservation,
            store_max_staleness_ms: milliseconds(self.settings.max_staleness),
            sources: sources
                .iter()
                .map(|source| Feed::new(source.name.clone(), milliseconds(source.max_staleness)))
                .collect(),
            forgotten_before: stored.forgotten,
        }
    }
}

fn same_declaration(there: &Declaration, wanted: &Declaration) -> Result<(), ServiceError> {
    let what = if there.profile.name() != wanted.profile.name() {
        "profile"
    } else if there.profile != wanted.profile {
        "set of profile_options"
    } else if there.sizing.capacity() != wanted.sizing.capacity() {
        "capacity"
    } else if there.sizing != wanted.sizing {
        "false_positive_rate"
    } else if there.sources != wanted.sources {
        "set of sources"
    } else {
        return Ok(());
    };
    Err(ServiceError::DeclaredOtherwise { what })
}

pub(super) fn unavailable(error: StoreError) -> ServiceError {
    tracing::warn!(%error, "the store did not declare or delete a filter");
    ServiceError::StoreUnavailable(Some(Arc::new(error)))
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
