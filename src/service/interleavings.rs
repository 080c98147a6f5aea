//! The writer, the follower, a load and a rebuild beside one another, on the service's own types, in
//! every interleaving.
//!
//! Each is a future, and everything that they ask of the store is cut into steps: a transaction takes
//! its id, commits, and is answered; a poll and a load take their snapshot, and bring row after row.
//! A schedule says whose step is next. All schedules are tried, one after the other, from the same
//! beginning. Between two steps every item that was acknowledged is checked.
//!
//! What happens within a step is not cut: there the registry is one pointer that is swapped whole, and
//! bits are only ever set.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::answers::Wait;
use super::bulk_load::tests::World;
use super::cursor::{Cursor, Timeline};
use super::declaration::{Declaration, DeclaredBy, FilterName};
use super::filling::FeedOf;
use super::generation::Generation;
use super::lifecycle::Lifecycle;
use super::load::{Loader, LoadsAtOnce, StoreLoaded};
use super::ports::{
    AddReceipt, ChangeSink, FilterId, NewRow, Place, Polled, Replica, RowSink, Store, StoreError,
    StoreIdentity, StoredFilter,
};
use super::watermark::Watermark;
use super::{Adapters, Service, Settings};
use crate::filter::hashing::MasterKey;
use crate::filter::profile::Profile;
use crate::filter::verdict::Verdict;

const FILTER: FilterId = FilterId(Uuid::from_u128(1));
const HERE: Timeline = Timeline([7; 16]);

/// A store with transactions, as far as following can tell.
#[derive(Default)]
struct Transactions {
    last: u64,
    running: BTreeSet<u64>,
    committed: Vec<(u64, Box<[u8]>)>,
}

impl Transactions {
    fn snapshot(&self) -> Cursor {
        Cursor {
            timeline: HERE,
            segment: 0,
            next: Place(self.last + 1),
            in_progress: self.running.iter().copied().map(Place).collect(),
        }
    }

    /// What `now` sees and `before` did not.
    fn seen(&self, now: &Cursor, before: Option<&Cursor>) -> Vec<Box<[u8]>> {
        let sees = |cursor: &Cursor, xid: u64| cursor.reaches(HERE, Place(xid));
        self.committed
            .iter()
            .filter(|(xid, _)| sees(now, *xid) && !before.is_some_and(|before| sees(before, *xid)))
            .map(|(_, item)| item.clone())
            .collect()
    }
}

#[derive(Default)]
struct SteppingStore(Mutex<Transactions>);

/// Ends the present step.
async fn step() {
    let mut has_ended = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_ended, true) {
            Poll::Ready(())
        } else {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

#[async_trait]
impl Store for SteppingStore {
    async fn open(&self) -> Result<StoreIdentity, StoreError> {
        Ok(StoreIdentity(Uuid::from_u128(2)))
    }

    async fn filters(&self) -> Result<Vec<StoredFilter>, StoreError> {
        Ok(vec![StoredFilter {
            id: FILTER,
            name: FilterName::parse("f").unwrap(),
            declaration: Declaration::new(Profile::Text, 100, 1e-9).unwrap(),
            profile_version: Profile::Text.version(),
            declared_by: DeclaredBy::Api,
            forgotten: 0,
        }])
    }

    async fn declare(
        &self,
        _: &FilterName,
        _: &Declaration,
        _: DeclaredBy,
    ) -> Result<Option<StoredFilter>, StoreError> {
        Ok(None)
    }

    async fn delete(&self, _: FilterId) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn purge(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn add(&self, rows: &[NewRow]) -> Result<AddReceipt, StoreError> {
        let xid = {
            let mut transactions = self.0.lock().unwrap();
            transactions.last += 1;
            let xid = transactions.last;
            transactions.running.insert(xid);
            xid
        };
        step().await;
        {
            let mut transactions = self.0.lock().unwrap();
            transactions.running.remove(&xid);
            let rows = rows.iter().map(|row| (xid, row.item.clone()));
            transactions.committed.extend(rows);
        }
        step().await;
        Ok(AddReceipt {
            timeline: HERE,
            place: Place(xid),
            cursor: None,
            deleted: Vec::new(),
        })
    }

    async fn load(
        &self,
        _: FilterId,
        since: Option<&Cursor>,
        sink: &mut dyn RowSink,
    ) -> Result<Cursor, StoreError> {
        let (cut, rows) = {
            let transactions = self.0.lock().unwrap();
            let cut = transactions.snapshot();
            let rows = transactions.seen(&cut, since);
            (cut, rows)
        };
        sink.begin(rows.len() as u64, Timestamp::UNIX_EPOCH);
        step().await;
        rows.iter().for_each(|row| sink.row(Some(row), None));
        step().await;
        Ok(cut)
    }

    async fn poll(
        &self,
        after: Option<&Cursor>,
        sink: &mut dyn ChangeSink,
    ) -> Result<Polled, StoreError> {
        let (cursor, rows) = {
            let transactions = self.0.lock().unwrap();
            let now = transactions.snapshot();
            let rows = after.map_or_else(Vec::new, |after| transactions.seen(&now, Some(after)));
            (now, rows)
        };
        step().await;
        rows.iter().for_each(|row| sink.change(FILTER, row));
        step().await;
        Ok(Polled {
            cursor,
            declarations: 0,
        })
    }

    async fn hint(&self) {
        std::future::pending().await
    }

    async fn replicas(&self) -> Result<Vec<Replica>, StoreError> {
        Ok(Vec::new())
    }

    async fn forget_replica(&self, _: Uuid) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) {}
}

/// Runs a future whose steps nothing comes between.
fn at_one_go<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// A process on the store, whose filter is live.
struct Process {
    service: Arc<Service>,
    lifecycle: Lifecycle,
    writer: super::ingest::Writer,
}

impl Process {
    fn start(store: &Arc<SteppingStore>) -> Self {
        let adapters = Adapters {
            store: Arc::clone(store) as Arc<dyn Store>,
            tie: Arc::new(World),
            snapshots: Arc::new(World),
            clock: Arc::new(World),
        };
        let master_key = MasterKey::from_bytes([7; MasterKey::BYTES]);
        let (service, writer) = Service::new(settings(), adapters, master_key, Vec::new());
        let mut lifecycle = Lifecycle::new(Arc::clone(&service));
        at_one_go(lifecycle.open()).unwrap();
        at_one_go(lifecycle.poll());
        let generation = service
            .registry
            .get("f")
            .unwrap()
            .generation
            .clone()
            .unwrap();
        let loaded = at_one_go(load(&service, generation, lifecycle.epoch()));
        lifecycle.store_was_loaded(loaded);
        Self {
            service,
            lifecycle,
            writer,
        }
    }
}

fn settings() -> Settings {
    Settings {
        max_staleness: Duration::from_secs(30),
        poll_interval: Duration::from_secs(1),
        change_retention: Duration::from_secs(3_600),
        snapshot_interval: Duration::from_secs(3_600),
        rebuild_interval: Duration::from_secs(3_600),
        wait_timeout: Duration::from_secs(1),
        expiry_leeway: SignedDuration::ZERO,
        max_batch: 10,
        memory_budget_bytes: 1 << 20,
    }
}

async fn load(service: &Arc<Service>, generation: Arc<Generation>, epoch: u64) -> StoreLoaded {
    let loader = Loader {
        service: Arc::clone(service),
        filter: FilterName::parse("f").unwrap(),
        at_once: LoadsAtOnce::default().of(FeedOf::Store),
    };
    loader.load_store(generation, epoch).await
}

type Task<'t> = Pin<Box<dyn Future<Output = ()> + 't>>;

/// Whether a task can go on.
struct Ready(AtomicBool);

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The schedules, in order: at each step, which of the tasks that can go on does.
#[derive(Default)]
struct Schedules {
    /// The choice of each step, and how many there were.
    choices: Vec<(usize, usize)>,
    step: usize,
}

impl Schedules {
    fn choose(&mut self, among: usize) -> usize {
        if self.step == self.choices.len() {
            self.choices.push((0, among));
        }
        let (chosen, were) = self.choices[self.step];
        assert_eq!(were, among, "the same schedule must lead to the same steps");
        self.step += 1;
        chosen
    }

    /// Goes on to the next schedule; false after the last one.
    fn advance(&mut self) -> bool {
        self.step = 0;
        while let Some((chosen, among)) = self.choices.pop() {
            if chosen + 1 < among {
                self.choices.push((chosen + 1, among));
                return true;
            }
        }
        false
    }
}

/// Runs tasks until the first `ending` of them have ended, and looks at `invariant` after each step.
fn run(mut tasks: Vec<Task<'_>>, ending: usize, schedules: &mut Schedules, invariant: impl Fn()) {
    let ready: Vec<_> = tasks
        .iter()
        .map(|_| Arc::new(Ready(AtomicBool::new(true))))
        .collect();
    let mut ended = vec![false; tasks.len()];
    while !ended[..ending].iter().all(|has_ended| *has_ended) {
        let able: Vec<_> = (0..tasks.len())
            .filter(|task| !ended[*task] && ready[*task].0.load(Ordering::Relaxed))
            .collect();
        assert!(!able.is_empty(), "nobody can go on");
        let task = able[schedules.choose(able.len())];
        ready[task].0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&ready[task]));
        let polled = tasks[task].as_mut().poll(&mut Context::from_waker(&waker));
        ended[task] = polled.is_ready();
        invariant();
    }
}

/// Tries every schedule, and gives how many there are.
fn in_every_interleaving(mut try_one: impl FnMut(&mut Schedules)) -> u64 {
    // The writer sets time limits, which need a clock; no schedule takes as long.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let mut schedules = Schedules::default();
    let mut tried = 0;
    loop {
        try_one(&mut schedules);
        tried += 1;
        if !schedules.advance() {
            return tried;
        }
    }
}

fn verdict(service: &Service, item: &str, min_watermark: Option<Watermark>) -> Verdict {
    at_one_go(service.check("f", item, min_watermark))
        .unwrap()
        .verdict
}

/// Follows, and lets what was built take its place.
async fn follow(mut lifecycle: Lifecycle, polls: usize, loaded: &Mutex<Option<StoreLoaded>>) {
    for _ in 0..polls {
        let done = loaded.lock().unwrap().take();
        if let Some(loaded) = done {
            lifecycle.store_was_loaded(loaded);
        }
        lifecycle.poll().await;
    }
}

#[test]
fn an_add_beside_a_rebuild_is_never_missed_by_the_process_that_acknowledged_it() {
    let mut swapped = 0_u64;
    let tried = in_every_interleaving(|schedules| {
        let store = Arc::new(SteppingStore::default());
        let Process {
            service,
            lifecycle,
            writer,
        } = Process::start(&store);
        let epoch = lifecycle.epoch();
        let acknowledged = Mutex::new(false);
        let loaded = Mutex::new(None);
        let add = async {
            service.add("f", "item", None, Wait::Local).await.unwrap();
            *acknowledged.lock().unwrap() = true;
        };
        let rebuild = async {
            service.rebuild("f").await.unwrap();
            let building = service.registry.get("f").unwrap().building.clone().unwrap();
            step().await;
            let done = load(&service, building.generation, epoch).await;
            *loaded.lock().unwrap() = Some(done);
        };
        let tasks: Vec<Task<'_>> = vec![
            Box::pin(add),
            Box::pin(rebuild),
            Box::pin(follow(lifecycle, 2, &loaded)),
            Box::pin(writer.run(CancellationToken::new())),
        ];
        run(tasks, 3, schedules, || {
            if *acknowledged.lock().unwrap() {
                assert!(matches!(verdict(&service, "item", None), Verdict::Maybe(_)));
            }
        });
        assert_eq!(verdict(&service, "absent", None), Verdict::DefinitelyNot);
        let generation = service
            .registry
            .get("f")
            .unwrap()
            .generation
            .clone()
            .unwrap();
        swapped += u64::from(generation.number == 2);
    });
    assert!(swapped > 0, "no schedule has come to a swap");
    println!("{tried} interleavings, {swapped} with a swap");
}

#[test]
fn what_another_process_acknowledged_is_never_missed_under_its_watermark() {
    let mut seen = 0_u64;
    let tried = in_every_interleaving(|schedules| {
        let store = Arc::new(SteppingStore::default());
        let Process {
            service: adding,
            lifecycle: _idle,
            writer,
        } = Process::start(&store);
        let Process {
            service: asked,
            lifecycle,
            writer: _writes_nothing,
        } = Process::start(&store);
        let acknowledged = Mutex::new(Vec::new());
        let none_loaded = Mutex::new(None);
        let add = |item: &'static str| {
            let (adding, acknowledged) = (&adding, &acknowledged);
            async move {
                let answer = adding.add("f", item, None, Wait::Local).await.unwrap();
                acknowledged.lock().unwrap().push((item, answer.watermark));
            }
        };
        // An id that is taken early and committed late, beside one that overtakes it.
        let late = async {
            let row = NewRow {
                filter: FILTER,
                item: (*b"late").into(),
                canonical: (*b"late").into(),
                profile_version: 1,
                expires_at: None,
            };
            let receipt = store.add(&[row]).await.unwrap();
            let position = super::ingest::Position {
                timeline: receipt.timeline,
                place: receipt.place,
            };
            let watermark = Watermark(position);
            acknowledged.lock().unwrap().push(("late", watermark));
        };
        let tasks: Vec<Task<'_>> = vec![
            Box::pin(add("item")),
            Box::pin(late),
            Box::pin(follow(lifecycle, 2, &none_loaded)),
            Box::pin(writer.run(CancellationToken::new())),
        ];
        run(tasks, 3, schedules, || {
            for (item, watermark) in acknowledged.lock().unwrap().iter() {
                let verdict = verdict(&asked, item, Some(*watermark));
                assert!(matches!(verdict, Verdict::Maybe(_)), "{item}");
            }
        });
        // Whatever lay under way at the last poll comes with the next.
        let reached = acknowledged.lock().unwrap().iter().all(|(_, watermark)| {
            verdict(&asked, "absent", Some(*watermark)) == Verdict::DefinitelyNot
        });
        seen += u64::from(reached);
    });
    assert!(seen > 0, "no schedule has come to both adds");
    println!("{tried} interleavings, {seen} in which both adds were followed");
}

#[test]
fn a_load_beside_an_add_of_another_process_reaches_no_further_than_it_has() {
    let tried = in_every_interleaving(|schedules| {
        let store = Arc::new(SteppingStore::default());
        let Process {
            service: adding,
            lifecycle: _idle,
            writer,
        } = Process::start(&store);
        let Process {
            service: asked,
            lifecycle,
            writer: _writes_nothing,
        } = Process::start(&store);
        let epoch = lifecycle.epoch();
        let acknowledged = Mutex::new(None);
        let loaded = Mutex::new(None);
        let add = async {
            let answer = adding.add("f", "item", None, Wait::Local).await.unwrap();
            *acknowledged.lock().unwrap() = Some(answer.watermark);
        };
        let rebuild = async {
            asked.rebuild("f").await.unwrap();
            let building = asked.registry.get("f").unwrap().building.clone().unwrap();
            let done = load(&asked, building.generation, epoch).await;
            *loaded.lock().unwrap() = Some(done);
        };
        let tasks: Vec<Task<'_>> = vec![
            Box::pin(add),
            Box::pin(rebuild),
            Box::pin(follow(lifecycle, 2, &loaded)),
            Box::pin(writer.run(CancellationToken::new())),
        ];
        run(tasks, 3, schedules, || {
            if let Some(watermark) = *acknowledged.lock().unwrap() {
                let verdict = verdict(&asked, "item", Some(watermark));
                assert!(matches!(verdict, Verdict::Maybe(_)));
            }
        });
    });
    println!("{tried} interleavings");
}
