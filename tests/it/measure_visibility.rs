//! How soon another replica knows an add, and what it costs to wait for that. Not a test of a
//! promise: run by hand, with
//! `tests/run measure_visibility -- --ignored --nocapture --test-threads 1`, on a machine at rest.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Bloomgate, Database, Launch, PgBouncer, Random};

/// Of each figure, at least.
const SAMPLES: usize = 320;

const ADDERS: usize = 16;

/// As by default.
const POLL_INTERVAL_MS: u64 = 500;

const CONFIG: &str = r#"
    [filters.measured]
    profile = "text"
    capacity = 1000000
    false_positive_rate = 1e-9
"#;

/// Two replicas on one PostgreSQL.
struct Pair {
    told: Bloomgate,
    asked: Bloomgate,
    /// What stands between the one that is asked and the server, so that no notice reaches it.
    _pooler: Option<PgBouncer>,
    _database: Database,
}

impl Pair {
    async fn start(hears_notices: bool) -> Self {
        let database = Database::create().await;
        let pooler = match hears_notices {
            true => None,
            false => Some(PgBouncer::start(&database).await),
        };
        let told = replica(database.url()).await;
        let url = pooler.as_ref().map_or(database.url(), PgBouncer::url);
        Self {
            told,
            asked: replica(url).await,
            _pooler: pooler,
            _database: database,
        }
    }

    /// From the answer of an add on the one to the first answer of `maybe` on the other, which is
    /// asked without a pause.
    async fn known_after(&self, item: &str) -> Duration {
        self.told.add("measured", item).await;
        let begun = Instant::now();
        while !self.asked.check("measured", item).await.is_match() {}
        begun.elapsed()
    }

    /// How long an add takes to be answered.
    async fn answered_after(&self, item: &str, wait: &str) -> Duration {
        let body = json!({ "item": item, "wait": wait });
        let begun = Instant::now();
        let answer = self.told.post("/v1/filters/measured/add", &body).await;
        let took = begun.elapsed();
        let added = answer.expect_status(200);
        assert!(wait == "local" || added["visible"] == true, "{added}");
        took
    }

    /// The same with so many who add one item after the other.
    async fn answered_among(&self, adders: usize, wait: &str) -> Vec<Duration> {
        let add_all = (0..adders).map(|adder| async move {
            let mut took = Vec::new();
            for number in 0..SAMPLES / adders {
                let item = format!("{wait} {adders} {adder} {number}");
                took.push(self.answered_after(&item, wait).await);
            }
            took
        });
        let took = futures_util::future::join_all(add_all).await;
        took.into_iter().flatten().collect()
    }
}

async fn replica(url: &str) -> Bloomgate {
    let replica = Launch::new().config(CONFIG).database_url(url).start().await;
    replica.wait_live("measured").await;
    replica
}

fn print(what: &str, mut took: Vec<Duration>) {
    assert!(took.len() >= SAMPLES);
    took.sort_unstable();
    let percentile = |percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    eprintln!(
        "| {what} | {:.1} ms | {:.1} ms |",
        percentile(50),
        percentile(99)
    );
}

fn print_head(what: &str) {
    eprintln!("| {what} | p50 | p99 |\n|---|---|---|");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_visibility_of_adds() {
    let mut random = Random::seeded("MEASURE_SEED");
    print_head("from an add's answer to `maybe` on another replica");
    for (what, hears_notices, longest_pause_ms) in [
        ("with notices", true, 20),
        // A `maybe` comes right after a poll: the next add must not.
        ("by polls alone", false, POLL_INTERVAL_MS),
    ] {
        let pair = Pair::start(hears_notices).await;
        let mut took = Vec::new();
        for number in 0..SAMPLES {
            let pause = random.within(&(0..longest_pause_ms));
            tokio::time::sleep(Duration::from_millis(pause)).await;
            took.push(pair.known_after(&number.to_string()).await);
        }
        print(what, took);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_visibility_of_adds_that_wait() {
    print_head("an add's own answer");
    let pair = Pair::start(true).await;
    for (adders, name) in [(1, "one adder"), (ADDERS, "16 adders")] {
        for wait in ["local", "all"] {
            let took = pair.answered_among(adders, wait).await;
            print(&format!("`wait: {wait}`, {name}"), took);
        }
    }
    // Beside each other only: each waits for two polls.
    let pair = Pair::start(false).await;
    let took = pair.answered_among(ADDERS, "all").await;
    print("`wait: all`, 16 adders, by polls alone", took);
}
