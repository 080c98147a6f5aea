//! Declaring, deleting and describing filters.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Service;
use super::answers::{Description, PutOutcome, Readiness, State};
use super::declaration::{Declaration, DeclaredBy, FilterName};
use super::error::ServiceError;
use super::feed::Feed;
use super::generation::Generation;
use super::ports::{Moment, StoreError, StoredFilter};
use super::registry::{ConfiguredFilter, ConfiguredSource, Hosted};
use crate::filter::bloom::Statistics;
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
            meters: FilterMeters::new(stored.name.as_str()),
            name: stored.name,
            declaration: stored.declaration,
            declared_by: stored.declared_by,
            sources,
            generation,
        }
    }

    /// An entry for a configured filter whose store was not reached yet.
    #[must_use]
    pub fn waiting(configured: &ConfiguredFilter) -> Self {
        Self {
            meters: FilterMeters::new(configured.name.as_str()),
            name: configured.name.clone(),
            declaration: configured.declaration.clone(),
            declared_by: DeclaredBy::Config,
            sources: Arc::clone(&configured.sources),
            generation: None,
        }
    }

    /// Whether the store was found to have no such filter any more.
    pub(super) fn was_deleted(&self) -> bool {
        let generation = self.generation.as_ref();
        generation.is_some_and(|generation| generation.is_of_deleted_filter())
    }

    fn state(&self, now: Moment) -> State {
        self.generation
            .as_ref()
            .map_or(State::Loading, |generation| generation.state(now))
    }

    fn describe(&self, now: Moment) -> Description {
        let generation = self.generation.as_deref();
        let statistics = generation.map_or_else(
            || Statistics::from_ones(&self.declaration.sizing, 0),
            |generation| generation.bloom.statistics(),
        );
        Description {
            filter: self.name.clone(),
            state: self.state(now),
            declaration: self.declaration.clone(),
            declared_by: self.declared_by,
            memory_bytes: generation.map_or(0, |generation| generation.bloom.memory_bytes()),
            over_capacity: statistics.estimated_cardinality > self.declaration.sizing.capacity(),
            statistics,
            generation: generation.map_or(0, |generation| generation.number),
            as_of: generation.and_then(|generation| generation.store.followed.as_of()),
            staleness_seconds: generation.and_then(|generation| generation.staleness_seconds(now)),
            sources: generation.map_or_else(Vec::new, |generation| {
                let feeds = generation.sources.iter();
                feeds.map(|feed: &Feed| feed.describe(now)).collect()
            }),
            progress: generation.and_then(Generation::progress),
        }
    }
}

impl Service {
    /// Describes every filter, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Description> {
        let now = self.clock.now();
        let filters = self.registry.all();
        filters
            .values()
            .map(|hosted| hosted.describe(now))
            .collect()
    }

    /// Describes one filter.
    ///
    /// # Errors
    /// When the name is out of form or unknown, or the store has not told its filters yet.
    pub fn describe(&self, filter: &str) -> Result<Description, ServiceError> {
        Ok(self.hosted(filter)?.describe(self.clock.now()))
    }

    /// Whether traffic should come, and every filter's state.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let now = self.clock.now();
        let filters = self.registry.all();
        let complete = |hosted: &Hosted| {
            let generation = hosted.generation.as_ref();
            generation.is_some_and(|generation| generation.was_complete())
        };
        Readiness {
            ready: self.listed.load(Ordering::Acquire)
                && !self.draining.load(Ordering::Relaxed)
                && filters.values().all(|hosted| complete(hosted)),
            filters: filters
                .values()
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
                    return Ok(PutOutcome::SameAlready(self.describe(filter)?));
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
            let stored = self
                .store
                .declare(&name, &declaration, DeclaredBy::Api)
                .await
                .map_err(unavailable)?;
            drop(room);
            let generation = Arc::new(self.empty_generation(&stored, &[])?);
            let hosted = Hosted::new(stored, Arc::from([]), Some(Arc::clone(&generation)));
            self.registry.put(&[Arc::new(hosted)]);
            self.registry_changed.notify_one();
            generation
        };
        // Past the patience the description says `loading`, which is the truth.
        let _ = tokio::time::timeout(FIRST_LOAD_PATIENCE, generation.store_was_loaded()).await;
        tracing::info!(filter = %name, "filter declared through the API");
        Ok(PutOutcome::Made(self.describe(filter)?))
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

    /// An empty generation for a filter that the store records, its memory reserved.
    pub(super) fn empty_generation(
        &self,
        stored: &StoredFilter,
        sources: &[ConfiguredSource],
    ) -> Result<Generation, ServiceError> {
        let needed_bytes = stored.declaration.sizing.memory_bytes();
        let feeds = sources
            .iter()
            .map(|source| (source.name.clone(), milliseconds(source.max_staleness)));
        Generation::new(
            stored.id,
            1,
            stored.declaration.clone(),
            self.master_key.filter_key(stored.id.0.as_bytes()),
            self.budget.reserve(needed_bytes)?,
            milliseconds(self.settings.max_staleness),
            feeds,
        )
        .map_err(|_| ServiceError::OverMemoryBudget {
            needed_bytes,
            left_bytes: 0,
        })
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
