//! Brings the registry in line with what the store records and the configuration declares.
//!
//! Invariants: a configured filter is served as the configuration declares it; a filter of the API
//! as its PUT did; a filter that the configuration declared once and does not any more is not
//! served at all, for without its sources it could not know their rows. Of a filter that another
//! process has declared otherwise since, nothing is `definitely-not`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Service;
use super::declaration::{Declaration, DeclaredBy};
use super::ports::{StoreError, StoredFilter};
use super::registry::{ConfiguredFilter, ConfiguredSource, Hosted};

/// Said of a filter that another process has declared otherwise since this one did.
const OUTDATED: &str = "another process has declared the filter with another profile, other options \
                        or other sources since: this one cannot know all of its items; start it with \
                        that configuration";

impl Service {
    /// Opens the store and brings the registry in line with what it records.
    pub(super) async fn take_store(&self) -> Result<(), StoreError> {
        let identity = self.store.open().await?;
        self.tie.tie(identity)?;
        self.identity.get_or_init(|| identity);
        self.host_what_is_recorded().await
    }

    /// Brings the registry in line with what the store records by now. What is served already is
    /// served on.
    pub(super) async fn host_what_is_recorded(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.declaring.lock().await;
        let asked = self.clock.now();
        let mut recorded = self.store.filters().await?;
        let mut ids: Vec<_> = recorded.iter().map(|stored| stored.id).collect();
        let mut filters = Vec::new();
        for configured in &self.configured {
            let there = recorded
                .iter()
                .position(|stored| stored.name == configured.name)
                .map(|index| recorded.swap_remove(index));
            let stored = self.recorded_as_configured(there, configured).await?;
            ids.push(stored.id);
            let mut hosted =
                self.keep_or_host(&stored, &configured.declaration, &configured.sources);
            let is_outdated = !configured.declaration.covers(&stored.declaration)
                || stored.profile_version != configured.declaration.profile.version();
            hosted.outdated = is_outdated.then_some(OUTDATED);
            filters.push(hosted);
        }
        for stored in recorded {
            match stored.declared_by {
                DeclaredBy::Api => {
                    let no_sources = Arc::from([]);
                    let mut hosted = self.keep_or_host(&stored, &stored.declaration, &no_sources);
                    let own_version = stored.declaration.profile.version();
                    let is_outdated = stored.profile_version != own_version;
                    hosted.outdated = is_outdated.then_some(OUTDATED);
                    filters.push(hosted);
                }
                // Without its sources it must not answer, and the rows are the operator's to
                // delete.
                DeclaredBy::Config => tracing::warn!(
                    filter = %stored.name,
                    "the configuration declared this filter once and does not any more: it is not \
                     served, its rows are kept; declare it again, or DELETE it"
                ),
            }
        }
        self.declared.store(true, Ordering::Relaxed);
        self.recorded.store(Some(Arc::new(ids)));
        self.registry
            .retain(|hosted| filters.iter().any(|kept| kept.name == hosted.name));
        let filters: Vec<_> = filters.into_iter().map(Arc::new).collect();
        self.registry.put(&filters);
        self.registry_changed.notify_one();
        self.listed.set(asked);
        Ok(())
    }

    /// What the store records of a configured filter. Once, at the start of this process, it is made
    /// to record what the configuration says; what another process declares later stands.
    async fn recorded_as_configured(
        &self,
        there: Option<StoredFilter>,
        configured: &ConfiguredFilter,
    ) -> Result<StoredFilter, StoreError> {
        if let Some(stored) = there {
            let is_the_same = stored.declaration == configured.declaration
                && stored.profile_version == configured.declaration.profile.version()
                && stored.declared_by == DeclaredBy::Config;
            if is_the_same || self.declared.load(Ordering::Relaxed) {
                return Ok(stored);
            }
        }
        let (name, declaration) = (&configured.name, &configured.declaration);
        let declared = self
            .store
            .declare(name, declaration, DeclaredBy::Config)
            .await?;
        declared.ok_or_else(|| StoreError::Failed {
            what: "the store".to_owned(),
            detail: "it gave nothing back for a declaration of the configuration".to_owned(),
        })
    }

    /// The entry that is there, if it is the same filter; otherwise a new one. Where its bits do
    /// not fit the entry has none, and every check of it is `loading`.
    fn keep_or_host(
        &self,
        stored: &StoredFilter,
        declaration: &Declaration,
        sources: &Arc<[ConfiguredSource]>,
    ) -> Hosted {
        if let Some(hosted) = self.registry.get(stored.name.as_str())
            && let Some(generation) = &hosted.generation
            && generation.filter == stored.id
            && generation.declaration == *declaration
        {
            return Hosted {
                forgotten: stored.forgotten,
                declared_by: stored.declared_by,
                ..Hosted::clone(&hosted)
            };
        }
        // What this process serves is what it was told, whoever declared the filter otherwise.
        let stored = StoredFilter {
            declaration: declaration.clone(),
            ..stored.clone()
        };
        let generation = self.first_generation(&stored, sources);
        if let Err(error) = &generation {
            tracing::error!(
                filter = %stored.name, %error, "the filter cannot answer; every check of it is maybe"
            );
        }
        Hosted::new(stored, Arc::clone(sources), generation.ok().map(Arc::new))
    }
}
