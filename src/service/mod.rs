//! Policy, over ports: what may be said of a filter and when. It knows the core and its own
//! ports, and must not know HTTP, SQL or files.
//!
//! [`Service`] is what callers ask; [`ingest::Writer`] and [`lifecycle::Lifecycle`] are the two
//! tasks behind it, which whoever composes the process runs.
//!
//! Invariant: `definitely-not` is said from the bits only where
//! [`generation::Generation::standing`] finds nothing in doubt ([`check`]), and beside the bits only
//! where everything that could have the item was asked ([`confirm`]).

pub mod admin;
pub mod answers;
pub mod askable;
pub mod authz;
pub mod budget;
pub mod bulk_load;
pub mod check;
pub mod check_many;
pub mod confirm;
pub mod cursor;
pub mod declaration;
pub mod error;
pub mod feed;
pub mod filling;
pub mod freshness;
pub mod generation;
mod hosting;
pub mod ingest;
#[cfg(test)]
mod interleavings;
pub mod lifecycle;
pub mod load;
pub mod ports;
mod probe;
pub mod rebuild;
pub mod registry;
mod removal;
pub mod retry;
mod settings;
pub mod snapshot_store;
pub mod snapshotter;
pub mod source_reader;
#[cfg(test)]
mod stand_in;
pub mod terms;
mod upkeep;
pub mod visibility;
pub mod watermark;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex as PlainMutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{Mutex, Notify, Semaphore};

use crate::filter::hashing::MasterKey;
use crate::filter::profile::Canonical;
use crate::telemetry::Road;
use answers::{AddAnswer, Wait};
use budget::MemoryBudget;
use check::accept;
use cursor::Timeline;
use declaration::FilterName;
use error::ServiceError;
use freshness::Followed;
use generation::Generation;
use ingest::{Ingest, Writer};
use ports::{Clock, FilterId, Moment, NewRow, Store, StoreIdentity, StoreTie};
use registry::{ConfiguredFilter, Hosted, Registry};
pub use settings::{Adapters, Settings};
use snapshot_store::SnapshotStore;
use terms::Terms;
use visibility::Visibility;
use watermark::Watermark;

/// How long a request waits for the store to tell its filters.
const LISTING_LIMIT: Duration = Duration::from_secs(2);

/// What may be asked of bloomgate.
pub struct Service {
    settings: Settings,
    store: Arc<dyn Store>,
    tie: Arc<dyn StoreTie>,
    clock: Arc<dyn Clock>,
    master_key: MasterKey,
    configured: Vec<ConfiguredFilter>,
    registry: Arc<Registry>,
    budget: Arc<MemoryBudget>,
    ingest: Ingest,
    visibility: Visibility,
    snapshots: Arc<dyn SnapshotStore>,
    /// What was saved last.
    saved: snapshotter::Saved,
    /// Told when there is something new to save.
    snapshot_due: Notify,
    bulk_loads: Semaphore,
    /// Told by the store when it is first reached.
    identity: OnceLock<StoreIdentity>,
    /// The filters that the store had when it was last asked; none before.
    recorded: ArcSwapOption<Vec<FilterId>>,
    /// Room for look-ups.
    confirms: Semaphore,
    /// What places count within at the moment; none between two epochs of following.
    following: PlainMutex<Option<Timeline>>,
    /// The moment up to which the registry holds every filter that the store records.
    listed: Followed,
    /// Whether the store was told what the configuration declares.
    declared: AtomicBool,
    draining: AtomicBool,
    /// Whether rows of deleted filters may be left in the store.
    rows_to_purge: AtomicBool,
    /// Whether the store has forgotten rows that the registry has not heard of.
    rows_were_forgotten: AtomicBool,
    upkeep: Mutex<upkeep::Due>,
    /// Declaring, deleting and listing, one at a time.
    declaring: Mutex<()>,
    /// Asking the store for a filter that is not known here, one at a time.
    asking: Mutex<()>,
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
        let Adapters {
            store,
            tie,
            snapshots,
            clock,
        } = adapters;
        let registry = Arc::new(Registry::default());
        let (ingest, writer) = ingest::ingest(Arc::clone(&store), Arc::clone(&registry));
        let waiting: Vec<_> = configured
            .iter()
            .map(|filter| Arc::new(Hosted::waiting(filter)))
            .collect();
        registry.put(&waiting);
        let service = Arc::new(Self {
            budget: MemoryBudget::new(settings.memory_budget_bytes),
            confirms: Semaphore::new(settings.max_confirms),
            following: PlainMutex::default(),
            settings,
            store,
            tie,
            clock,
            master_key,
            configured,
            registry,
            ingest,
            visibility: Visibility::default(),
            snapshots,
            saved: snapshotter::Saved::default(),
            snapshot_due: Notify::new(),
            bulk_loads: Semaphore::new(bulk_load::BULK_LOADS_AT_ONCE),
            identity: OnceLock::new(),
            recorded: ArcSwapOption::empty(),
            listed: Followed::never(),
            declared: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            rows_to_purge: AtomicBool::new(true),
            rows_were_forgotten: AtomicBool::new(false),
            upkeep: Mutex::default(),
            declaring: Mutex::new(()),
            asking: Mutex::new(()),
            registry_changed: Notify::new(),
        });
        (service, writer)
    }

    /// The filters that the configuration declares.
    #[must_use]
    pub fn configured(&self) -> &[ConfiguredFilter] {
        &self.configured
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
        terms: Terms,
        wait: Wait,
    ) -> Result<AddAnswer, ServiceError> {
        let hosted = self.hosted_or_asked_for(filter).await?;
        let canonical = accept(&hosted, item, None)?;
        let generation = generation_of(&hosted)?;
        let row = new_row(generation, item, &canonical, terms);
        let road = Road::Add;
        self.write(&hosted, generation, vec![row], road, wait).await
    }

    /// Adds many items, all or none.
    ///
    /// # Errors
    /// As [`Service::add`]; also when there are none or too many. One refused item refuses all.
    pub async fn add_batch<I: AsRef<str> + Sync>(
        &self,
        filter: &str,
        items: &[(I, Terms)],
        wait: Wait,
    ) -> Result<AddAnswer, ServiceError> {
        self.batch_in_range(items.len())?;
        let hosted = self.hosted_or_asked_for(filter).await?;
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
            .map(|((item, terms), canonical)| new_row(generation, item.as_ref(), canonical, *terms))
            .collect();
        let road = Road::AddBatch;
        self.write(&hosted, generation, rows, road, wait).await
    }

    async fn write(
        &self,
        hosted: &Hosted,
        generation: &Arc<Generation>,
        rows: Vec<NewRow>,
        road: Road,
        wait: Wait,
    ) -> Result<AddAnswer, ServiceError> {
        let accepted = rows.len() as u64;
        let position = self.ingest.write(generation.filter, rows).await?;
        hosted.meters.added(road, accepted);
        Ok(AddAnswer {
            watermark: Watermark(position),
            visible: match wait {
                Wait::Local => None,
                Wait::All => Some(self.visible_everywhere(position).await),
            },
            accepted,
            estimated_fp_rate: generation.bloom.estimated_fp_rate(),
        })
    }

    fn following(&self) -> Option<Timeline> {
        let following = self.following.lock();
        *following.unwrap_or_else(PoisonError::into_inner)
    }

    fn follows(&self, timeline: Option<Timeline>) {
        let following = self.following.lock();
        *following.unwrap_or_else(PoisonError::into_inner) = timeline;
    }

    /// The filter of that name; where none is known here, as the store knows it by now: another
    /// process may have made it a moment ago.
    async fn hosted_or_asked_for(&self, filter: &str) -> Result<Arc<Hosted>, ServiceError> {
        match self.hosted(filter) {
            Err(ServiceError::UnknownFilter) => {
                self.list_anew(self.clock.now()).await?;
                self.hosted(filter)
            }
            found => found,
        }
    }

    /// Asks the store for its filters, unless somebody has since `wanted`: however many ask, one
    /// question is under way, and answers all who came before it.
    async fn list_anew(&self, wanted: Moment) -> Result<(), ServiceError> {
        let ask = async {
            let _one_at_a_time = self.asking.lock().await;
            if self.listed.is_later_than(wanted) {
                return Ok(());
            }
            self.host_what_is_recorded().await
        };
        match tokio::time::timeout(LISTING_LIMIT, ask).await {
            Ok(listed) => listed.map_err(admin::unavailable),
            Err(_elapsed) => Err(ServiceError::StoreUnavailable(None)),
        }
    }

    fn hosted(&self, filter: &str) -> Result<Arc<Hosted>, ServiceError> {
        if let Some(hosted) = self.registry.get(filter)
            && !hosted.was_deleted()
        {
            return Ok(hosted);
        }
        FilterName::parse(filter).ok_or(ServiceError::InvalidFilterName)?;
        if self.listed.as_of().is_some() {
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

fn generation_of(hosted: &Hosted) -> Result<&Arc<Generation>, ServiceError> {
    hosted
        .generation
        .as_ref()
        .ok_or(ServiceError::StoreUnavailable(None))
}

fn new_row(generation: &Generation, item: &str, canonical: &Canonical<'_>, terms: Terms) -> NewRow {
    NewRow {
        filter: generation.filter,
        item: item.as_bytes().into(),
        canonical: canonical.bytes.as_ref().into(),
        profile_version: generation.declaration.profile.version(),
        terms,
    }
}
