//! Snapshots: when generations are saved, and what a restart makes of them.

mod damaged;
mod saving;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Bloomgate, Cluster, Database, Launch, eventually};

const DEADLINE: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
    max_staleness = "3s"
    poll_interval = "100ms"
    [filters.saved]
    profile = "text"
    capacity = 10000
    false_positive_rate = 1e-9
"#;

/// The files of the snapshot folder with this extension.
fn snapshots(service: &Bloomgate, extension: &str) -> Vec<PathBuf> {
    let folder = service.launched_as().data_dir().join("snapshots");
    let files = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    let ending = format!(".{extension}");
    paths.retain(|path| path.to_str().unwrap().ends_with(&ending));
    paths
}

/// Waits until the one filter has a snapshot that is no longer this one, and gives its bytes.
async fn until_saved(service: &Bloomgate, before: Option<&[u8]>) -> Vec<u8> {
    eventually("the filter is saved", DEADLINE, async || {
        let path = snapshots(service, "bloom").pop()?;
        let bytes = fs::read(path).unwrap();
        (Some(bytes.as_slice()) != before).then_some(bytes)
    })
    .await
}

/// Waits until `absent` is no longer in doubt; what was added is `maybe` all along, and then found.
async fn until_caught_up(service: &Bloomgate, filter: &str, added: &[String]) {
    eventually("the filter has caught up", DEADLINE, async || {
        let verdicts = service.check_batch(filter, added).await;
        assert!(verdicts.into_iter().all(|is_maybe| is_maybe));
        let absent = service.check(filter, "absent").await;
        (!absent.is_maybe()).then_some(())
    })
    .await;
    let verdicts = service.check_batch(filter, added).await;
    assert!(verdicts.into_iter().all(|is_maybe| is_maybe));
}

/// Waits until the filter has followed the store up to an add.
async fn until_reached(service: &Bloomgate, watermark: &Value) {
    eventually("the watermark is reached", DEADLINE, async || {
        let body = json!({ "item": "absent", "min_watermark": watermark });
        let answer = service.post("/v1/filters/saved/check", &body).await;
        (answer.json()["verdict"] == "definitely-not").then_some(())
    })
    .await;
}

fn items(name: &str, items: usize) -> Vec<String> {
    (0..items).map(|item| format!("{name} {item}")).collect()
}

/// The rows that the last load of the store brought.
async fn loaded_rows(service: &Bloomgate) -> String {
    let text = service.get("/metrics").await.text;
    let line = "bloomgate_load_rows{filter=\"saved\",source=\"store\"} ";
    let rows = text.lines().find_map(|found| found.strip_prefix(line));
    rows.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_what_was_added_last_is_saved_though_a_client_keeps_its_connection() {
    let mut service = Bloomgate::start(CONFIG).await;
    service.wait_live("saved").await;
    let before = until_saved(&service, None).await;
    let address = service.base_url().strip_prefix("http://").unwrap();
    let mut idle = TcpStream::connect(address).unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\nHost: here\r\n\r\n")
        .unwrap();
    let mut beginning = [0; 12];
    idle.read_exact(&mut beginning).unwrap();
    assert_eq!(&beginning, b"HTTP/1.1 200");
    service.add("saved", "added last").await;
    let begun = Instant::now();
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    drop(idle);
    let path = snapshots(&service, "bloom").pop().unwrap();
    assert_ne!(
        fs::read(path).unwrap(),
        before,
        "saved without what was added last"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn generations_are_saved_after_their_load_and_at_every_interval() {
    let config = format!("snapshot_interval = \"1s\"\n{CONFIG}");
    let database = Database::create().await;
    for launch in [Launch::new(), Launch::new().database_url(database.url())] {
        // The interval is a quarter of an hour where nothing is configured.
        let mut service = launch.config(CONFIG).start().await;
        service.wait_live("saved").await;
        until_saved(&service, None).await;
        service.restart_as(|launch| launch.config(&config)).await;
        service.wait_live("saved").await;
        let mut saved = until_saved(&service, None).await;
        let added = items("item", 3);
        for item in &added {
            service.add("saved", item).await;
            saved = until_saved(&service, Some(&saved)).await;
        }
        service.restart().await;
        until_caught_up(&service, "saved", &added).await;
        assert!(service.logs().contains("restored"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_replica_was_told_meanwhile_is_maybe_before_anything_is_definitely_not() {
    let database = Database::create().await;
    let launch = || Launch::new().config(CONFIG).database_url(database.url());
    let other = launch().start().await;
    let mut service = launch().start().await;
    other.wait_live("saved").await;
    service.wait_live("saved").await;
    let mut added = items("before", 20);
    for item in &added {
        let receipt = service.add("saved", item).await;
        until_reached(&service, &receipt["watermark"]).await;
    }
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    other.add("saved", "meanwhile").await;
    added.push("meanwhile".to_owned());
    service.restart().await;
    until_caught_up(&service, "saved", &added).await;
    assert!(service.logs().contains("restored"));
    let rows = loaded_rows(&service).await;
    assert_eq!(rows, "1", "the rest was restored and not loaded");
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_while_the_store_is_down_a_filter_is_stale_and_live_once_it_is_back() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let launch = Launch::new().config(CONFIG).database_url(database.url());
    let mut service = launch.start().await;
    service.wait_live("saved").await;
    service.add("saved", "added").await;
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    cluster.stop_fast().await;
    service.restart().await;
    for item in ["added", "absent"] {
        let checked = service.check("saved", item).await;
        assert_eq!(checked.reason.as_deref(), Some("stale"), "{checked:?}");
    }
    // Not every filter may be known yet: another process may have made some.
    let ready = service.get("/readyz").await.expect_status(503);
    assert_eq!(ready["filters"][0]["state"], "stale", "{ready}");
    service.get("/livez").await.expect_status(200);
    cluster.start_again().await;
    until_caught_up(&service, "saved", &["added".to_owned()]).await;
    service.get("/readyz").await.expect_status(200);
    assert!(service.logs().contains("restored"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_added_right_before_a_kill_is_found_behind_an_older_snapshot() {
    let database = Database::create().await;
    for launch in [Launch::new(), Launch::new().database_url(database.url())] {
        let mut service = launch.config(CONFIG).start().await;
        service.wait_live("saved").await;
        until_saved(&service, None).await;
        let mut added = Vec::new();
        for round in 0..3 {
            for item in items(&format!("round {round}"), 5) {
                service.add("saved", &item).await;
                added.push(item);
            }
            service.restart().await;
            until_caught_up(&service, "saved", &added).await;
        }
        assert!(service.logs().contains("restored"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_snapshot_of_a_filter_that_was_made_again_meanwhile_has_no_effect() {
    let database = Database::create().await;
    let launch = || Launch::new().config(CONFIG).database_url(database.url());
    let other = launch().start().await;
    let mut service = launch().start().await;
    let declaration = json!({ "profile": "text", "capacity": 100, "false_positive_rate": 1e-9 });
    let made = other.put("/v1/filters/made", &declaration).await;
    made.expect_status(201);
    other.add("made", "of the old one").await;
    service.wait_live("saved").await;
    eventually("the filter has come", DEADLINE, async || {
        let checked = service.check("made", "of the old one").await;
        checked.is_match().then_some(())
    })
    .await;
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    assert_eq!(snapshots(&service, "bloom").len(), 2);
    other.delete("/v1/filters/made").await.expect_status(204);
    let made = other.put("/v1/filters/made", &declaration).await;
    made.expect_status(201);
    other.add("made", "of the new one").await;
    service.restart().await;
    until_caught_up(&service, "made", &["of the new one".to_owned()]).await;
    let checked = service.check("made", "of the old one").await;
    assert_eq!(checked.verdict, "definitely-not");
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    assert_eq!(snapshots(&service, "bloom").len(), 2, "the old one is gone");
}
