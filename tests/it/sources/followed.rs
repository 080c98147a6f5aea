//! A table with a trigger: what is written to it is known like an add, whichever transaction wrote it.

use std::time::Duration;

use serde_json::json;

use crate::support::{Bloomgate, Cluster, Conduct, Database, Launch, Proxy, eventually};

const DEADLINE: Duration = Duration::from_secs(30);

/// Refreshed so seldom that only the trigger can have told.
fn config(url: &str) -> String {
    format!(
        "max_staleness = \"3s\"\npoll_interval = \"100ms\"\nstore = \"sqlite\"\n\
         [filters.revoked]\nprofile = \"text\"\ncapacity = 10000\nfalse_positive_rate = 1e-9\n\
         [[filters.revoked.sources]]\nname = \"tokens\"\nquery = \"SELECT item FROM t\"\n\
         refresh_interval = \"1h\"\ndatabase_url = \"{url}\"\n"
    )
}

/// A table, and the service that follows it by what `follow-sql` prints.
async fn followed(database: &Database, url: &str) -> Bloomgate {
    database.execute("CREATE TABLE t (item text UNIQUE)").await;
    let launch = Launch::new().config(&config(url));
    let file = launch.folder().join("bloomgate.toml");
    std::fs::write(&file, config(database.url())).unwrap();
    let file = file.to_str().unwrap();
    let arguments = [
        "follow-sql",
        "revoked",
        "--config",
        file,
        "--table",
        "public.t",
        "--item",
        "item",
    ];
    let printed = launch.clone().run(&arguments).await;
    assert_eq!(printed.exit_code, Some(0), "{printed:?}");
    database.execute(&printed.stdout).await;
    let service = launch.start().await;
    service.wait_live("revoked").await;
    service
}

async fn until_maybe(service: &Bloomgate, item: &str) {
    eventually(&format!("{item} is known"), DEADLINE, async || {
        service
            .check("revoked", item)
            .await
            .is_match()
            .then_some(())
    })
    .await;
}

fn loads(service: &Bloomgate) -> usize {
    let logs = service.logs();
    let lines = logs.lines();
    lines
        .filter(|line| line.contains("\"loaded\"") && line.contains("tokens"))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_to_a_followed_table_is_known_without_another_load() {
    let database = Database::create().await;
    let service = followed(&database, database.url()).await;
    database.execute("INSERT INTO t VALUES ('inserted')").await;
    until_maybe(&service, "inserted").await;
    database.execute("UPDATE t SET item = 'updated'").await;
    until_maybe(&service, "updated").await;
    // As a subscription applies it.
    database
        .execute("SET session_replication_role = replica; INSERT INTO t VALUES ('replicated')")
        .await;
    until_maybe(&service, "replicated").await;
    assert_eq!(loads(&service), 1);
    let absent = service.check("revoked", "absent").await;
    assert_eq!(absent.verdict, "definitely-not");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_was_switched_off_for_a_moment_means_a_full_load() {
    let database = Database::create().await;
    let service = followed(&database, database.url()).await;
    database
        .execute(
            "ALTER TABLE t DISABLE TRIGGER ALL;
             INSERT INTO t VALUES ('while it was off');
             ALTER TABLE t ENABLE TRIGGER ALL",
        )
        .await;
    until_maybe(&service, "while it was off").await;
    assert!(loads(&service) > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_source_that_falls_silent_makes_its_filter_stale_within_the_files_own_bound() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let service = followed(&database, &database.url_at(&proxy.address())).await;
    proxy.switch(Conduct::Freeze);
    database.execute("INSERT INTO t VALUES ('meanwhile')").await;
    eventually("the filter is stale", DEADLINE, async || {
        let checked = service.check("revoked", "absent").await;
        (checked.reason.as_deref() == Some("stale")).then_some(())
    })
    .await;
    assert!(service.check("revoked", "meanwhile").await.is_maybe());
    proxy.switch(Conduct::Pass);
    until_maybe(&service, "meanwhile").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_the_sources_server_means_a_full_load_and_no_moment_of_certainty_before_it() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let service = followed(&database, database.url()).await;
    cluster.kill_9().await;
    cluster.start_again().await;
    // Written before the service has had a chance to look.
    database
        .execute("INSERT INTO t VALUES ('after the crash')")
        .await;
    until_maybe(&service, "after the crash").await;
    eventually("it was loaded again", DEADLINE, async || {
        (loads(&service) > 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_comes_while_the_filter_is_rebuilt_is_in_both_generations() {
    let database = Database::create().await;
    let service = followed(&database, database.url()).await;
    for round in 2..7 {
        let rebuild = service
            .post("/v1/filters/revoked/rebuild", &json!({}))
            .await;
        rebuild.expect_status(202);
        let item = format!("in round {round}");
        database
            .execute(&format!("INSERT INTO t VALUES ('{item}')"))
            .await;
        until_maybe(&service, &item).await;
        eventually("the new generation answers", DEADLINE, async || {
            assert!(service.check("revoked", &item).await.is_maybe());
            let described = service.describe("revoked").await;
            (described["generation"] == round).then_some(())
        })
        .await;
        assert!(service.check("revoked", &item).await.is_maybe());
    }
}
