//! Confirmation: a `maybe` is settled by looking it up, and only where that settles it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Bloomgate, Cluster, Conduct, Database, Launch, Proxy, eventually};

const DEADLINE: Duration = Duration::from_secs(30);

const EMAIL: &str = "poll_interval = \"200ms\"\n[filters.email]\nprofile = \"email\"\n\
                     capacity = 10000\nfalse_positive_rate = 1e-9\n";

const CASELESS: &str = "SELECT email FROM person WHERE lower(email) = lower($1)";
const EXACT: &str = "SELECT email FROM person WHERE email = $1";

/// A filter with a source that is asked by this query.
fn with_source(confirm_query: &str, at: &str) -> String {
    format!(
        "{EMAIL}[[filters.email.sources]]\nname = \"people\"\n\
         query = \"SELECT email FROM person\"\nconfirm_query = \"{confirm_query}\"\n\
         refresh_interval = \"1s\"\nmax_staleness = \"1h\"\n{at}"
    )
}

async fn start(config: &str, database: &Database) -> Bloomgate {
    let launch = Launch::new().config(config).database_url(database.url());
    let service = launch.start().await;
    service.wait_live("email").await;
    ballast(&service).await;
    service
}

/// Items enough for a removal or two to be no reason for a rebuild.
async fn ballast(service: &Bloomgate) {
    let items: Vec<_> = (0..100)
        .map(|number| json!({ "item": format!("ballast-{number}@example.com") }))
        .collect();
    let body = json!({ "items": items });
    let answer = service.post("/v1/filters/email/add-batch", &body).await;
    answer.expect_status(200);
}

async fn people(rows: &str) -> Database {
    let database = Database::create().await;
    let table = format!("CREATE TABLE person (email text); INSERT INTO person VALUES {rows}");
    database.execute(&table).await;
    database
}

async fn confirm(service: &Bloomgate, item: &str) -> Value {
    let body = json!({ "item": item, "confirm": true });
    let answer = service.post("/v1/filters/email/check", &body).await;
    answer.expect_status(200)
}

async fn remove(service: &Bloomgate, item: &str) {
    let body = json!({ "item": item });
    let answer = service.post("/v1/filters/email/remove", &body).await;
    assert_eq!(answer.expect_status(200)["removed"], true);
}

/// Waits until the source is believed, as an item shows that was removed from the store.
async fn wait_settled(service: &Bloomgate) {
    service.add("email", "removed@example.com").await;
    remove(service, "removed@example.com").await;
    eventually("the source is believed", DEADLINE, async || {
        let checked = confirm(service, "removed@example.com").await;
        is_settled_absent(&checked).then_some(())
    })
    .await;
}

fn is_settled_absent(checked: &Value) -> bool {
    checked["verdict"] == "definitely-not" && checked["confirmed"] == true
}

fn is_settled_present(checked: &Value) -> bool {
    checked["verdict"] == "maybe" && checked["confirmed"] == true && checked["reason"].is_string()
}

#[track_caller]
fn assert_unsettled(checked: &Value) {
    assert_eq!(checked["verdict"], "maybe", "{checked}");
    assert!(checked["reason"].is_string(), "{checked}");
    assert!(checked.get("confirmed").is_none(), "{checked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maybe_is_settled_by_the_store_and_counted() {
    let database = Database::create().await;
    let sqlite = Launch::new().config(EMAIL).start().await;
    sqlite.wait_live("email").await;
    ballast(&sqlite).await;
    for service in [sqlite, start(EMAIL, &database).await] {
        let described = service.describe("email").await;
        assert!(described.get("measured_fp_rate").is_none(), "{described}");
        service.add("email", "Ann@Example.com").await;
        service.add("email", "ben@example.com").await;
        assert!(is_settled_present(
            &confirm(&service, "ann@example.com").await
        ));
        remove(&service, "BEN@example.com").await;
        let checked = confirm(&service, "ben@example.com").await;
        assert!(is_settled_absent(&checked), "{checked}");
        assert!(checked.get("reason").is_none(), "{checked}");
        assert!(
            checked["estimated_fp_rate"].as_f64().unwrap() < 1.0,
            "{checked}"
        );
        // What the bits say needs no look-up.
        let checked = confirm(&service, "never@example.com").await;
        assert_eq!(checked["verdict"], "definitely-not");
        assert!(checked.get("confirmed").is_none(), "{checked}");
        let unasked = service.check("email", "ben@example.com").await;
        assert!(unasked.is_match() && unasked.confirmed.is_none());

        assert_eq!(service.describe("email").await["measured_fp_rate"], 0.5);
        let metrics = service.get("/metrics").await.text;
        let gauge = "bloomgate_filter_measured_fp_ratio{filter=\"email\"} 0.5";
        assert!(metrics.contains(gauge), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_asked_without_regard_to_case_settles() {
    let database = people("('Ann@Example.COM'), (' Ben@Example.COM'), ('carl@example.com')").await;
    let service = start(&with_source(CASELESS, ""), &database).await;
    wait_settled(&service).await;
    for spelling in [
        "ann@example.com",
        "ANN@EXAMPLE.COM",
        " \u{200b}Ann@example.com.",
    ] {
        let checked = confirm(&service, spelling).await;
        assert!(is_settled_present(&checked), "{spelling:?} {checked}");
    }
    database
        .execute("DELETE FROM person WHERE email LIKE 'carl%'")
        .await;
    let checked = confirm(&service, "carl@example.com").await;
    assert!(is_settled_absent(&checked), "{checked}");
    // Its row is more than another case of it, which SQL does not find: nothing is settled.
    assert_unsettled(&confirm(&service, "ben@example.com").await);
    assert!(is_settled_present(
        &confirm(&service, " BEN@Example.COM").await
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_compares_too_exactly_is_never_believed() {
    let database = people("('Ann@Example.COM')").await;
    let mut service = start(&with_source(EXACT, ""), &database).await;
    let begun = Instant::now();
    eventually("the description says so", DEADLINE, async || {
        assert_unsettled(&confirm(&service, "ann@example.com").await);
        let described = service.describe("email").await;
        let error = described["sources"][0]["error"].as_str()?;
        error.contains("confirm_query").then_some(())
    })
    .await;
    while begun.elapsed() < Duration::from_secs(3) {
        assert_unsettled(&confirm(&service, "ann@example.com").await);
    }
    // What it finds is there all the same.
    let checked = confirm(&service, "Ann@Example.COM").await;
    assert!(is_settled_present(&checked), "{checked}");
    // Compared with text, a citext is text.
    database
        .execute("CREATE EXTENSION citext; ALTER TABLE person ALTER email TYPE citext")
        .await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert_unsettled(&confirm(&service, "ann@example.com").await);
    }
    let caseless = EXACT.replace("$1", "$1::citext");
    service
        .restart_as(|launch| launch.config(&with_source(&caseless, "")))
        .await;
    service.wait_live("email").await;
    wait_settled(&service).await;
    let checked = confirm(&service, "ann@example.com").await;
    assert!(is_settled_present(&checked), "{checked}");
    let described = service.describe("email").await;
    let source = &described["sources"][0];
    assert!(source.get("error").is_none(), "{described}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_without_rows_and_a_source_without_a_query_settle_nothing() {
    let database = people("('x@example.com'); DELETE FROM person").await;
    let service = start(&with_source(CASELESS, ""), &database).await;
    service.add("email", "ann@example.com").await;
    remove(&service, "ann@example.com").await;
    for _ in 0..20 {
        assert_unsettled(&confirm(&service, "ann@example.com").await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    database
        .execute("INSERT INTO person VALUES ('x@example.com')")
        .await;
    wait_settled(&service).await;
    assert!(is_settled_absent(
        &confirm(&service, "ann@example.com").await
    ));
    drop(service);

    let config = with_source(CASELESS, "").replace("confirm_query", "#");
    let service = start(&config, &database).await;
    service.add("email", "ann@example.com").await;
    remove(&service, "ann@example.com").await;
    assert_unsettled(&confirm(&service, "ann@example.com").await);
    service.add("email", "ben@example.com").await;
    assert!(is_settled_present(
        &confirm(&service, "ben@example.com").await
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirm_query_that_is_no_such_query_ends_the_start() {
    let database = people("('x@example.com')").await;
    for (query, complaint) in [
        ("SELECT email FROM person WHERE id = $1", "id"),
        ("SELECT 1.5 WHERE $1 = ''", "confirm_query: expected text"),
        (
            "SELECT email, email, $1 FROM person",
            "confirm_query: expected one or two columns",
        ),
    ] {
        let launch = Launch::new().database_url(database.url());
        let finished = launch
            .config(&with_source(query, ""))
            .expect_start_failure()
            .await;
        assert!(
            finished.stderr.contains(complaint),
            "{query}: {}",
            finished.stderr
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_asked_leaves_the_maybe_as_it_was() {
    let database = people("('ann@example.com')").await;
    let stored = Database::create().await;
    let (to_source, to_store) = (
        Proxy::start(database.address()).await,
        Proxy::start(stored.address()).await,
    );
    let at = format!(
        "database_url = \"{}\"\n",
        database.url_at(&to_source.address())
    );
    let config = format!("[limits]\nmax_confirms = 1\n{}", with_source(CASELESS, &at));
    let config = config.replacen(
        "[limits]\nmax_confirms = 1\npoll_interval = \"200ms\"\n",
        "poll_interval = \"200ms\"\n[limits]\nmax_confirms = 1\n",
        1,
    );
    let launch = Launch::new().config(&config);
    let service = launch
        .database_url(&stored.url_at(&to_store.address()))
        .start()
        .await;
    service.wait_live("email").await;
    ballast(&service).await;
    wait_settled(&service).await;

    // Past the bound nobody waits.
    to_source.switch(Conduct::Freeze);
    let hanging = async {
        let begun = Instant::now();
        let checked = confirm(&service, "removed@example.com").await;
        (checked, begun.elapsed())
    };
    let past_the_bound = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let begun = Instant::now();
        let checked = confirm(&service, "removed@example.com").await;
        (checked, begun.elapsed())
    };
    let ((hung, hung_for), (refused, refused_for)) = tokio::join!(hanging, past_the_bound);
    assert_unsettled(&hung);
    assert_unsettled(&refused);
    assert!(hung_for >= Duration::from_secs(1) && hung_for < Duration::from_secs(10));
    assert!(refused_for < Duration::from_secs(1), "{refused_for:?}");

    // The store is down, and the source has it.
    to_source.switch(Conduct::Pass);
    to_store.switch(Conduct::Freeze);
    eventually("the source answers again", DEADLINE, async || {
        is_settled_present(&confirm(&service, "ann@example.com").await).then_some(())
    })
    .await;
    assert_unsettled(&confirm(&service, "removed@example.com").await);
    to_store.switch(Conduct::Pass);
    wait_settled(&service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_was_declared_with_other_sources_since_is_never_settled() {
    let database = people("('ann@example.com')").await;
    let service = start(&with_source(CASELESS, ""), &database).await;
    wait_settled(&service).await;
    let more = format!(
        "{}[[filters.email.sources]]\nname = \"others\"\nquery = \"SELECT 'eve@example.com'\"\n",
        with_source(CASELESS, "")
    );
    let _other = start(&more, &database).await;
    assert_unsettled(&confirm(&service, "removed@example.com").await);
    assert!(is_settled_present(
        &confirm(&service, "ann@example.com").await
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_behind_is_settled_by_the_store_and_never_against_an_add() {
    let database = Database::create().await;
    let one = start(EMAIL, &database).await;
    let other = start(EMAIL, &database).await;
    let sqlite = Launch::new().config(EMAIL).start().await;
    sqlite.wait_live("email").await;
    ballast(&sqlite).await;
    let elsewhere = sqlite.add("email", "ann@example.com").await;
    let mut settled_while_behind = 0;
    for number in 0..30 {
        let item = format!("{number}@example.com");
        let added = one.add("email", &item).await;
        let body = |item: &str, watermark: &Value| json!({ "item": item, "confirm": true, "min_watermark": watermark });
        let check = async |body: Value| {
            let answer = other.post("/v1/filters/email/check", &body).await;
            answer.expect_status(200)
        };
        let checked = check(body(&item, &added["watermark"])).await;
        assert!(is_settled_present(&checked), "{checked}");
        let checked = check(body("never@example.com", &added["watermark"])).await;
        assert_eq!(checked["verdict"], "definitely-not", "{checked}");
        settled_while_behind += u32::from(checked["confirmed"] == true);
        // Of another store nobody here knows.
        let checked = check(body("never@example.com", &elsewhere["watermark"])).await;
        assert_unsettled(&checked);
    }
    assert!(settled_while_behind > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_another_form_of_the_profile_settle_nothing() {
    let database = Database::create().await;
    let service = start(EMAIL, &database).await;
    service.add("email", "ann@example.com").await;
    remove(&service, "ann@example.com").await;
    assert!(is_settled_absent(
        &confirm(&service, "ann@example.com").await
    ));
    database
        .execute("UPDATE bloomgate.filter SET canonical_forms = canonical_forms || '{email/0}'")
        .await;
    assert_unsettled(&confirm(&service, "ann@example.com").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_settles_that_an_item_is_there_and_never_that_it_is_not() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    database
        .execute("CREATE TABLE person (email text); INSERT INTO person VALUES ('ann@example.com')")
        .await;
    database.pool().close().await;
    cluster.stop_fast().await;
    cluster.start_as_standby().await;
    let stored = Database::create().await;
    let at = format!("database_url = \"{}\"\n", database.url());
    let service = start(&with_source(CASELESS, &at), &stored).await;
    service.add("email", "ben@example.com").await;
    remove(&service, "ben@example.com").await;
    assert!(is_settled_present(
        &confirm(&service, "ANN@example.com").await
    ));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert_unsettled(&confirm(&service, "ben@example.com").await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
