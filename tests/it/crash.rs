//! add → 200, kill -9, start → `maybe`: what was acknowledged is never lost.
//!
//! Each round lets several clients add at once, kills the process in the middle of it, starts it
//! again, and checks everything that was acknowledged in this and all rounds before.

use std::ops::Range;
use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{Bloomgate, Database, Launch, Random};

const ROUNDS: u64 = 50;

/// How long the clients add before the kill, in milliseconds.
const LIFE_MS: Range<u64> = 15..250;

/// The most that one check-batch takes.
const CHECKED_AT_ONCE: usize = 10_000;

/// Small enough to be made and loaded in a moment, and wide enough that a lost item is seen.
const CONFIG: &str = r#"
    [filters.crash]
    profile = "text"
    capacity = 1000000
    false_positive_rate = 0.0001
"#;

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_nothing_acknowledged_is_lost_by_fifty_kills() {
    kill_again_and_again(Launch::new().config(CONFIG)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_nothing_acknowledged_is_lost_by_fifty_kills() {
    let database = Database::create().await;
    let launch = Launch::new().config(CONFIG).database_url(database.url());
    kill_again_and_again(launch).await;
}

async fn kill_again_and_again(launch: Launch) {
    let mut random = Random::seeded("CRASH_SEED");
    let begun = Instant::now();
    let mut service = launch.start().await;
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        service.wait_live("crash").await;
        let life = Duration::from_millis(random.within(&LIFE_MS));
        acknowledged.extend(add_until_killed(&service, round, life).await);
        service.restart().await;
        service.wait_live("crash").await;
        let lost = lost(&service, &acknowledged).await;
        assert!(lost.is_empty(), "round {round} lost {lost:?}");
    }
    let absent: Vec<_> = (0..1_000).map(|n| format!("never added {n}")).collect();
    let verdicts = service.check_batch("crash", &absent).await;
    let matches = verdicts.iter().filter(|is_maybe| **is_maybe).count();
    assert!(
        matches < 10,
        "a filter that says maybe to all shows nothing"
    );
    eprintln!(
        "{ROUNDS} kills, {} items acknowledged, {:?}",
        acknowledged.len(),
        begun.elapsed()
    );
}

/// The acknowledged items that check `definitely-not`.
async fn lost<'a>(service: &Bloomgate, acknowledged: &'a [String]) -> Vec<&'a String> {
    let mut lost = Vec::new();
    for items in acknowledged.chunks(CHECKED_AT_ONCE) {
        let verdicts = service.check_batch("crash", items).await;
        let found = items.iter().zip(verdicts);
        lost.extend(
            found
                .filter(|(_, is_maybe)| !is_maybe)
                .map(|(item, _)| item),
        );
    }
    lost
}

/// Adds by every road at once until the process is killed. Gives what was acknowledged.
async fn add_until_killed(service: &Bloomgate, round: u64, life: Duration) -> Vec<String> {
    let kill = async {
        tokio::time::sleep(life).await;
        service.send(Signal::KILL);
    };
    // Every fifth round one bulk load takes more than one commit.
    let bulk_lines = if round.is_multiple_of(5) { 4_500 } else { 300 };
    let ((), first, second, batches, loads) = tokio::join!(
        kill,
        add_by(service, Road::Single, 1, format!("{round} a")),
        add_by(service, Road::Single, 1, format!("{round} b")),
        add_by(service, Road::Batch, 20, format!("{round} c")),
        add_by(service, Road::BulkLoad, bulk_lines, format!("{round} d")),
    );
    [first, second, batches, loads].concat()
}

#[derive(Clone, Copy)]
enum Road {
    Single,
    Batch,
    BulkLoad,
}

/// One client that sends request after request until the service is gone.
async fn add_by(service: &Bloomgate, road: Road, items: usize, prefix: String) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0_u64.. {
        let items: Vec<_> = (0..items)
            .map(|item| format!("{prefix} {number} {item}"))
            .collect();
        let Some(status) = send(service, road, &items).await else {
            break;
        };
        assert_eq!(status, 200);
        acknowledged.extend(items);
    }
    acknowledged
}

/// The status of the answer; none where the service was gone before it came.
async fn send(service: &Bloomgate, road: Road, items: &[String]) -> Option<u16> {
    let post = |verb: &str| service.request(Method::POST, &format!("/v1/filters/crash/{verb}"));
    let request = match road {
        Road::Single => post("add").json(&json!({ "item": items[0] })),
        Road::Batch => {
            let items: Vec<_> = items.iter().map(|item| json!({ "item": item })).collect();
            post("add-batch").json(&json!({ "items": items }))
        }
        Road::BulkLoad => post("bulk-load")
            .header("content-type", "text/plain")
            .body(items.join("\n")),
    };
    let answer = request.send().await.ok()?;
    let status = answer.status().as_u16();
    // The status alone acknowledges, whether or not the body still arrives.
    let _ = answer.bytes().await;
    Some(status)
}
