//! The registry: name → filter, read by every check without a lock.
//!
//! Invariants:
//!
//! * an entry is immutable; a change replaces it. A reader keeps the entry that it got for as long as
//!   it needs it;
//! * a generation that another has taken the place of never comes back: it lacks what was added
//!   since;
//! * a generation is in its entry before the cut that it is loaded from is taken. So whoever sets an
//!   item in all generations that are there *after* the item's commit has set it wherever it is not
//!   loaded from the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::confirm::Confirmations;
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
    /// What came of looking up what it said `maybe` to.
    pub confirmations: Arc<Confirmations>,
}

impl Hosted {
    /// Its generations: the one that answers, and the one that is being built.
    pub fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        let building = self.building.iter().map(|building| &building.generation);
        self.generation.iter().chain(building)
    }

    /// Whether both are one filter under one declaration, so that the generations of either are fit
    /// for both.
    fn is_same_filter(&self, other: &Self) -> bool {
        match (&self.generation, &other.generation) {
            (Some(own), Some(others)) => {
                own.filter == others.filter && own.declaration == others.declaration
            }
            (None, _) | (_, None) => false,
        }
    }

    fn with_generations_of(&self, there: &Self) -> Self {
        Self {
            generation: there.generation.clone(),
            building: there.building.clone(),
            rebuild_refused: there.rebuild_refused.clone(),
            ..self.clone()
        }
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

    /// Puts filters under their names. One that is there stays with the generations that it has by
    /// now: they may be others than when the caller looked.
    pub fn put(&self, filters: &[Arc<Hosted>]) {
        self.entries.rcu(|entries| {
            let mut by_name = entries.by_name.clone();
            for hosted in filters {
                let there = by_name.get(&hosted.name);
                let entry = match there.filter(|there| there.is_same_filter(hosted)) {
                    Some(there) => Arc::new(hosted.with_generations_of(there)),
                    None => Arc::clone(hosted),
                };
                by_name.insert(hosted.name.clone(), entry);
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::filter::bloom::BloomFilter;
    use crate::filter::hashing::MasterKey;
    use crate::filter::profile::Profile;
    use crate::service::budget::MemoryBudget;
    use crate::service::generation::Parts;
    use crate::service::ports::StoredFilter;

    fn generation(filter: u128, number: u64) -> Arc<Generation> {
        let id = Uuid::from_u128(filter);
        let key = MasterKey::from_bytes([7; MasterKey::BYTES]).filter_key(id.as_bytes());
        let declaration = Declaration::new(Profile::Text, 100, 0.01).unwrap();
        Arc::new(Generation::new(Parts {
            filter: FilterId(id),
            number,
            bloom: BloomFilter::new(declaration.sizing, key).unwrap(),
            declaration,
            reservation: MemoryBudget::new(1 << 20).reserve(1 << 10).unwrap(),
            store_max_staleness_ms: 500,
            sources: Vec::new(),
            forgotten_before: 0,
        }))
    }

    fn hosted(generation: Arc<Generation>) -> Hosted {
        let stored = StoredFilter {
            id: generation.filter,
            name: FilterName::parse("f").unwrap(),
            declaration: generation.declaration.clone(),
            profile_version: generation.declaration.profile.version(),
            declared_by: DeclaredBy::Api,
            forgotten: 0,
        };
        Hosted::new(stored, Arc::from([]), Some(generation))
    }

    fn number(registry: &Registry) -> u64 {
        let hosted = registry.get("f").unwrap();
        hosted.generation.as_ref().unwrap().number
    }

    #[test]
    fn an_entry_that_was_looked_at_before_a_swap_brings_the_old_generation_not_back() {
        let registry = Registry::default();
        registry.put(&[Arc::new(hosted(generation(1, 1)))]);
        let looked_at = Hosted {
            forgotten: 7,
            ..Hosted::clone(&registry.get("f").unwrap())
        };
        let rebuilt = generation(1, 2);
        registry.change(rebuilt.filter, |hosted| {
            hosted.generation = Some(Arc::clone(&rebuilt));
        });
        registry.put(&[Arc::new(looked_at)]);
        assert_eq!(number(&registry), 2);
        assert_eq!(registry.get("f").unwrap().forgotten, 7);
    }

    #[test]
    fn a_filter_that_was_made_anew_takes_the_name_of_the_old_one() {
        let registry = Registry::default();
        registry.put(&[Arc::new(hosted(generation(1, 5)))]);
        registry.put(&[Arc::new(hosted(generation(2, 1)))]);
        assert_eq!(number(&registry), 1);
        assert!(registry.all().of(FilterId(Uuid::from_u128(1))).is_none());
    }
}
