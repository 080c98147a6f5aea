//! In the midst of a roll-out: a process from before the times runs on, beside one that knows them, and
//! what it adds is revoked for all tokens. And what was there before is revoked for all of them.

use std::time::{Duration, Instant};

use sqlx::{Connection as _, SqliteConnection};

use super::{
    CONFIG, DEADLINE, EARLY, LATE, SUBJECT, add, assert_revoked, live, start_on, wait_live,
};
use crate::support::{Bloomgate, Database, Launch, eventually};

/// How such a process adds an item, `$1`, to the filter named `$2`: its statement, but for the filters'
/// lock and the notice.
const OLDER_ADD: &str = "
INSERT INTO bloomgate.item AS kept
       (filter_id, item, item_digest, canonical_digest, profile_version, expires_at)
SELECT id, convert_to($1, 'UTF8'), sha256(convert_to($1, 'UTF8')), sha256(convert_to($1, 'UTF8')), 1, NULL
  FROM bloomgate.filter WHERE name = $2
ON CONFLICT (filter_id, item_digest) DO UPDATE
   SET expires_at = CASE WHEN kept.expires_at IS NULL OR excluded.expires_at IS NULL THEN NULL
                         ELSE greatest(kept.expires_at, excluded.expires_at) END,
       canonical_digest = excluded.canonical_digest,
       profile_version = excluded.profile_version,
       xid = pg_current_xact_id()";

const POSTGRES_AS_BEFORE: &str = "
ALTER TABLE bloomgate.item DROP COLUMN revoke_issued_until, DROP COLUMN revoke_xid;
DELETE FROM bloomgate.migration WHERE version = 3";

const SQLITE_AS_BEFORE: &str = "
ALTER TABLE item DROP COLUMN revoke_issued_until;
DELETE FROM migration WHERE version = 3";

async fn older_add(database: &Database, name: &str) {
    let add = sqlx::query(OLDER_ADD).bind(name).bind(SUBJECT);
    let added = add.execute(database.pool()).await.unwrap();
    assert_eq!(added.rows_affected(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_adds_that_knows_of_no_times_is_revoked_for_all_tokens() {
    let database = Database::create().await;
    let service = start_on(&database).await;
    for name in ["ann", "ben"] {
        add(&service, SUBJECT, name, Some(LATE)).await;
        assert_revoked(&service, SUBJECT, name, Some(LATE)).await;
        older_add(&database, name).await;
        assert_revoked(&service, SUBJECT, name, None).await;
        // A time that comes after it takes nothing back.
        add(&service, SUBJECT, name, Some(EARLY)).await;
        add(&service, SUBJECT, name, Some(LATE)).await;
        assert_revoked(&service, SUBJECT, name, None).await;
    }
    older_add(&database, "carl").await;
    eventually("what it adds is followed", DEADLINE, async || {
        service
            .check(SUBJECT, "carl")
            .await
            .is_match()
            .then_some(())
    })
    .await;
    assert_revoked(&service, SUBJECT, "carl", None).await;
    add(&service, SUBJECT, "carl", Some(EARLY)).await;
    assert_revoked(&service, SUBJECT, "carl", None).await;
    // Neither is anything else of a row touched by the addition of the others.
    add(&service, SUBJECT, "dora", Some(LATE)).await;
    older_add(&database, "eve").await;
    assert_revoked(&service, SUBJECT, "dora", Some(LATE)).await;
}

async fn assert_all_revoked_from_before(service: &Bloomgate) {
    wait_live(service).await;
    assert_revoked(service, SUBJECT, "ann", None).await;
    add(service, SUBJECT, "ann", Some(EARLY)).await;
    assert_revoked(service, SUBJECT, "ann", None).await;
    add(service, SUBJECT, "ben", Some(EARLY)).await;
    assert_revoked(service, SUBJECT, "ben", Some(EARLY)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_before_the_times_is_revoked_for_all_tokens() {
    let database = Database::create().await;
    let mut service = start_on(&database).await;
    add(&service, SUBJECT, "ann", None).await;
    service.kill_9();
    database.execute(POSTGRES_AS_BEFORE).await;
    assert_all_revoked_from_before(&start_on(&database).await).await;

    let mut service = live(Launch::new().config(CONFIG)).await;
    add(&service, SUBJECT, "ann", None).await;
    service.kill_9();
    let file = service.launched_as().data_dir().join("bloomgate.sqlite");
    let url = format!("sqlite://{}", file.display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let altered = sqlx::raw_sql(SQLITE_AS_BEFORE)
        .execute(&mut connection)
        .await;
    altered.unwrap();
    connection.close().await.unwrap();
    service.restart().await;
    assert_all_revoked_from_before(&service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_process_that_cannot_change_the_table_yet_keeps_no_older_one_waiting() {
    let database = Database::create().await;
    let mut service = start_on(&database).await;
    add(&service, SUBJECT, "ann", None).await;
    service.kill_9();
    database.execute(POSTGRES_AS_BEFORE).await;
    // As the load of an older process, which takes its time.
    let mut loading = database.pool().begin().await.unwrap();
    let rows = sqlx::query("SELECT FROM bloomgate.item").execute(&mut *loading);
    rows.await.unwrap();

    let launch = Launch::new().config(CONFIG).database_url(database.url());
    let newer = launch.start().await;
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    while begun.elapsed() < Duration::from_secs(8) {
        let sent = Instant::now();
        older_add(&database, "ben").await;
        longest = longest.max(sent.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // With what a busy machine takes.
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    let checked = newer.check(SUBJECT, "absent").await;
    assert_eq!(checked.reason.as_deref(), Some("loading"), "{checked:?}");
    loading.commit().await.unwrap();
    wait_live(&newer).await;
    assert_revoked(&newer, SUBJECT, "ann", None).await;
    add(&newer, SUBJECT, "carl", Some(EARLY)).await;
    assert_revoked(&newer, SUBJECT, "carl", Some(EARLY)).await;
}
