//! The storm: everything is broken again and again, in an order that a printed seed repeats, while
//! writers add through all replicas and checkers ask all of them for everything that was
//! acknowledged. One `definitely-not` among the answers, and it has failed.
//!
//! `tests/storm SECONDS SEED` runs it for longer.

mod asking;
mod disk;
mod faults;
mod ledger;
mod operations;
mod report;
mod tables;

use std::sync::RwLock;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::Client;

use self::disk::Disk;
use self::faults::{ON_POSTGRES, ON_SQLITE, Site};
use self::ledger::Ledger;
use self::report::Report;
use self::tables::Tables;
use crate::support::{Bloomgate, Cluster, Launch, Proxy, Random};

/// The filters, by their places in the ledger: one with room, one that outgrows its bits again and
/// again, and one that is deleted and made again.
const FILTERS: [&str; 3] = ["wide", "growing", "passing"];

/// The place of the one that is deleted and made again; those before it are configured.
const PASSING: usize = 2;

/// As in the configuration.
const MAX_STALENESS: Duration = Duration::from_secs(2);

const CONFIG: &str = r#"
    max_staleness = "2s"
    poll_interval = "100ms"
    rebuild_interval = "10s"
    expiry_leeway = "2s"
    wait_timeout = "6s"
    [limits]
    request_timeout = "8s"
    drain_timeout = "2s"
    [filters.wide]
    profile = "text"
    capacity = 2000000
    false_positive_rate = 0.0001
    [filters.growing]
    profile = "text"
    capacity = 500
    false_positive_rate = 0.0001
"#;

/// Beside the configuration, where there is a server for the tables.
const SOURCES: &str = r#"
    [[filters.wide.sources]]
    name = "table"
    query = "SELECT item, expires_at FROM wide"
    refresh_interval = "2s"
    max_staleness = "3s"
    [[filters.growing.sources]]
    name = "table"
    query = "SELECT item, expires_at FROM growing"
    refresh_interval = "2s"
    max_staleness = "3s"
"#;

/// As in the sources, which are followed and so never loaded at their interval.
const SOURCE_MAX_STALENESS: Duration = Duration::from_secs(3);

/// So that a write past the limit of a full disk fails instead of ending the process.
const IGNORE_SIGNAL: [&str; 4] = ["bash", "-c", "trap '' XFSZ; exec \"$@\"", "bash"];

const REPLICAS: usize = 3;
const WRITERS: usize = 6;

/// How long the storm lasts where nobody says.
const SECONDS: u64 = 40;

/// A check that takes longer says nothing.
const CHECK_LIMIT: Duration = Duration::from_secs(3);
const ADD_LIMIT: Duration = Duration::from_secs(9);
/// Longer than a request may take: what was asked for is done or given up when it is over.
const PATIENCE: Duration = Duration::from_secs(20);

/// Checks a second of acknowledged items without which nothing was shown.
const LEAST_CHECKS_A_SECOND: u64 = 1_000;

/// What all who take part share.
struct Storm {
    ledger: Ledger,
    report: Report,
    tables: Option<Tables>,
    addresses: RwLock<Vec<String>>,
    ends: Instant,
    checking: Client,
    adding: Client,
    patient: Client,
}

impl Storm {
    fn new(seed: u64, replicas: &[Bloomgate], tables: Option<Tables>, lasts: Duration) -> Self {
        let client = |limit| Client::builder().timeout(limit).no_proxy().build().unwrap();
        let addresses = replicas.iter().map(|replica| replica.base_url().to_owned());
        Self {
            ledger: Ledger::new(seed, &FILTERS, CHECK_LIMIT),
            report: Report::new(),
            tables,
            addresses: RwLock::new(addresses.collect()),
            ends: Instant::now() + lasts,
            checking: client(CHECK_LIMIT),
            adding: client(ADD_LIMIT),
            patient: client(PATIENCE),
        }
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.ends && !self.report.has_failed()
    }

    fn replicas(&self) -> usize {
        self.addresses.read().unwrap().len()
    }

    fn replica_is_at(&self, replica: usize, address: &str) {
        self.addresses.write().unwrap()[replica] = address.to_owned();
    }

    fn url(&self, replica: usize, filter: usize, verb: &str) -> String {
        let address = &self.addresses.read().unwrap()[replica];
        let path = format!("{address}/v1/filters/{}/{verb}", self.ledger.name(filter));
        path.trim_end_matches('/').to_owned()
    }

    /// Whether the filter is live there, as of a moment after `since`: what had not been noticed yet by
    /// then, a server that has crashed above all, has been by now.
    async fn is_live_since(&self, replica: usize, filter: usize, since: Timestamp) -> bool {
        let request = self.checking.get(self.url(replica, filter, ""));
        let Ok(answer) = request.send().await else {
            return false;
        };
        let description = answer.json::<serde_json::Value>().await.unwrap_or_default();
        let is_since = |feed: &serde_json::Value| {
            let as_of = feed["as_of"].as_str().map(str::parse::<Timestamp>);
            as_of.is_some_and(|as_of| as_of.unwrap() > since)
        };
        let sources = description["sources"].as_array();
        description["state"] == "live"
            && is_since(&description)
            && sources.is_some_and(|sources| sources.iter().all(is_since))
    }

    /// Adds, asks and breaks until it is over.
    async fn rage(&self, site: &mut Site, mut random: Random) {
        self.renew(0, 0).await;
        let faults = random.fork();
        let moving = random.fork();
        let writers = (0..WRITERS).map(|_| self.keep_writing(random.fork()));
        let writers = futures_util::future::join_all(writers.collect::<Vec<_>>());
        let replicas = 0..self.replicas();
        let checkers = replicas
            .clone()
            .map(|at| self.keep_checking(at, random.fork()));
        let checkers = futures_util::future::join_all(checkers.collect::<Vec<_>>());
        let absent = replicas.map(|replica| self.keep_asking_for_absent(replica));
        let absent = futures_util::future::join_all(absent);
        tokio::join!(
            site.break_and_mend(self, faults),
            self.keep_moving(moving),
            writers,
            checkers,
            absent
        );
    }

    /// Asks every replica once more for all that is owed, now that all is mended.
    async fn ask_for_all(&self) {
        tokio::time::sleep(MAX_STALENESS.max(SOURCE_MAX_STALENESS)).await;
        for replica in 0..self.replicas() {
            for filter in 0..self.ledger.filters() {
                let mut from = 0;
                loop {
                    let (lots, next) = self.ledger.sweep(filter, replica, from);
                    self.check(replica, &lots, None).await;
                    if next <= from {
                        break;
                    }
                    from = next;
                }
            }
        }
    }
}

fn lasts() -> Duration {
    let seconds = std::env::var("STORM_SECONDS").ok();
    let seconds = seconds.map_or(SECONDS, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds)
}

async fn storm(
    name: &str,
    mut site: Site,
    tables: Option<Tables>,
    lasts: Duration,
    random: Random,
) {
    let seed = random.seed();
    let storm = Storm::new(seed, &site.replicas, tables, lasts);
    storm.rage(&mut site, random).await;
    if !storm.report.has_failed() {
        storm.ask_for_all().await;
    }
    let least = lasts.as_secs() * LEAST_CHECKS_A_SECOND;
    storm.report.conclude(name, seed, &storm.ledger, least);
}

#[tokio::test(flavor = "multi_thread")]
async fn storm_on_postgres_nothing_acknowledged_is_ever_definitely_not() {
    let random = Random::seeded("STORM_SEED");
    // Of a connection that is frozen before its first word the server waits for the end, also at a stop.
    let cluster = Cluster::start_with(&[("authentication_timeout", "5s")]).await;
    let database = cluster.create_database().await;
    let config = format!("{CONFIG}{SOURCES}");
    let tables = Tables::make(&database, &Launch::new(), &config).await;
    let (mut replicas, mut proxies) = (Vec::new(), Vec::new());
    for _ in 0..REPLICAS {
        let proxy = Proxy::start(database.address()).await;
        let url = database.url_at(&proxy.address());
        let launch = Launch::new().config(&config).database_url(&url);
        let replica = launch.start().await;
        replica.wait_live(FILTERS[0]).await;
        proxies.push(proxy);
        replicas.push(replica);
    }
    let site = Site {
        replicas,
        proxies,
        database: Some(database),
        cluster: Some(cluster),
        disk: None,
        kinds: ON_POSTGRES,
    };
    storm("on PostgreSQL", site, Some(tables), lasts(), random).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn storm_on_sqlite_nothing_acknowledged_is_ever_definitely_not() {
    let random = Random::seeded("STORM_SEED");
    let launch = Launch::new().config(CONFIG).through(&IGNORE_SIGNAL);
    let disk = Disk::under(&launch);
    let replica = launch.start().await;
    replica.wait_live(FILTERS[0]).await;
    let site = Site {
        replicas: vec![replica],
        proxies: Vec::new(),
        database: None,
        cluster: None,
        disk: Some(disk),
        kinds: ON_SQLITE,
    };
    // A quarter of the time says as much: there is one replica.
    storm("on SQLite", site, None, lasts().div_f64(4.0), random).await;
}
