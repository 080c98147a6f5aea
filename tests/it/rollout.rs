//! In the midst of a roll-out: a replica that was started with an older configuration cannot know
//! all items of a filter, and says so.

use std::time::Duration;

use crate::support::{Bloomgate, Database, Launch, eventually};

const DEADLINE: Duration = Duration::from_secs(60);

fn config(profile: &str, of_filter: &str) -> String {
    format!(
        "max_staleness = \"3s\"\npoll_interval = \"100ms\"\n[filters.f]\nprofile = \"{profile}\"\n\
         capacity = 1000\nfalse_positive_rate = 1e-9\n{of_filter}\n"
    )
}

fn source(name: &str, query: &str) -> String {
    format!("[[filters.f.sources]]\nname = \"{name}\"\nquery = \"{query}\"\n")
}

async fn start(database: &Database, config: &str) -> Bloomgate {
    let launch = Launch::new().config(config).database_url(database.url());
    let service = launch.start().await;
    service.wait_live("f").await;
    service
}

/// Starts a replica with each configuration, one after the other: the first is stale from then on
/// and says why, the second is live with the item that the first cannot know.
async fn assert_older_is_stale(database: &Database, older: &str, newer: &str, item: &str) {
    let before = start(database, older).await;
    let described = before.describe("f").await;
    assert_eq!(described.get("problem"), None, "{described}");
    let after = start(database, newer).await;
    let problem = eventually("the older one is stale", DEADLINE, async || {
        let described = before.describe("f").await;
        (described["state"] == "stale").then(|| described["problem"].clone())
    })
    .await;
    let problem = problem.as_str().unwrap();
    assert!(
        problem.contains("another process has declared"),
        "{problem}"
    );
    assert!(problem.contains("start it with"), "{problem}");
    for item in [item, "absent@example.com"] {
        let checked = before.check("f", item).await;
        assert_eq!(checked.reason.as_deref(), Some("stale"), "{checked:?}");
    }
    before.get("/readyz").await.expect_status(200);
    assert!(after.check("f", item).await.is_match());
    let absent = after.check("f", "absent@example.com").await;
    assert_eq!(absent.verdict, "definitely-not");
    // What the older one is told counts all the same.
    before.add("f", "told@example.com").await;
    eventually("the newer one knows", DEADLINE, async || {
        let checked = after.check("f", "told@example.com").await;
        checked.is_match().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_the_newest_source_is_stale() {
    let database = Database::create().await;
    let query = "SELECT 'row@example.com'";
    let older = config("email", "");
    let newer = config("email", &source("rows", query));
    assert_older_is_stale(&database, &older, &newer, "row@example.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_another_query_for_the_same_source_is_stale() {
    let database = Database::create().await;
    let older = config("text", &source("rows", "SELECT 'other@example.com'"));
    let newer = config("text", &source("rows", "SELECT 'row@example.com'"));
    assert_older_is_stale(&database, &older, &newer, "row@example.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_with_other_options_of_the_profile_is_stale() {
    let database = Database::create().await;
    let rows = source("rows", "SELECT 'r.o.w@gmail.com'");
    let older = config("email", &rows);
    let options = "profile_options = { gmail_dots = true }";
    let newer = config("email", &format!("{options}\n{rows}"));
    assert_older_is_stale(&database, &older, &newer, "row@gmail.com").await;
}
