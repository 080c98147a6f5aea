//! Policy, over ports: what may be said of a filter and when. It knows the core and its own
//! ports, and must not know HTTP, SQL or files.
//!
//! [`Service`] is what callers ask; [`ingest::Writer`] and [`lifecycle::Lifecycle`] are the two
//! tasks behind it, which whoever composes the process runs.
//!
//! Invariant: `definitely-not` is said in one place, [`Service::check`] and its batch form, and
//! only where [`generation::Generation::standing`] finds nothing in doubt.

pub mod admin;
pub mod answers;
pub mod budget;
pub mod bulk_load;
pub mod cursor;
pub mod declaration;
pub mod error;
pub mod feed;
pub mod filling;
pub mod freshness;
pub mod generation;
mod hosting;
pub mod ingest;
pub mod lifecycle;
pub mod load;
pub mod ports;
pub mod registry;
pub mod retry;
pub mod watermark;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Mutex, Notify, Semaphore};

use crate::filter::hashing::MasterKey;
use crate::filter::profile::Canonical;
use crate::filter::verdict::{Reason, Verdict};
use crate::telemetry::Road;
use answers::{AddAnswer, CheckAnswer, CheckBatchAnswer};
use budget::MemoryBudget;
use declaration::FilterName;
use error::ServiceError;
use generation::Generation;
use ingest::{Ingest, Writer};
use ports::{Clock, NewRow, Place, Store, StoreIdentity, StoreTie};
use registry::{ConfiguredFilter, Hosted, Registry};
use watermark::Watermark;

/// What the service is told once.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The age past which the store counts as not followed.
    pub max_staleness: Duration,
    /// How often the store is asked.
    pub poll_interval: Duration,
    /// How long an item is kept past its expiry.
    pub expiry_leeway: SignedDuration,
    /// The most items in a batch.
    pub max_batch: usize,
    /// The most bytes that all bits may take together.
    pub memory_budget_bytes: u64,
}

/// What the service works with.
pub struct Adapters {
    /// The durable record of what was added.
    pub store: Arc<dyn Store>,
    /// What ties the store to the data directory.
    pub tie: Arc<dyn StoreTie>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// What may be asked of bloomgate.
pub struct Service {
    settings: Settings,
    store: Arc<dyn Store>,
    tie: Arc<dyn StoreTie>,
    clock: Arc<dyn Clock>,
    master_key: MasterKey,
    configured: Vec<ConfiguredFilter>,
    registry: Registry,
    budget: Arc<MemoryBudget>,
    ingest: Ingest,
    bulk_loads: Semaphore,
    /// Told by the store when it is first reached; the filters that it records are hosted then.
    identity: OnceLock<StoreIdentity>,
    /// Whether the registry holds every filter that the store records.
    listed: AtomicBool,
    draining: AtomicBool,
    /// Whether rows of deleted filters may be left in the store.
    rows_to_purge: AtomicBool,
    /// Declaring and deleting, one at a time.
    declaring: Mutex<()>,
    /// Wakes the lifecycle when the registry has changed.
    registry_changed: Notify,
}

impl Service {
    /// The service and the writer of its store. The configured filters are hosted at once, and
    /// answer `loading` until the lifecycle has loaded them.
    #[must_use]
    pub fn new(
        settings: Settings,
        adapters: Adapters,
        master_key: MasterKey,
        configured: Vec<ConfiguredFilter>,
    ) -> (Arc<Self>, Writer) {
        let Adapters { store, tie, clock } = adapters;
        let (ingest, writer) = ingest::ingest(Arc::clone(&store));
        let registry = Registry::default();
        let waiting: Vec<_> = configured
            .iter()
            .map(|filter| Arc::new(Hosted::waiting(filter)))
            .collect();
        registry.put(&waiting);
        let service = Arc::new(Self {
            budget: MemoryBudget::new(settings.memory_budget_bytes),
            settings,
            store,
            tie,
            clock,
            master_key,
            configured,
            registry,
            ingest,
            bulk_loads: Semaphore::new(bulk_load::BULK_LOADS_AT_ONCE),
            identity: OnceLock::new(),
            listed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            rows_to_purge: AtomicBool::new(true),
            declaring: Mutex::new(()),
            registry_changed: Notify::new(),
        });
        (service, writer)
    }

    /// The filters that the configuration declares.
    #[must_use]
    pub fn configured(&self) -> &[ConfiguredFilter] {
        &self.configured
    }

    /// Says what may be said of one item. Never waits.
    ///
    /// # Errors
    /// When the name is out of form or unknown, or the profile refuses the item. Never for the
    /// sake of the store.
    pub fn check(
        &self,
        filter: &str,
        item: &str,
        min_watermark: Option<Watermark>,
    ) -> Result<CheckAnswer, ServiceError> {
        let Some(hosted) = self.hosted_for_check(filter)? else {
            return Ok(in_doubt(Reason::Loading));
        };
        let canonical = accept(&hosted, item, None)?;
        let answer = match self.may_answer(&hosted, min_watermark) {
            Err(reason) => in_doubt(reason),
            Ok(generation) => CheckAnswer {
                verdict: verdict(generation.bloom.check(&canonical.bytes)),
                estimated_fp_rate: generation.bloom.estimated_fp_rate(),
            },
        };
        hosted.meters.checked(answer.verdict);
        Ok(answer)
    }

    /// Says what may be said of many items, in their order. Never waits.
    ///
    /// # Errors
    /// As [`Service::check`]; also when there are none or too many. One refused item refuses all.
    pub fn check_batch<I: AsRef<str>>(
        &self,
        filter: &str,
        items: &[I],
        min_watermark: Option<Watermark>,
    ) -> Result<CheckBatchAnswer, ServiceError> {
        self.batch_in_range(items.len())?;
        let Some(hosted) = self.hosted_for_check(filter)? else {
            return Ok(all_in_doubt(items.len(), Reason::Loading));
        };
        let canonicals = items
            .iter()
            .enumerate()
            .map(|(index, item)| Ok(accept(&hosted, item.as_ref(), Some(index))?.bytes))
            .collect::<Result<Vec<_>, ServiceError>>()?;
        match self.may_answer(&hosted, min_watermark) {
            Err(reason) => {
                let doubts = canonicals.len() as u64;
                hosted.meters.checked_many(Verdict::Maybe(reason), doubts);
                Ok(all_in_doubt(canonicals.len(), reason))
            }
            Ok(generation) => {
                let mut matches = Vec::with_capacity(canonicals.len());
                generation.bloom.check_batch(&canonicals, &mut matches);
                let verdicts: Vec<_> = matches.into_iter().map(verdict).collect();
                for counted in [Verdict::DefinitelyNot, Verdict::Maybe(Reason::Match)] {
                    let found = verdicts.iter().filter(|verdict| **verdict == counted);
                    hosted.meters.checked_many(counted, found.count() as u64);
                }
                Ok(CheckBatchAnswer {
                    verdicts,
                    reason: None,
                    estimated_fp_rate: generation.bloom.estimated_fp_rate(),
                })
            }
        }
    }

    /// Adds one item: durable and set when this returns.
    ///
    /// # Errors
    /// When the name is out of form or unknown, the profile refuses the item, too many adds wait,
    /// or the store does not take it.
    pub async fn add(
        &self,
        filter: &str,
        item: &str,
        expires_at: Option<Timestamp>,
    ) -> Result<AddAnswer, ServiceError> {
        let hosted = self.hosted(filter)?;
        let canonical = accept(&hosted, item, None)?;
        let generation = generation_of(&hosted)?;
        let row = new_row(generation, item, &canonical, expires_at);
        self.write(&hosted, generation, vec![row], Road::Add).await
    }

    /// Adds many items, all or none.
    ///
    /// # Errors
    /// As [`Service::add`]; also when there are none or too many. One refused item refuses all.
    pub async fn add_batch<I: AsRef<str> + Sync>(
        &self,
        filter: &str,
        items: &[(I, Option<Timestamp>)],
    ) -> Result<AddAnswer, ServiceError> {
        self.batch_in_range(items.len())?;
        let hosted = self.hosted(filter)?;
        let canonicals = items
            .iter()
            .enumerate()
            .map(|(index, (item, _))| accept(&hosted, item.as_ref(), Some(index)))
            .collect::<Result<Vec<_>, ServiceError>>()?;
        // Past the items, so that a caller hears of its own mistake whatever the store does.
        let generation = generation_of(&hosted)?;
        let rows = items
            .iter()
            .zip(&canonicals)
            .map(|((item, expires_at), canonical)| {
                new_row(generation, item.as_ref(), canonical, *expires_at)
            })
            .collect();
        self.write(&hosted, generation, rows, Road::AddBatch).await
    }

    async fn write(
        &self,
        hosted: &Hosted,
        generation: &Arc<Generation>,
        rows: Vec<NewRow>,
        road: Road,
    ) -> Result<AddAnswer, ServiceError> {
        let accepted = rows.len() as u64;
        let place = self.ingest.write(generation, rows).await?;
        hosted.meters.added(road, accepted);
        Ok(AddAnswer {
            watermark: self.watermark(place)?,
            accepted,
            estimated_fp_rate: generation.bloom.estimated_fp_rate(),
        })
    }

    fn watermark(&self, place: Place) -> Result<Watermark, ServiceError> {
        let store = *self
            .identity
            .get()
            .ok_or(ServiceError::StoreUnavailable(None))?;
        Ok(Watermark { store, place })
    }

    /// The generation that may say `definitely-not` now, or the reason why none may.
    fn may_answer<'h>(
        &self,
        hosted: &'h Hosted,
        min_watermark: Option<Watermark>,
    ) -> Result<&'h Generation, Reason> {
        let generation = hosted.generation.as_deref().ok_or(Reason::Loading)?;
        if let Some(reason) = generation.standing(self.clock.now()) {
            return Err(reason);
        }
        if let Some(wanted) = min_watermark {
            let same_store = self.identity.get() == Some(&wanted.store);
            if !same_store || generation.reached() < wanted.place {
                return Err(Reason::Behind);
            }
        }
        Ok(generation)
    }

    /// The filter of that name. None as long as the store has not told which filters there are:
    /// then a name that nobody knows here may still be one of its filters.
    fn hosted_for_check(&self, filter: &str) -> Result<Option<Arc<Hosted>>, ServiceError> {
        match self.hosted(filter) {
            Ok(hosted) => Ok(Some(hosted)),
            Err(ServiceError::StoreUnavailable(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn hosted(&self, filter: &str) -> Result<Arc<Hosted>, ServiceError> {
        if let Some(hosted) = self.registry.get(filter)
            && !hosted.was_deleted()
        {
            return Ok(hosted);
        }
        FilterName::parse(filter).ok_or(ServiceError::InvalidFilterName)?;
        if self.listed.load(Ordering::Acquire) {
            Err(ServiceError::UnknownFilter)
        } else {
            Err(ServiceError::StoreUnavailable(None))
        }
    }

    fn batch_in_range(&self, found: usize) -> Result<(), ServiceError> {
        let limit = self.settings.max_batch;
        if (1..=limit).contains(&found) {
            Ok(())
        } else {
            Err(ServiceError::BatchOutOfRange { limit, found })
        }
    }
}

fn verdict(all_bits_set: bool) -> Verdict {
    if all_bits_set {
        Verdict::Maybe(Reason::Match)
    } else {
        Verdict::DefinitelyNot
    }
}

fn in_doubt(reason: Reason) -> CheckAnswer {
    CheckAnswer {
        verdict: Verdict::Maybe(reason),
        estimated_fp_rate: 1.0,
    }
}

fn all_in_doubt(items: usize, reason: Reason) -> CheckBatchAnswer {
    CheckBatchAnswer {
        verdicts: vec![Verdict::Maybe(reason); items],
        reason: Some(reason),
        estimated_fp_rate: 1.0,
    }
}

fn accept<'i>(
    hosted: &Hosted,
    item: &'i str,
    index: Option<usize>,
) -> Result<Canonical<'i>, ServiceError> {
    hosted
        .declaration
        .profile
        .accept(item)
        .map_err(|error| ServiceError::InvalidItem { index, error })
}

fn generation_of(hosted: &Hosted) -> Result<&Arc<Generation>, ServiceError> {
    hosted
        .generation
        .as_ref()
        .ok_or(ServiceError::StoreUnavailable(None))
}

fn new_row(
    generation: &Generation,
    item: &str,
    canonical: &Canonical<'_>,
    expires_at: Option<Timestamp>,
) -> NewRow {
    NewRow {
        filter: generation.filter,
        item: item.as_bytes().into(),
        canonical: canonical.bytes.as_ref().into(),
        profile_version: generation.declaration.profile.version(),
        expires_at,
    }
}
