//! What goes wrong with the database of a source while the program runs, and comes right again.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Bloomgate, Cluster, Conduct, Database, Proxy, eventually};

/// Long enough for what must come, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A source of a filter: its name, its database, its query, and its bounds in TOML.
struct SourceOf<'a> {
    name: &'a str,
    database_url: &'a str,
    query: &'a str,
    bounds: &'a str,
}

/// Loaded once and not again while a test runs.
const LONG: &str = "refresh_interval = \"1h\"";

/// Loaded again and again.
const SHORT: &str = "refresh_interval = \"100ms\"\nmax_staleness = \"1h\"";

fn config(filter: &str, sources: &[SourceOf<'_>]) -> String {
    let mut config = format!(
        "[filters.{filter}]\nprofile = \"text\"\ncapacity = 300000\nfalse_positive_rate = 1e-10\n"
    );
    for source in sources {
        config += &format!(
            "[[filters.{filter}.sources]]\nname = \"{}\"\ndatabase_url = \"{}\"\n\
             query = \"\"\"{}\"\"\"\n{}\n",
            source.name, source.database_url, source.query, source.bounds
        );
    }
    config
}

/// One filter with one source, both of the same name.
fn single(name: &str, database_url: &str, query: &str, bounds: &str) -> String {
    let source = SourceOf {
        name,
        database_url,
        query,
        bounds,
    };
    config(name, &[source])
}

/// Waits until a source of a filter is as it should be, and gives its description.
async fn wait_source(
    service: &Bloomgate,
    filter: &str,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    eventually(what, DEADLINE, async || {
        let description = service.describe(filter).await;
        let source = description["sources"][0].clone();
        is_so(&source).then_some(source)
    })
    .await
}

async fn wait_error(service: &Bloomgate, filter: &str) -> String {
    let has_error = |source: &Value| source["error"].is_string();
    let source = wait_source(service, filter, "the source's error is shown", has_error).await;
    source["error"].as_str().unwrap().to_owned()
}

/// Every check of the filter is `maybe` for this reason, whether the item is there or not.
async fn assert_all_maybe(service: &Bloomgate, filter: &str, reason: &str) {
    for item in ["1", "never-was"] {
        let checked = service.check(filter, item).await;
        assert_eq!(checked.reason.as_deref(), Some(reason), "{checked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_fails_is_shown_and_tried_again_while_the_others_go_on() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE t (item int, divisor int); INSERT INTO t VALUES (1, 0), (2, 1)")
        .await;
    let url = database.url();
    let source = |name, query| SourceOf {
        name,
        database_url: url,
        query,
        bounds: LONG,
    };
    let failing = source("failing", "SELECT item / divisor FROM t");
    let sound = source("sound", "SELECT item + 10 FROM t");
    let config =
        config("one", &[failing, sound]) + &single("other", url, "SELECT item FROM t", LONG);
    let service = Bloomgate::start(&config).await;
    service.wait_live("other").await;
    assert!(service.check("other", "2").await.is_match());
    assert_eq!(service.check("other", "12").await.verdict, "definitely-not");

    let error = wait_error(&service, "one").await;
    assert!(
        error.contains("failing of one") && error.contains("22012"),
        "{error}"
    );
    eventually("the sound source is loaded", DEADLINE, async || {
        let description = service.describe("one").await;
        assert_eq!(description["state"], "loading");
        (description["sources"][1]["state"] == "live").then_some(())
    })
    .await;
    assert_all_maybe(&service, "one", "loading").await;
    let ready = service.get("/readyz").await.expect_status(503);
    let states =
        json!([{"filter": "one", "state": "loading"}, {"filter": "other", "state": "live"}]);
    assert_eq!(ready["filters"], states);

    database.execute("UPDATE t SET divisor = 1").await;
    let description = service.wait_live("one").await;
    assert_eq!(description["sources"][0]["error"], Value::Null);
    service.get("/readyz").await.expect_status(200);
    for item in ["1", "2", "11", "12"] {
        assert!(service.check("one", item).await.is_match(), "{item}");
    }
    assert_eq!(service.check("one", "3").await.verdict, "definitely-not");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_rows_are_there_after_the_refresh_interval_and_old_ones_stay() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE t (item text); INSERT INTO t VALUES ('old')")
        .await;
    let config = single("tokens", database.url(), "SELECT item FROM t", SHORT);
    let service = Bloomgate::start(&config).await;
    service.wait_live("tokens").await;
    assert_eq!(
        service.check("tokens", "new").await.verdict,
        "definitely-not"
    );
    database.execute("UPDATE t SET item = 'new'").await;
    eventually("the new row is found", DEADLINE, async || {
        assert!(service.check("tokens", "old").await.is_match());
        service
            .check("tokens", "new")
            .await
            .is_match()
            .then_some(())
    })
    .await;
    // What the table no longer has stays until the filter is built anew.
    assert!(service.check("tokens", "old").await.is_match());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_whose_server_is_down_at_the_start_is_loaded_once_it_comes_up() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    database
        .execute("CREATE TABLE t (item text); INSERT INTO t VALUES ('1')")
        .await;
    cluster.stop_fast().await;
    let config = single("tokens", database.url(), "SELECT item FROM t", LONG);
    let service = Bloomgate::start(&config).await;
    let error = wait_error(&service, "tokens").await;
    assert!(error.contains("tokens of tokens"), "{error}");
    assert_all_maybe(&service, "tokens", "loading").await;
    service.get("/readyz").await.expect_status(503);
    service.get("/livez").await.expect_status(200);
    // Adds go to the store, which is there.
    service.add("tokens", "added").await;

    cluster.start_again().await;
    service.wait_live("tokens").await;
    for item in ["1", "added"] {
        assert!(service.check("tokens", item).await.is_match());
    }
    assert_eq!(service.check("tokens", "2").await.verdict, "definitely-not");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_was_not_read_for_its_bound_makes_its_filter_stale_until_it_is() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let bounds = "refresh_interval = \"100ms\"\nmax_staleness = \"3s\"";
    let url = database.url_at(&proxy.address());
    let config = single("tokens", &url, "SELECT '1'", bounds)
        + &single("other", database.url(), "SELECT '1'", LONG);
    let service = Bloomgate::start(&config).await;
    service.wait_live("tokens").await;
    service.wait_live("other").await;
    for conduct in [Conduct::Refuse, Conduct::Freeze] {
        proxy.switch(conduct);
        let is_stale = |source: &Value| source["state"] == "stale";
        wait_source(&service, "tokens", "the source is stale", is_stale).await;
        assert_eq!(service.describe("tokens").await["state"], "stale");
        assert_all_maybe(&service, "tokens", "stale").await;
        // One that turns unready helps nobody.
        service.get("/readyz").await.expect_status(200);
        assert_eq!(service.check("other", "2").await.verdict, "definitely-not");
        proxy.switch(Conduct::Pass);
        service.wait_live("tokens").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_cut_before_its_end_is_begun_again_and_never_taken_for_the_whole() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE t AS SELECT n AS item FROM generate_series(1, 200000) AS n")
        .await;
    let proxy = Proxy::start(database.address()).await;
    // Three fifths of about 5 MB.
    proxy.switch(Conduct::TruncateAfter { bytes: 3_000_000 });
    let url = database.url_at(&proxy.address());
    let query = "SELECT item FROM t ORDER BY item";
    let service = Bloomgate::start(&single("tokens", &url, query, LONG)).await;
    eventually("the load was begun again", DEADLINE, async || {
        (service.logs().matches("load failed").count() > 1).then_some(())
    })
    .await;
    let error = wait_error(&service, "tokens").await;
    assert!(error.contains("tokens of tokens"), "{error}");
    let description = service.describe("tokens").await;
    assert_eq!(description["state"], "loading");
    assert_eq!(description["sources"][0]["rows_loaded"], 0);
    assert!(description["estimated_cardinality"].as_u64().unwrap() > 50_000);
    assert_all_maybe(&service, "tokens", "loading").await;
    proxy.switch(Conduct::Pass);
    let description = service.wait_live("tokens").await;
    assert_eq!(description["sources"][0]["rows_loaded"], 200_000);
    let items: Vec<_> = (190_001..=200_000).map(|item| item.to_string()).collect();
    assert!(!service.check_batch("tokens", &items).await.contains(&false));
    assert_eq!(
        service.check("tokens", "200001").await.verdict,
        "definitely-not"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_committed_during_a_load_is_found_after_the_next() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE t (item text); INSERT INTO t VALUES ('before')")
        .await;
    let mut gate = database.pool().acquire().await.unwrap();
    let close_gate = "SELECT pg_advisory_lock(7)";
    sqlx::query(close_gate).execute(&mut *gate).await.unwrap();
    // The load has its cut and waits at the gate.
    let query = "SELECT item FROM t, (SELECT pg_advisory_xact_lock_shared(7)) AS gate";
    let service = Bloomgate::start(&single("tokens", database.url(), query, SHORT)).await;
    eventually("a load waits at the gate", DEADLINE, async || {
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                          AND database = (SELECT oid FROM pg_database
                                           WHERE datname = current_database())";
        (database.query_value::<i64>(waiting).await == 1).then_some(())
    })
    .await;
    database.execute("INSERT INTO t VALUES ('during')").await;
    assert_all_maybe(&service, "tokens", "loading").await;
    let open_gate = "SELECT pg_advisory_unlock(7)";
    sqlx::query(open_gate).execute(&mut *gate).await.unwrap();
    service.wait_live("tokens").await;
    assert!(service.check("tokens", "before").await.is_match());
    eventually("the row is found", DEADLINE, async || {
        service
            .check("tokens", "during")
            .await
            .is_match()
            .then_some(())
    })
    .await;
}
