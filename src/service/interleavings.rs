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

mod schedules;
mod stepping_store;

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::schedules::{Task, at_one_go, in_every_interleaving, run};
use self::stepping_store::{SteppingStore, step};
use super::answers::Wait;
use super::check::Check;
use super::cursor::Timeline;
use super::declaration::FilterName;
use super::filling::FeedOf;
use super::generation::Generation;
use super::lifecycle::Lifecycle;
use super::load::{Loader, LoadsAtOnce, StoreLoaded};
use super::ports::{FilterId, NewRow, Store};
use super::stand_in::{World, settings};
use super::terms::Terms;
use super::watermark::Watermark;
use super::{Adapters, Service};
use crate::filter::hashing::MasterKey;
use crate::filter::verdict::Verdict;

const FILTER: FilterId = FilterId(Uuid::from_u128(1));
const HERE: Timeline = Timeline([7; 16]);

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

async fn load(service: &Arc<Service>, generation: Arc<Generation>, epoch: u64) -> StoreLoaded {
    let loader = Loader {
        service: Arc::clone(service),
        filter: FilterName::parse("f").unwrap(),
        at_once: LoadsAtOnce::default().of(FeedOf::Store),
    };
    loader.load_store(generation, epoch).await
}

fn verdict(service: &Service, item: &str, min_watermark: Option<Watermark>) -> Verdict {
    let check = Check {
        filter: "f",
        item,
        issued_at: None,
        min_watermark,
    };
    at_one_go(service.check(check, false)).unwrap().verdict
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
            service
                .add("f", "item", Terms::default(), Wait::Local)
                .await
                .unwrap();
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
                let answer = adding
                    .add("f", item, Terms::default(), Wait::Local)
                    .await
                    .unwrap();
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
                terms: Terms::default(),
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
            let answer = adding
                .add("f", "item", Terms::default(), Wait::Local)
                .await
                .unwrap();
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
