//! The registry: name → filter, read by every check without a lock.
//!
//! Invariant: an entry is immutable; a change replaces it. A reader keeps the entry that it got for
//! as long as it needs it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};

use super::declaration::{Declaration, DeclaredBy, FilterName};
use super::generation::Generation;
use super::ports::Source;
use crate::telemetry::FilterMeters;

/// A source as the configuration gives it.
#[derive(Clone)]
pub struct ConfiguredSource {
    /// Its name, unique within the filter.
    pub name: String,
    /// How often it is read again.
    pub refresh_interval: Duration,
    /// The age past which it counts as not followed.
    pub max_staleness: Duration,
    /// The way to its rows.
    pub adapter: Arc<dyn Source>,
}

/// A filter as the configuration gives it.
#[derive(Clone)]
pub struct ConfiguredFilter {
    /// Its name.
    pub name: FilterName,
    /// What it is declared to be; names its sources.
    pub declaration: Declaration,
    /// Its sources, sorted by name.
    pub sources: Arc<[ConfiguredSource]>,
}

/// A filter that this process hosts.
pub struct Hosted {
    /// Its name.
    pub name: FilterName,
    /// As declared.
    pub declaration: Declaration,
    /// Who declared it.
    pub declared_by: DeclaredBy,
    /// Its sources, in the order of the generation's feeds.
    pub sources: Arc<[ConfiguredSource]>,
    /// None until the store has told the filter's identity, or while its bits do not fit.
    pub generation: Option<Arc<Generation>>,
    /// Its counters.
    pub meters: FilterMeters,
}

type Entries = BTreeMap<FilterName, Arc<Hosted>>;

/// Name → filter.
#[derive(Default)]
pub struct Registry {
    entries: ArcSwap<Entries>,
}

impl Registry {
    /// The filter of that name. Logarithmic in the number of filters, no lock.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Hosted>> {
        self.entries.load().get(name).map(Arc::clone)
    }

    /// All filters, by name.
    #[must_use]
    pub fn all(&self) -> Guard<Arc<Entries>> {
        self.entries.load()
    }

    /// Puts filters under their names.
    pub fn put(&self, filters: &[Arc<Hosted>]) {
        self.entries.rcu(|entries| {
            let mut entries = Entries::clone(entries);
            for hosted in filters {
                entries.insert(hosted.name.clone(), Arc::clone(hosted));
            }
            entries
        });
    }

    /// Keeps the filters that `keep` says to.
    pub fn retain(&self, keep: impl Fn(&Hosted) -> bool) {
        self.entries.rcu(|entries| {
            let mut entries = Entries::clone(entries);
            entries.retain(|_, hosted| keep(hosted));
            entries
        });
    }
}
