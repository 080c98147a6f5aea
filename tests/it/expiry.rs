//! Expiry: an item is kept until its expiry and the leeway are over, and not for long after.

use std::time::Duration;

use bloomgate::filter::profile::Profile;
use bloomgate::service::declaration::{Declaration, DeclaredBy, FilterName};
use bloomgate::service::ports::{NewRow, Store, StoredFilter};
use bloomgate::service::terms::Terms;
use bloomgate::store::{PostgresStore, PostgresStoreOptions, SqliteStore};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::{Bloomgate, Database, Launch, eventually};

const DEADLINE: Duration = Duration::from_secs(30);

/// Long enough for a statement that waits for nobody.
const NO_WAIT: Duration = Duration::from_secs(10);

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn config(leeway: &str) -> String {
    format!(
        "poll_interval = \"200ms\"\nexpiry_leeway = \"{leeway}\"\n[filters.text]\n\
         profile = \"text\"\ncapacity = 10000\nfalse_positive_rate = 1e-9\n"
    )
}

/// So many seconds from now.
fn at(seconds: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_secs(seconds)
}

async fn add(service: &Bloomgate, item: &str, expires_at: Option<Timestamp>) {
    let mut body = json!({ "item": item });
    if let Some(expires_at) = expires_at {
        body["expires_at"] = json!(expires_at.to_string());
    }
    let answer = service.post("/v1/filters/text/add", &body).await;
    answer.expect_status(200);
}

async fn rebuild(service: &Bloomgate) {
    let before = service.describe("text").await["generation"].as_u64();
    let answer = service.post("/v1/filters/text/rebuild", &json!({})).await;
    answer.expect_status(202);
    eventually("the filter is rebuilt", DEADLINE, async || {
        let now = service.describe("text").await["generation"].as_u64();
        (now > before).then_some(())
    })
    .await;
}

async fn expires(service: &mut Bloomgate) {
    add(service, "never", None).await;
    add(service, "an hour ago", Some(at(-3_600))).await;
    add(service, "half a minute ago", Some(at(-30))).await;
    for (item, expiries) in [
        ("later, then sooner", [Some(at(3_600)), Some(at(-3_600))]),
        ("sooner, then later", [Some(at(-3_600)), Some(at(3_600))]),
        ("never, then sooner", [None, Some(at(-3_600))]),
        ("sooner, then never", [Some(at(-3_600)), None]),
    ] {
        for expires_at in expiries {
            add(service, item, expires_at).await;
        }
    }
    // What has expired is looked for at the start, and each minute.
    service.restart().await;
    service.wait_live("text").await;
    eventually("what has expired is deleted", DEADLINE, async || {
        service
            .logs()
            .contains("expired rows were deleted")
            .then_some(())
    })
    .await;
    rebuild(service).await;
    let kept = [
        "never",
        "half a minute ago",
        "later, then sooner",
        "sooner, then later",
        "never, then sooner",
        "sooner, then never",
    ];
    for item in kept {
        assert!(service.check("text", item).await.is_match(), "{item}");
    }
    let checked = service.check("text", "an hour ago").await;
    assert_eq!(checked.verdict, "definitely-not");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_kept_until_its_longest_expiry_and_the_leeway_are_over() {
    let mut sqlite = Launch::new().config(&config("60s")).start().await;
    sqlite.wait_live("text").await;
    expires(&mut sqlite).await;
    let database = Database::create().await;
    let launch = Launch::new().config(&config("60s"));
    let mut service = launch.database_url(database.url()).start().await;
    service.wait_live("text").await;
    expires(&mut service).await;
    let rows: i64 = database
        .query_value("SELECT count(*) FROM bloomgate.item")
        .await;
    let forgotten: i64 = database
        .query_value("SELECT forgotten FROM bloomgate.filter WHERE name = 'text'")
        .await;
    assert_eq!((rows, forgotten), (6, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_item_that_is_confirmed_counts_as_absent_only_past_the_leeway() {
    let service = Launch::new().config(&config("60s")).start().await;
    service.wait_live("text").await;
    add(&service, "an hour ago", Some(at(-3_600))).await;
    add(&service, "half a minute ago", Some(at(-30))).await;
    for (item, verdict) in [
        ("an hour ago", "definitely-not"),
        ("half a minute ago", "maybe"),
    ] {
        let body = json!({ "item": item, "confirm": true });
        let answer = service.post("/v1/filters/text/check", &body).await;
        let checked = answer.expect_status(200);
        assert_eq!(
            (&checked["verdict"], &checked["confirmed"]),
            (&json!(verdict), &json!(true))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_added_again_after_it_has_expired_is_there_on_a_replica_that_forgot_it() {
    let database = Database::create().await;
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let launch = Launch::new().config(&config("0s"));
        let replica = launch.database_url(database.url()).start().await;
        replica.wait_live("text").await;
        replicas.push(replica);
    }
    let [one, other] = &replicas[..] else {
        unreachable!()
    };
    add(one, "expires", Some(at(1))).await;
    eventually("the other knows it", DEADLINE, async || {
        other
            .check("text", "expires")
            .await
            .is_match()
            .then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    rebuild(other).await;
    let checked = other.check("text", "expires").await;
    assert_eq!(checked.verdict, "definitely-not");
    add(one, "expires", Some(at(3_600))).await;
    eventually("the other knows it again", DEADLINE, async || {
        other
            .check("text", "expires")
            .await
            .is_match()
            .then_some(())
    })
    .await;
}

async fn declared(store: &dyn Store) -> StoredFilter {
    store.open().await.unwrap();
    let declaration = Declaration::new(Profile::Text, 1_000, 0.01).unwrap();
    let name = FilterName::parse("text").unwrap();
    let declared = store.declare(&name, &declaration, DeclaredBy::Api).await;
    declared.unwrap().unwrap()
}

fn expired(filter: &StoredFilter, item: &str) -> NewRow {
    NewRow {
        filter: filter.id,
        item: item.as_bytes().into(),
        canonical: item.as_bytes().into(),
        profile_version: 1,
        terms: Terms {
            expires_at: Some(at(-3_600)),
            revoke_issued_until: None,
        },
    }
}

fn postgres(database: &Database) -> PostgresStore {
    PostgresStore::new(&PostgresStoreOptions {
        url: database.url().into(),
        max_staleness: Duration::from_secs(30),
        max_connections: 4,
    })
    .unwrap()
}

async fn prunes_in_parts(store: &dyn Store) {
    let filter = declared(store).await;
    let rows: Vec<_> = (0..12_000)
        .map(|item| expired(&filter, &item.to_string()))
        .collect();
    for rows in rows.chunks(5_000) {
        store.add(rows).await.unwrap();
    }
    let mut parts = Vec::new();
    loop {
        let pruned = store.prune(MINUTE).await.unwrap();
        parts.push(pruned.rows);
        if !pruned.more {
            break;
        }
    }
    assert_eq!(parts, [5_000, 5_000, 2_000]);
    assert_eq!(store.filters().await.unwrap()[0].forgotten, 12_000);
    assert_eq!(store.prune(MINUTE).await.unwrap().rows, 0);
}

#[tokio::test]
async fn what_has_expired_is_deleted_in_parts_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    prunes_in_parts(&SqliteStore::new(folder.path())).await;
    let database = Database::create().await;
    prunes_in_parts(&postgres(&database)).await;
}

#[tokio::test]
async fn an_item_whose_expiry_is_put_off_while_what_has_expired_is_deleted_stays() {
    let database = Database::create().await;
    let store = postgres(&database);
    let filter = declared(&store).await;
    let rows = ["put off", "expired"].map(|item| expired(&filter, item));
    store.add(&rows).await.unwrap();
    let mut adding = database.pool().begin().await.unwrap();
    sqlx::query("UPDATE bloomgate.item SET expires_at = now() + '1 h' WHERE item = 'put off'")
        .execute(&mut *adding)
        .await
        .unwrap();
    // It waits for nobody, and so holds nobody up.
    let pruned = tokio::time::timeout(NO_WAIT, store.prune(MINUTE)).await;
    assert_eq!(pruned.unwrap().unwrap().rows, 1);
    adding.commit().await.unwrap();
    assert_eq!(store.prune(MINUTE).await.unwrap().rows, 0);
    let left: String = database
        .query_value("SELECT convert_from(item, 'UTF8') FROM bloomgate.item")
        .await;
    assert_eq!(left, "put off");
}

#[tokio::test]
async fn an_add_that_waits_for_the_deletion_of_its_expired_row_brings_it_back() {
    let database = Database::create().await;
    let store = postgres(&database);
    let filter = declared(&store).await;
    store.add(&[expired(&filter, "again")]).await.unwrap();
    let mut deleting = database.pool().begin().await.unwrap();
    sqlx::query("DELETE FROM bloomgate.item")
        .execute(&mut *deleting)
        .await
        .unwrap();
    let again = NewRow {
        terms: Terms::default(),
        ..expired(&filter, "again")
    };
    let adding = tokio::spawn(async move {
        store.add(&[again]).await.unwrap();
    });
    eventually("the add waits", DEADLINE, async || {
        let waiting: i64 = database
            .query_value("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
            .await;
        (waiting > 0).then_some(())
    })
    .await;
    deleting.commit().await.unwrap();
    adding.await.unwrap();
    let rows: i64 = database
        .query_value("SELECT count(*) FROM bloomgate.item WHERE expires_at IS NULL")
        .await;
    assert_eq!(rows, 1);
}
