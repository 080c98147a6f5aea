//! The registry: name → filter, read by every check without a lock.
//!
//! Invariants:
//!
//! * an entry is immutable; a change replaces it. A reader keeps the entry that it got for as long as
//!   it needs it;
//! * a generation is in its entry before the cut that it is loaded from is taken. So whoever sets an
//!   item in all generations that are there *after* the item's commit has set it wherever it is not
//!   loaded from the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::declaration::{Declaration, DeclaredBy, FilterName};
use super::generation::Generation;
use super::ports::{FilterId, Source};
use crate::telemetry::{FilterMeters, RebuildCause};

/// A source as the configuration gives it.
#[derive(Clone)]
pub struct ConfiguredSource {
    /// Its name, unique within the filter.
    pub name: String,
    /// How often it is read again.
    pub refresh_interval: Duration,
    /// The age past which it counts as not followed, where it is read at intervals.
    pub max_staleness: Duration,
    /// The same, where its changes are recorded and polled.
    pub followed_max_staleness: Duration,
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

/// A generation that is being built, and why.
#[derive(Clone)]
pub struct Building {
    /// The generation.
    pub generation: Arc<Generation>,
    /// Why it is built.
    pub cause: RebuildCause,
}

/// A filter that this process hosts.
#[derive(Clone)]
pub struct Hosted {
    /// Its name.
    pub name: FilterName,
    /// As declared.
    pub declaration: Declaration,
    /// Who declared it.
    pub declared_by: DeclaredBy,
    /// Its sources, in the order of the generation's feeds.
    pub sources: Arc<[ConfiguredSource]>,
    /// The one that answers. None until the store has told the filter's identity, or while its bits
    /// do not fit.
    pub generation: Option<Arc<Generation>>,
    /// The one that will take its place as soon as it is complete.
    pub building: Option<Building>,
    /// Why it must not answer, where it was declared otherwise since by another process.
    pub outdated: Option<&'static str>,
    /// Why the last rebuild that was due did not begin; none once one did.
    pub rebuild_refused: Option<String>,
    /// Rows that the store has forgotten since the filter was made.
    pub forgotten: u64,
    /// Its counters.
    pub meters: Arc<FilterMeters>,
}

impl Hosted {
    /// Its generations: the one that answers, and the one that is being built.
    pub fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        let building = self.building.iter().map(|building| &building.generation);
        self.generation.iter().chain(building)
    }
}

/// All entries of one moment.
#[derive(Default)]
pub struct Entries {
    by_name: BTreeMap<FilterName, Arc<Hosted>>,
    by_id: HashMap<FilterId, Arc<Hosted>>,
}

impl Entries {
    fn new(by_name: BTreeMap<FilterName, Arc<Hosted>>) -> Self {
        let by_id = by_name
            .values()
            .filter_map(|hosted| Some((hosted.generation.as_ref()?.filter, Arc::clone(hosted))))
            .collect();
        Self { by_name, by_id }
    }

    /// Every filter, by name.
    pub fn filters(&self) -> impl Iterator<Item = &Arc<Hosted>> {
        self.by_name.values()
    }

    /// The filter of that identity; none while it has no generation.
    #[must_use]
    pub fn of(&self, filter: FilterId) -> Option<&Arc<Hosted>> {
        self.by_id.get(&filter)
    }
}

/// Name → filter.
#[derive(Default)]
pub struct Registry {
    entries: ArcSwap<Entries>,
}

impl Registry {
    /// The filter of that name. Logarithmic in the number of filters, no lock.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Hosted>> {
        self.entries.load().by_name.get(name).map(Arc::clone)
    }

    /// All filters of this moment. What is put in later is not in it.
    #[must_use]
    pub fn all(&self) -> Arc<Entries> {
        self.entries.load_full()
    }

    /// Puts filters under their names.
    pub fn put(&self, filters: &[Arc<Hosted>]) {
        self.entries.rcu(|entries| {
            let mut by_name = entries.by_name.clone();
            for hosted in filters {
                by_name.insert(hosted.name.clone(), Arc::clone(hosted));
            }
            Entries::new(by_name)
        });
    }

    /// Keeps the filters that `keep` says to.
    pub fn retain(&self, keep: impl Fn(&Hosted) -> bool) {
        self.entries.rcu(|entries| {
            let mut by_name = entries.by_name.clone();
            by_name.retain(|_, hosted| keep(hosted));
            Entries::new(by_name)
        });
    }

    /// Changes the entry of a filter, if it is still there; `change` may be called more than once.
    pub fn change(&self, filter: FilterId, change: impl Fn(&mut Hosted)) {
        self.entries.rcu(|entries| {
            let mut by_name = entries.by_name.clone();
            if let Some(hosted) = entries.of(filter) {
                let mut changed = Hosted::clone(hosted);
                change(&mut changed);
                by_name.insert(changed.name.clone(), Arc::new(changed));
            }
            Entries::new(by_name)
        });
    }
}
