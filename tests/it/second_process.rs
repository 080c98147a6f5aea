//! One process at a time answers for a store: a second one is refused, and one that has lost the
//! store unawares acknowledges nothing and is silent in time.

use std::time::{Duration, Instant};

use crate::support::{Bloomgate, Conduct, Database, Finished, Launch, Proxy, eventually};

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

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_a_postgres_store_waits_its_turn() {
    let database = Database::create().await;
    let mut first = Launch::new().database_url(database.url()).start().await;
    first.wait_live(FILTER).await;
    first.add(FILTER, "by the first").await;

    let second = Launch::new().database_url(database.url());
    let refused = second.clone().expect_start_failure().await;
    let words = [
        "in use by another bloomgate process",
        database.name(),
        "stop that process",
    ];
    assert_refused(&refused, &words);
    first.add(FILTER, "by the first again").await;

    assert_eq!(first.terminate(DEADLINE).await.code(), Some(0));
    let mut second = second.start().await;
    second.wait_live(FILTER).await;
    second.add(FILTER, "by the second").await;
    second.kill_9();

    let third = Launch::new().database_url(database.url()).start().await;
    third.wait_live(FILTER).await;
    let added = [
        "by the first",
        "by the first again",
        "by the second",
        "by none",
    ];
    assert_eq!(
        third.check_batch(FILTER, &added).await,
        [true, true, true, false]
    );
}

/// Ends the session that keeps other processes out.
async fn end_lock_session(database: &Database) {
    let ended: i64 = database
        .query_value(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_locks
              WHERE locktype = 'advisory' AND granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .await;
    assert_eq!(ended, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_lost_the_store_acknowledges_nothing_and_is_silent_in_time() {
    const MAX_STALENESS: Duration = Duration::from_secs(3);
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let first = Launch::new()
        .config("max_staleness = \"3s\"\npoll_interval = \"500ms\"")
        .database_url(&database.url_at(&proxy.address()))
        .start()
        .await;
    first.wait_live(FILTER).await;
    first.add(FILTER, "by the first").await;
    // What it has open stays open, so that it could still write; it cannot take the lock again.
    proxy.switch(Conduct::Refuse);
    end_lock_session(&database).await;
    let mut second = Launch::new().database_url(database.url()).start().await;
    second.wait_live(FILTER).await;

    let refused = first
        .try_add(FILTER, "by the first, too late")
        .await
        .unwrap();
    refused.expect_problem(503, "store-unavailable");
    let by_second = second.add(FILTER, "by the second").await;
    let acknowledged = Instant::now();
    let with_watermark = serde_json::json!({
        "item": "by the second",
        "min_watermark": by_second["watermark"],
    });
    let check_path = format!("/v1/filters/{FILTER}/check");
    while acknowledged.elapsed() < MAX_STALENESS * 2 {
        let is_past_bound = acknowledged.elapsed() > MAX_STALENESS;
        let checked = first.check(FILTER, "by the second").await;
        if is_past_bound {
            assert_eq!(checked.reason.as_deref(), Some("stale"));
        }
        let bound = first
            .post(&check_path, &with_watermark)
            .await
            .expect_status(200);
        assert_eq!(bound["verdict"], "maybe", "with its watermark at once");
        assert!(first.check(FILTER, "by the first").await.is_maybe());
        let refused = first
            .try_add(FILTER, "by the first, too late")
            .await
            .unwrap();
        refused.expect_problem(503, "store-unavailable");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let verdict = second.check(FILTER, "by the first, too late").await.verdict;
    assert_eq!(verdict, "definitely-not", "nothing of it was written");

    // The second goes; the first takes the store again and learns what it was told meanwhile.
    assert_eq!(second.terminate(DEADLINE).await.code(), Some(0));
    proxy.switch(Conduct::Pass);
    eventually("the first is live again", DEADLINE, async || {
        let checked = first.check(FILTER, "by the second").await;
        assert!(checked.is_maybe(), "{checked:?}");
        checked.is_match().then_some(())
    })
    .await;
    assert_eq!(
        first.check(FILTER, "by none").await.verdict,
        "definitely-not"
    );
    first.add(FILTER, "by the first again").await;
}
