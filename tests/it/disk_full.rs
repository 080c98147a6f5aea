//! A disk without room: adds are refused, checks go on, and nothing acknowledged is lost.
//!
//! The disk is a limit on the length of every file that the process writes (`RLIMIT_FSIZE`), which
//! any user may set, and lift again while the process runs.

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;

use crate::support::{Answer, Bloomgate, Launch};

const CONFIG: &str = r#"
    [filters.full]
    profile = "text"
    capacity = 1000000
    false_positive_rate = 0.0001
"#;

/// So that a write past the limit fails, as on a full disk, instead of ending the process.
const IGNORE_SIGNAL: [&str; 4] = ["bash", "-c", "trap '' XFSZ; exec \"$@\"", "bash"];

/// A service on a disk that has room.
async fn start() -> Bloomgate {
    let launch = Launch::new().config(CONFIG).through(&IGNORE_SIGNAL);
    let service = launch.start().await;
    service.wait_live("full").await;
    service
}

/// Lets every file of the service grow to so many bytes and no further; none lifts the limit.
fn limit_files(service: &Bloomgate, bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes,
        maximum: getrlimit(Resource::Fsize).maximum,
    };
    prlimit(Some(service.pid()), Resource::Fsize, limit).unwrap();
}

/// The length of the longest file in the data directory, in bytes.
fn longest_file_bytes(service: &Bloomgate) -> u64 {
    let files = std::fs::read_dir(service.launched_as().data_dir()).unwrap();
    let lengths = files.map(|file| file.unwrap().metadata().unwrap().len());
    lengths.max().unwrap()
}

async fn add_batch(service: &Bloomgate, items: &[String]) -> Answer {
    let items: Vec<_> = items.iter().map(|item| json!({ "item": item })).collect();
    let path = "/v1/filters/full/add-batch";
    service.post(path, &json!({ "items": items })).await
}

fn items(name: &str, items: usize) -> Vec<String> {
    (0..items).map(|item| format!("{name} {item}")).collect()
}

/// Adds batches until one is refused, as it must be. Gives what was acknowledged.
async fn add_until_full(service: &Bloomgate, name: &str) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0..1_000 {
        let batch = items(&format!("{name} {number}"), 500);
        let answer = add_batch(service, &batch).await;
        if answer.status != 200 {
            answer.expect_problem(503, "store-unavailable");
            return acknowledged;
        }
        acknowledged.extend(batch);
    }
    panic!("the disk is never full");
}

async fn assert_all_maybe(service: &Bloomgate, acknowledged: &[String]) {
    for items in acknowledged.chunks(10_000) {
        let verdicts = service.check_batch("full", items).await;
        assert!(verdicts.iter().all(|is_maybe| *is_maybe));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_adds_are_refused_and_nothing_acknowledged_is_lost() {
    let mut service = start().await;
    let mut acknowledged = items("before", 1_000);
    add_batch(&service, &acknowledged).await.expect_status(200);
    // Full in the middle of a commit, each time at another place of it.
    for (number, room_bytes) in [40_000, 150_000, 7_001].into_iter().enumerate() {
        limit_files(&service, Some(longest_file_bytes(&service) + room_bytes));
        let name = format!("filling {number}");
        acknowledged.extend(add_until_full(&service, &name).await);
        assert_all_maybe(&service, &acknowledged).await;
        let absent = service.check("full", "never added").await;
        assert_eq!(absent.verdict, "definitely-not");

        limit_files(&service, None);
        let batch = items(&format!("room again {number}"), 1_000);
        add_batch(&service, &batch).await.expect_status(200);
        acknowledged.extend(batch);
    }
    limit_files(&service, Some(longest_file_bytes(&service) + 40_000));
    acknowledged.extend(add_until_full(&service, "last").await);

    service.restart().await;
    service.wait_live("full").await;
    assert_all_maybe(&service, &acknowledged).await;
    add_batch(&service, &items("after", 10))
        .await
        .expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_written_ends_nothing() {
    let service = start().await;
    service.add("full", "before").await;
    limit_files(&service, Some(0));
    for number in 0..3 {
        let refused = service.try_add("full", &format!("refused {number}")).await;
        refused.unwrap().expect_problem(503, "store-unavailable");
        assert!(service.check("full", "before").await.is_match());
    }
    limit_files(&service, None);
    service.add("full", "after").await;
    assert!(service.check("full", "after").await.is_match());
}
