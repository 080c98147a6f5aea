//! One process at a time has a data directory, and a data directory has one store.

use std::time::Duration;

use crate::support::{Bloomgate, Database, Finished, Launch, eventually};

const DEADLINE: Duration = Duration::from_secs(30);

/// The filter that a process has without configuration.
const FILTER: &str = "revoked-jti";

#[track_caller]
fn assert_refused(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.exit_code, Some(1), "{finished:?}");
    for word in words {
        assert!(finished.stderr.contains(word), "no {word:?}: {finished:?}");
    }
    assert!(!finished.stdout.contains("listens"), "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_do_not_share_a_data_directory() {
    let mut first = Bloomgate::start("").await;
    first.wait_live(FILTER).await;
    first.add(FILTER, "kept").await;
    let second = first.launched_as().clone();
    let refused = second.clone().expect_start_failure().await;
    let data_dir = second.data_dir();
    assert_refused(
        &refused,
        &["in use", data_dir.to_str().unwrap(), "--data-dir"],
    );
    first.add(FILTER, "kept too").await;

    assert_eq!(first.terminate(DEADLINE).await.code(), Some(0));
    let second = second.start().await;
    second.wait_live(FILTER).await;
    let verdicts = second
        .check_batch(FILTER, &["kept", "kept too", "other"])
        .await;
    assert_eq!(verdicts, [true, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_writes_in_spite_of_the_lock_is_followed_within_the_bound() {
    let mut first = Launch::new()
        .config("poll_interval = \"50ms\"")
        .start()
        .await;
    first.wait_live(FILTER).await;
    // As someone does who takes the lock for a left-over, or whose file system knows no locks.
    std::fs::remove_file(first.launched_as().data_dir().join("lock")).unwrap();
    let second = first.launched_as().clone().start().await;
    second.wait_live(FILTER).await;
    second.add(FILTER, "added elsewhere").await;
    eventually(
        "the first knows what the second was told",
        DEADLINE,
        async || {
            first
                .check(FILTER, "added elsewhere")
                .await
                .is_match()
                .then_some(())
        },
    )
    .await;
    assert!(first.logs().contains("another process has written to it"));
    first.kill_9();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_of_one_store_is_not_started_with_another_unless_told() {
    let (one, other) = (Database::create().await, Database::create().await);
    let mut service = Bloomgate::start("").await;
    service.terminate(DEADLINE).await;
    let launch = service.launched_as().clone();
    let data_dir = launch.data_dir();
    let words = [
        "SQLite",
        "Postgres",
        data_dir.to_str().unwrap(),
        "--data-dir",
        "--accept-new-store",
    ];

    let with_postgres = launch.clone().database_url(one.url());
    assert_refused(&with_postgres.clone().expect_start_failure().await, &words);
    let mut told = with_postgres
        .clone()
        .flag("--accept-new-store")
        .start()
        .await;
    told.wait_live(FILTER).await;
    assert_eq!(told.terminate(DEADLINE).await.code(), Some(0));
    // Told once, it is the directory of the new store and of no other.
    assert_refused(&launch.clone().expect_start_failure().await, &words);
    let with_other = launch.database_url(other.url());
    assert_refused(
        &with_other.expect_start_failure().await,
        &["identity", "--accept-new-store"],
    );
    let mut again = with_postgres.start().await;
    again.wait_live(FILTER).await;
    assert_eq!(again.terminate(DEADLINE).await.code(), Some(0));
}
