//! What a full disk and a kill in the middle of a saving leave behind: the old snapshot or the new
//! one, never a part.
//!
//! The disk is a limit on the length of every file that the process writes (`RLIMIT_FSIZE`), which
//! any user may set while the process runs.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};
use serde_json::json;

use super::{DEADLINE, items, snapshots, until_caught_up, until_saved};
use crate::support::{Bloomgate, Database, Launch, eventually};

/// Its snapshot takes 2.4 million bytes.
const CONFIG: &str = r#"
    max_staleness = "5s"
    poll_interval = "100ms"
    snapshot_interval = "1s"
    [filters.saved]
    profile = "text"
    capacity = 1000000
    false_positive_rate = 0.0001
"#;

/// So that a write past the limit fails, as on a full disk, instead of ending the process.
const IGNORE_SIGNAL: [&str; 4] = ["bash", "-c", "trap '' XFSZ; exec \"$@\"", "bash"];

/// Lets every file of the service grow to so many bytes and no further.
fn limit_files(service: &Bloomgate, bytes: u64) {
    let limit = Rlimit {
        current: Some(bytes),
        maximum: getrlimit(Resource::Fsize).maximum,
    };
    prlimit(Some(service.pid()), Resource::Fsize, limit).unwrap();
}

async fn add_batch(service: &Bloomgate, items: &[String]) {
    let items: Vec<_> = items.iter().map(|item| json!({ "item": item })).collect();
    let path = "/v1/filters/saved/add-batch";
    let answer = service.post(path, &json!({ "items": items })).await;
    answer.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_the_snapshot_before_stays_as_it_was_and_is_taken() {
    let database = Database::create().await;
    let launch = Launch::new().config(CONFIG).through(&IGNORE_SIGNAL);
    let mut service = launch.database_url(database.url()).start().await;
    service.wait_live("saved").await;
    let before = until_saved(&service, None).await;
    for (round, room_bytes) in [200_000, 1_000_000, 2_300_000].into_iter().enumerate() {
        let complaint = "a snapshot was not saved";
        let complaints = service.logs().matches(complaint).count();
        limit_files(&service, room_bytes);
        add_batch(&service, &items(&format!("round {round}"), 10)).await;
        eventually("the saving fails", DEADLINE, async || {
            (service.logs().matches(complaint).count() > complaints).then_some(())
        })
        .await;
        let path = snapshots(&service, "bloom").pop().unwrap();
        assert!(fs::read(path).unwrap() == before, "the old one was touched");
    }
    // Another process, without the limit.
    service.restart().await;
    let added: Vec<_> = (0..3)
        .flat_map(|round| items(&format!("round {round}"), 10))
        .collect();
    until_caught_up(&service, "saved", &added).await;
    assert!(!service.logs().contains("set aside"));
    assert!(service.logs().contains("restored"));
    // With room again the next one is saved.
    service.add("saved", "afterwards").await;
    until_saved(&service, Some(&before)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_a_saving_the_old_one_or_the_new_one_is_taken() {
    let database = Database::create().await;
    let launch = Launch::new().config(CONFIG).database_url(database.url());
    let mut service = launch.start().await;
    service.wait_live("saved").await;
    until_saved(&service, None).await;
    let mut added = Vec::new();
    let mut cut_short = 0;
    for round in 0_u32..10 {
        let batch = items(&format!("round {round}"), 100);
        add_batch(&service, &batch).await;
        added.extend(batch);
        let is_being_written = || !snapshots(&service, "tmp").is_empty();
        let begun = std::time::Instant::now();
        // A saving takes some ten milliseconds: now in its midst, now right behind it.
        while !is_being_written() && begun.elapsed() < Duration::from_millis(1_500) {
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        tokio::time::sleep(Duration::from_millis(u64::from(round % 5))).await;
        service.send(Signal::KILL);
        service.wait_end(DEADLINE).await;
        cut_short += snapshots(&service, "tmp").len();
        service.restart().await;
        assert!(snapshots(&service, "tmp").is_empty());
        until_caught_up(&service, "saved", &added).await;
        assert!(!service.logs().contains("set aside"), "round {round}");
        let restored = service.logs().matches("restored").count();
        assert_eq!(restored, round as usize + 1);
    }
    assert!(cut_short > 0, "no kill came in the midst of a saving");
}
