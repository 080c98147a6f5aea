//! Log out everywhere: an item that is in the set for the tokens alone that were issued until a time.

mod authz;
mod older;
mod times;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Bloomgate, Checked, Database, Launch, eventually};

/// Long enough for whatever must come on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

const CONFIG: &str = "
poll_interval = \"100ms\"
rebuild_interval = \"100h\"
[authz.api]
jti = \"revoked-jti\"
sub = \"revoked-subject\"
[authz.strict]
jti = \"revoked-jti\"
sub = \"revoked-subject\"
on_maybe = \"deny\"
[filters.revoked-jti]
profile = \"jti\"
capacity = 1000
false_positive_rate = 1e-9
[filters.revoked-subject]
profile = \"text\"
capacity = 1000
false_positive_rate = 1e-9
";

const SUBJECT: &str = "revoked-subject";

const EARLY: &str = "2030-01-01T00:00:00Z";
const LATE: &str = "2030-01-01T00:00:01Z";
/// A microsecond after each of them.
const AFTER_EARLY: &str = "2030-01-01T00:00:00.000001Z";
const AFTER_LATE: &str = "2030-01-01T00:00:01.000001Z";
/// Later than any token.
const NEVER: &str = "9999-01-01T00:00:00Z";

/// What a look-up may come to: the verdict, and `confirmed`.
type Said = (&'static str, Option<bool>);
const REVOKED: Said = ("maybe", Some(true));
const NOT: Said = ("definitely-not", Some(true));
const OPEN: Said = ("maybe", None);

async fn start_on(database: &Database) -> Bloomgate {
    live(Launch::new().config(CONFIG).database_url(database.url())).await
}

async fn live(launch: Launch) -> Bloomgate {
    let service = launch.start().await;
    wait_live(&service).await;
    service
}

async fn wait_live(service: &Bloomgate) {
    for filter in ["revoked-jti", SUBJECT] {
        service.wait_live(filter).await;
    }
}

/// The program on each store, and the database of the second.
async fn on_each_store() -> ([Bloomgate; 2], Database) {
    let database = Database::create().await;
    let sqlite = live(Launch::new().config(CONFIG)).await;
    ([sqlite, start_on(&database).await], database)
}

fn item(item: &str, until: Option<&str>) -> Value {
    match until {
        Some(until) => json!({ "item": item, "revoke_issued_until": until }),
        None => json!({ "item": item }),
    }
}

async fn add(service: &Bloomgate, filter: &str, name: &str, until: Option<&str>) -> Value {
    let path = format!("/v1/filters/{filter}/add");
    service
        .post(&path, &item(name, until))
        .await
        .expect_status(200)
}

async fn remove(service: &Bloomgate, name: &str) {
    let path = format!("/v1/filters/{SUBJECT}/remove");
    let answer = service.post(&path, &json!({ "item": name })).await;
    assert_eq!(answer.expect_status(200)["removed"], true);
}

/// Asks with `confirm` and what else is given.
async fn ask(service: &Bloomgate, filter: &str, name: &str, beside: &Value) -> Checked {
    let mut body = json!({ "item": name, "confirm": true });
    for (field, value) in beside.as_object().unwrap() {
        body[field] = value.clone();
    }
    let path = format!("/v1/filters/{filter}/check");
    let answer = service.post(&path, &body).await;
    Checked::from_body(&answer.expect_status(200))
}

/// What is said of a token that was issued then.
async fn said(service: &Bloomgate, filter: &str, name: &str, issued_at: Option<&str>) -> Said {
    let beside = issued_at.map_or(json!({}), |at| json!({ "issued_at": at }));
    let checked = ask(service, filter, name, &beside).await;
    let said = [REVOKED, NOT, OPEN]
        .into_iter()
        .find(|said| (said.0, said.1) == (checked.verdict.as_str(), checked.confirmed));
    said.unwrap_or_else(|| panic!("{name}: {checked:?}"))
}

/// Fails unless exactly the tokens that were issued until then are revoked; `None` stands for all.
async fn assert_revoked(service: &Bloomgate, filter: &str, name: &str, until: Option<&str>) {
    let expected: &[(Option<&str>, Said)] = match until {
        None => &[
            (None, REVOKED),
            (Some(EARLY), REVOKED),
            (Some(NEVER), REVOKED),
        ],
        Some(EARLY) => &[
            (None, OPEN),
            (Some(EARLY), REVOKED),
            (Some(AFTER_EARLY), NOT),
        ],
        Some(LATE) => &[
            (None, OPEN),
            (Some(EARLY), REVOKED),
            (Some(LATE), REVOKED),
            (Some(AFTER_LATE), NOT),
        ],
        Some(other) => panic!("{other} is no time of these tests"),
    };
    for (issued_at, expected) in expected {
        let found = said(service, filter, name, *issued_at).await;
        assert_eq!(found, *expected, "{name} of {issued_at:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bits_alone_say_whether_the_subject_was_ever_revoked() {
    let (services, _database) = on_each_store().await;
    for service in &services {
        add(service, SUBJECT, "ann", Some(EARLY)).await;
        let path = format!("/v1/filters/{SUBJECT}/check");
        for beside in [
            json!({}),
            json!({"issued_at": NEVER}),
            json!({"issued_at": NEVER, "confirm": false}),
        ] {
            let mut body = beside;
            body["item"] = json!("ann");
            let checked = Checked::from_body(&service.post(&path, &body).await.expect_status(200));
            assert!(
                checked.is_match() && checked.confirmed.is_none(),
                "{checked:?}"
            );
        }
        assert_eq!(
            service.check_batch(SUBJECT, &["ann", "ben"]).await,
            [true, false]
        );
        let absent = ask(service, SUBJECT, "ben", &json!({ "issued_at": EARLY })).await;
        assert_eq!(
            (absent.verdict.as_str(), absent.confirmed),
            ("definitely-not", None)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_spellings_of_an_item_the_one_counts_that_revokes_most() {
    let (services, _database) = on_each_store().await;
    let filter = "revoked-jti";
    let spellings = [
        "6f9619ff-8b86-d011-b42d-00c04fc964ff",
        "6F9619FF-8B86-D011-B42D-00C04FC964FF",
        "6F9619ff-8b86-d011-b42d-00c04fc964ff",
    ];
    for service in &services {
        add(service, filter, spellings[0], Some(LATE)).await;
        add(service, filter, spellings[1], Some(EARLY)).await;
        assert_revoked(service, filter, spellings[1], Some(LATE)).await;
        add(service, filter, spellings[2], None).await;
        assert_revoked(service, filter, spellings[0], None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_takes_the_time_along_and_a_restart_keeps_it() {
    let (mut services, _database) = on_each_store().await;
    for service in &mut services {
        add(service, SUBJECT, "all", None).await;
        add(service, SUBJECT, "late", Some(LATE)).await;
        for name in ["all", "late"] {
            remove(service, name).await;
            assert_eq!(said(service, SUBJECT, name, Some(EARLY)).await, NOT);
            assert_eq!(said(service, SUBJECT, name, None).await, NOT);
            add(service, SUBJECT, name, Some(EARLY)).await;
            assert_revoked(service, SUBJECT, name, Some(EARLY)).await;
        }
        add(service, SUBJECT, "others", None).await;
        service.restart().await;
        wait_live(service).await;
        for (name, until) in [
            ("all", Some(EARLY)),
            ("late", Some(EARLY)),
            ("others", None),
        ] {
            assert_revoked(service, SUBJECT, name, until).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_there_for_other_tokens_is_no_false_match() {
    let (services, _database) = on_each_store().await;
    for service in &services {
        for number in 0..10 {
            add(service, SUBJECT, &format!("ballast {number}"), None).await;
        }
        add(service, SUBJECT, "ann", Some(EARLY)).await;
        assert_eq!(said(service, SUBJECT, "ann", Some(NEVER)).await, NOT);
        assert_eq!(said(service, SUBJECT, "ann", Some(EARLY)).await, REVOKED);
        assert_eq!(said(service, SUBJECT, "ann", None).await, OPEN);
        assert_eq!(service.describe(SUBJECT).await["measured_fp_rate"], 0.0);
        remove(service, "ann").await;
        assert_eq!(said(service, SUBJECT, "ann", None).await, NOT);
        assert_eq!(service.describe(SUBJECT).await["measured_fp_rate"], 0.25);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_source_is_for_all_tokens_and_one_that_cannot_be_asked_leaves_it_open() {
    let database = Database::create().await;
    let rows = "CREATE TABLE person (sub text); INSERT INTO person VALUES ('both'), ('other')";
    database.execute(rows).await;
    let source = format!(
        "{CONFIG}[[filters.{SUBJECT}.sources]]\nname = \"people\"\nquery = \"SELECT sub FROM person\"\n"
    );
    let asked = format!("{source}confirm_query = \"SELECT sub FROM person WHERE sub = $1\"\n");
    let launch = Launch::new().config(&asked).database_url(database.url());
    let mut service = live(launch).await;
    for name in ["both", "store"] {
        add(&service, SUBJECT, name, Some(EARLY)).await;
    }
    assert_eq!(said(&service, SUBJECT, "both", Some(NEVER)).await, REVOKED);
    assert_eq!(said(&service, SUBJECT, "both", None).await, REVOKED);
    eventually("the source is believed", DEADLINE, async || {
        let found = said(&service, SUBJECT, "store", Some(AFTER_EARLY)).await;
        assert_ne!(found, REVOKED);
        (found == NOT).then_some(())
    })
    .await;
    assert_revoked(&service, SUBJECT, "store", Some(EARLY)).await;

    service.restart_as(|launch| launch.config(&source)).await;
    wait_live(&service).await;
    assert_eq!(said(&service, SUBJECT, "store", Some(EARLY)).await, REVOKED);
    assert_eq!(said(&service, SUBJECT, "store", Some(NEVER)).await, OPEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_knows_the_time_as_soon_as_it_is_acknowledged() {
    let database = Database::create().await;
    let (one, other) = (start_on(&database).await, start_on(&database).await);
    add(&one, SUBJECT, "ann", Some(EARLY)).await;
    for number in 0..20 {
        let (until, after) = if number % 2 == 0 {
            (LATE, AFTER_LATE)
        } else {
            (EARLY, AFTER_EARLY)
        };
        let name = format!("subject {number}");
        let added = add(&one, SUBJECT, &name, Some(until)).await;
        // The bits of the other one may not have it yet.
        let ask = async |issued_at: &str| {
            let watermark = &added["watermark"];
            let beside = json!({ "issued_at": issued_at, "min_watermark": watermark });
            ask(&other, SUBJECT, &name, &beside).await
        };
        let checked = ask(until).await;
        assert_eq!((checked.verdict.as_str(), checked.confirmed), REVOKED);
        let checked = ask(after).await;
        assert_eq!((checked.verdict.as_str(), checked.confirmed), NOT);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_several_checks_has_a_time_of_its_own() {
    let (services, _database) = on_each_store().await;
    for service in &services {
        add(service, SUBJECT, "ann", Some(EARLY)).await;
        add(service, "revoked-jti", "stolen", None).await;
        let check = |filter: &str, name: &str, issued_at: Option<&str>| match issued_at {
            Some(at) => json!({ "filter": filter, "item": name, "issued_at": at }),
            None => json!({ "filter": filter, "item": name }),
        };
        let checks = [
            (check(SUBJECT, "ann", Some(EARLY)), json!(["maybe", true])),
            (
                check(SUBJECT, "ann", Some(AFTER_EARLY)),
                json!(["definitely-not", true]),
            ),
            (check(SUBJECT, "ann", None), json!(["maybe", null])),
            (
                check("revoked-jti", "stolen", Some(NEVER)),
                json!(["maybe", true]),
            ),
            (
                check("revoked-jti", "live", Some(EARLY)),
                json!(["definitely-not", null]),
            ),
        ];
        let body = json!({ "checks": checks.each_ref().map(|check| &check.0), "confirm": true });
        let body = service.post("/v1/check", &body).await.expect_status(200);
        for (found, (check, expected)) in body["results"].as_array().unwrap().iter().zip(&checks) {
            assert_eq!(
                json!([found["verdict"], found["confirmed"]]),
                *expected,
                "{check}"
            );
        }
        // All together are not revoked where none is.
        let body = json!({ "checks": [&checks[1].0, &checks[4].0], "confirm": true });
        let body = service.post("/v1/check", &body).await.expect_status(200);
        assert_eq!(body["verdict"], "definitely-not");
    }
}
