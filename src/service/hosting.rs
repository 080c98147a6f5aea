//! Brings the registry in line with what the store records and the configuration declares.
//!
//! Invariant: a configured filter is served as the configuration declares it; a filter of the API
//! as its PUT did; a filter that the configuration declared once and does not any more is not
//! served at all, for without its sources it could not know their rows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Service;
use super::declaration::DeclaredBy;
use super::ports::{StoreError, StoreIdentity, StoredFilter};
use super::registry::{ConfiguredFilter, ConfiguredSource, Hosted};

impl Service {
    /// Opens the store and brings the registry in line with what it records.
    pub(super) async fn take_store(&self) -> Result<(), StoreError> {
        let identity = self.store.open().await?;
        let hosted = self.host_what_is_recorded(identity).await;
        if hosted.is_err() {
            // It may be another store than ours, and is not to be held without being served.
            self.store.close().await;
        }
        hosted
    }

    async fn host_what_is_recorded(&self, identity: StoreIdentity) -> Result<(), StoreError> {
        self.tie.tie(identity)?;
        self.identity.get_or_init(|| identity);
        let _one_at_a_time = self.declaring.lock().await;
        let mut recorded = self.store.filters().await?;
        let mut filters = Vec::new();
        for configured in &self.configured {
            let there = recorded
                .iter()
                .position(|stored| stored.name == configured.name)
                .map(|index| recorded.swap_remove(index));
            let stored = self.recorded_as_configured(there, configured).await?;
            filters.push(self.keep_or_host(stored, &configured.sources));
        }
        for stored in recorded {
            match stored.declared_by {
                DeclaredBy::Api => filters.push(self.keep_or_host(stored, &Arc::from([]))),
                // Without its sources it must not answer, and the rows are the operator's to
                // delete.
                DeclaredBy::Config => tracing::warn!(
                    filter = %stored.name,
                    "the configuration declared this filter once and does not any more: it is not \
                     served, its rows are kept; declare it again, or DELETE it"
                ),
            }
        }
        self.registry
            .retain(|hosted| filters.iter().any(|kept| kept.name == hosted.name));
        self.registry.put(&filters);
        self.listed.store(true, Ordering::Release);
        Ok(())
    }

    async fn recorded_as_configured(
        &self,
        there: Option<StoredFilter>,
        configured: &ConfiguredFilter,
    ) -> Result<StoredFilter, StoreError> {
        match there {
            Some(stored)
                if stored.declaration == configured.declaration
                    && stored.declared_by == DeclaredBy::Config =>
            {
                Ok(stored)
            }
            Some(_) | None => {
                let (name, declaration) = (&configured.name, &configured.declaration);
                self.store
                    .declare(name, declaration, DeclaredBy::Config)
                    .await
            }
        }
    }

    /// The entry that is there, if it is the same filter; otherwise a new one. Where its bits do
    /// not fit the entry has none, and every check of it is `loading`.
    fn keep_or_host(&self, stored: StoredFilter, sources: &Arc<[ConfiguredSource]>) -> Arc<Hosted> {
        if let Some(hosted) = self.registry.get(stored.name.as_str())
            && let Some(generation) = &hosted.generation
        {
            // One that an opening retired before it failed half-way acknowledges nothing any more.
            let is_the_same =
                generation.filter == stored.id && generation.declaration == stored.declaration;
            if is_the_same && !generation.is_retired() {
                return hosted;
            }
            generation.retire();
        }
        let generation = self.empty_generation(&stored, sources);
        if let Err(error) = &generation {
            tracing::error!(
                filter = %stored.name, %error, "the filter cannot answer; every check of it is maybe"
            );
        }
        Arc::new(Hosted::new(
            stored,
            Arc::clone(sources),
            generation.ok().map(Arc::new),
        ))
    }
}
