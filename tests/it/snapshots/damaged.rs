//! Snapshots that do not fit: each is set aside and its filter loaded, while the others are taken.

use std::fs;
use std::path::{Path, PathBuf};

use super::{DEADLINE, snapshots, until_caught_up};
use crate::support::{Bloomgate, Cluster, Database, Launch};

fn filter(name: &str, profile: &str, capacity: u64, options: &str) -> String {
    format!(
        "[filters.{name}]\nprofile = \"{profile}\"\ncapacity = {capacity}\n\
         false_positive_rate = 1e-9\n{options}\n"
    )
}

fn config(filters: &[String]) -> String {
    let bounds = "max_staleness = \"3s\"\npoll_interval = \"100ms\"\n";
    format!("{bounds}{}", filters.concat())
}

fn of_texts(names: &[&str]) -> String {
    let filters: Vec<_> = names
        .iter()
        .map(|name| filter(name, "text", 10_000, ""))
        .collect();
    config(&filters)
}

/// A service that was ended in good order, with an item in each filter.
async fn ended(launch: Launch, filters: &[&str]) -> Bloomgate {
    let mut service = launch.start().await;
    for filter in filters {
        service.wait_live(filter).await;
        service.add(filter, &added(filter)).await;
    }
    assert_eq!(service.terminate(DEADLINE).await.code(), Some(0));
    assert_eq!(snapshots(&service, "bloom").len(), filters.len());
    service
}

fn added(filter: &str) -> String {
    format!("added-to-{filter}@example.com")
}

/// The snapshot of a filter by its name.
async fn snapshot_of(service: &Bloomgate, database: &Database, filter: &str) -> PathBuf {
    let question = format!("SELECT id::text FROM bloomgate.filter WHERE name = '{filter}'");
    let id: String = database.query_value(&question).await;
    let folder = service.launched_as().data_dir().join("snapshots");
    folder.join(format!("{id}.bloom"))
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

async fn reason(service: &Bloomgate, filter: &str) -> String {
    let checked = service.check(filter, &added(filter)).await;
    checked.reason.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_flipped_cut_or_renamed_is_set_aside_and_loaded_and_the_others_are_taken() {
    let filters = ["whole", "flipped", "cut", "renamed"];
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let launch = Launch::new().config(&of_texts(&filters));
    let mut service = ended(launch.database_url(database.url()), &filters).await;
    let [whole, flipped, cut, renamed] = [
        snapshot_of(&service, &database, "whole").await,
        snapshot_of(&service, &database, "flipped").await,
        snapshot_of(&service, &database, "cut").await,
        snapshot_of(&service, &database, "renamed").await,
    ];
    change(&flipped, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    });
    change(&cut, |bytes| bytes.truncate(bytes.len() - 1024));
    fs::copy(&whole, &renamed).unwrap();

    cluster.stop_fast().await;
    service.restart().await;
    assert_eq!(reason(&service, "whole").await, "stale");
    for filter in ["flipped", "cut", "renamed"] {
        assert_eq!(reason(&service, filter).await, "loading", "{filter}");
    }
    service.get("/readyz").await.expect_status(503);
    assert_eq!(snapshots(&service, "bloom"), [whole]);
    assert_eq!(snapshots(&service, "rejected").len(), 3);
    assert!(service.logs().contains("a snapshot was set aside"));

    cluster.start_again().await;
    for filter in filters {
        until_caught_up(&service, filter, &[added(filter)]).await;
    }
    service.get("/readyz").await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_another_replica_is_under_another_key_and_not_taken() {
    let database = Database::create().await;
    let config = of_texts(&["f"]);
    let launch = || Launch::new().config(&config).database_url(database.url());
    let one = ended(launch(), &["f"]).await;
    let mut other = ended(launch(), &["f"]).await;
    let (from, to) = (
        snapshot_of(&one, &database, "f").await,
        snapshot_of(&other, &database, "f").await,
    );
    assert_ne!(fs::read(&from).unwrap(), fs::read(&to).unwrap());
    fs::copy(from, to).unwrap();
    other.restart().await;
    until_caught_up(&other, "f", &[added("f")]).await;
    assert!(other.logs().contains("under another hash key"));
    assert!(!other.logs().contains("restored"));
    assert_eq!(snapshots(&other, "rejected").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hash_key_that_was_changed_takes_no_snapshot_and_loses_nothing() {
    let mut service = ended(Launch::new().config(&of_texts(&["f"])), &["f"]).await;
    let key = service.launched_as().data_dir().join("hash.key");
    fs::write(key, "ab".repeat(32)).unwrap();
    service.restart().await;
    until_caught_up(&service, "f", &[added("f")]).await;
    assert!(service.logs().contains("under another hash key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_declared_otherwise_is_loaded_and_the_others_are_taken() {
    let rules = "profile_options = { plus_tags = true }";
    let before = config(&[
        filter("same", "text", 10_000, ""),
        filter("larger", "text", 10_000, ""),
        filter("ruled", "email", 10_000, ""),
        filter("other", "text", 10_000, ""),
    ]);
    let after = config(&[
        filter("same", "text", 10_000, ""),
        filter("larger", "text", 20_000, ""),
        filter("ruled", "email", 10_000, rules),
        filter("other", "email", 10_000, ""),
    ]);
    let filters = ["same", "larger", "ruled", "other"];
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let launch = Launch::new().config(&before).database_url(database.url());
    let mut service = ended(launch, &filters).await;

    cluster.stop_fast().await;
    service.restart_as(|launch| launch.config(&after)).await;
    assert_eq!(reason(&service, "same").await, "stale");
    for filter in ["larger", "ruled", "other"] {
        assert_eq!(reason(&service, filter).await, "loading", "{filter}");
    }
    cluster.start_again().await;
    for filter in filters {
        until_caught_up(&service, filter, &[added(filter)]).await;
    }
    let by_the_rule = service
        .check("ruled", "added-to-ruled+tag@example.com")
        .await;
    assert!(by_the_rule.is_match());
    let folded = service.check("other", &added("other").to_uppercase()).await;
    assert!(folded.is_match());
}
