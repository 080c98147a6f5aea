//! Following: whoever wrote a row, and however its transaction lay beside others, the next poll
//! brings it; and where a poll could miss one, it says so.

use std::time::Duration;

use bloomgate::service::cursor::Cursor;
use bloomgate::service::ports::{Store, StoreError};
use bloomgate::store::{PostgresStore, SqliteStore};
use sqlx::{Connection as _, PgConnection};

use super::rows::{
    Rows, declared, expiring, followed, loaded, open_postgres, polled, postgres_options, row,
};
use crate::support::{Cluster, Conduct, Database, Proxy, eventually};

const DEADLINE: Duration = Duration::from_secs(20);

#[track_caller]
fn assert_void<T: std::fmt::Debug>(outcome: Result<T, StoreError>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, StoreError::CursorVoid { .. }), "{error}");
}

async fn now(store: &dyn Store) -> Cursor {
    polled(store).await.unwrap().cursor
}

#[tokio::test]
async fn what_one_process_adds_the_other_is_told_once_and_again_when_it_is_added_again() {
    let database = Database::create().await;
    let (one, other) = (
        open_postgres(database.url()).await,
        open_postgres(database.url()).await,
    );
    let filter = declared(&one, "f").await.id;
    one.add(&[row(filter, "before")]).await.unwrap();
    let cursor = now(&other).await;
    let receipt = one
        .add(&[row(filter, "a"), expiring(filter, "b", 1)])
        .await
        .unwrap();
    assert!(!cursor.reaches(receipt.timeline, receipt.place));
    let (items, cursor) = followed(&other, &cursor).await.unwrap();
    assert_eq!(items, ["a", "b"]);
    assert!(cursor.reaches(receipt.timeline, receipt.place));
    let (items, cursor) = followed(&other, &cursor).await.unwrap();
    assert!(items.is_empty());
    // A generation that was built without the expired row hears of it again.
    one.add(&[row(filter, "b")]).await.unwrap();
    let (items, _) = followed(&other, &cursor).await.unwrap();
    assert_eq!(items, ["b"]);
}

/// Adds an item by hand, in a transaction that stays open.
async fn begin_add(connection: &mut PgConnection, like: &str, item: &str) {
    sqlx::query("BEGIN")
        .execute(&mut *connection)
        .await
        .unwrap();
    sqlx::query(
        "INSERT INTO bloomgate.item (filter_id, item, item_digest, canonical_digest, profile_version)
         SELECT filter_id, convert_to($1, 'UTF8'), sha256(convert_to($1, 'UTF8')),
                sha256(convert_to($1, 'UTF8')), 1
           FROM bloomgate.item WHERE item = convert_to($2, 'UTF8')",
    )
    .bind(item)
    .bind(like)
    .execute(connection)
    .await
    .unwrap();
}

#[tokio::test]
async fn a_transaction_that_commits_late_is_found_whatever_has_committed_before_it() {
    let database = Database::create().await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    store.add(&[row(filter, "first")]).await.unwrap();
    let cursor = now(&store).await;
    let mut early = PgConnection::connect(database.url()).await.unwrap();
    begin_add(&mut early, "first", "committed late").await;
    store.add(&[row(filter, "committed early")]).await.unwrap();
    let (items, cursor) = followed(&store, &cursor).await.unwrap();
    assert_eq!(items, ["committed early"]);
    let (items, cursor) = followed(&store, &cursor).await.unwrap();
    assert!(items.is_empty());
    sqlx::query("COMMIT").execute(&mut early).await.unwrap();
    let (items, _) = followed(&store, &cursor).await.unwrap();
    assert_eq!(items, ["committed late"]);
}

#[tokio::test]
async fn a_transaction_left_open_in_another_database_holds_up_nothing() {
    let (database, other) = (Database::create().await, Database::create().await);
    let mut open = PgConnection::connect(other.url()).await.unwrap();
    for statement in ["BEGIN", "CREATE TABLE t ()"] {
        sqlx::query(statement).execute(&mut open).await.unwrap();
    }
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    let cursor = now(&store).await;
    store.add(&[row(filter, "a")]).await.unwrap();
    let (items, _) = followed(&store, &cursor).await.unwrap();
    assert_eq!(items, ["a"]);
}

#[tokio::test]
async fn a_load_since_a_cursor_brings_what_was_written_since_and_the_cursor_goes_on_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::create().await;
    let sqlite = SqliteStore::new(folder.path());
    sqlite.open().await.unwrap();
    let postgres = open_postgres(database.url()).await;
    for store in [&sqlite as &dyn Store, &postgres] {
        let filter = declared(store, "f").await.id;
        store
            .add(&[row(filter, "a"), row(filter, "b")])
            .await
            .unwrap();
        let mut rows = Rows::default();
        let cut = store.load(filter, None, &mut rows).await.unwrap();
        store
            .add(&[row(filter, "b"), row(filter, "c")])
            .await
            .unwrap();
        let mut rows = Rows::default();
        let cut = store.load(filter, Some(&cut), &mut rows).await.unwrap();
        assert_eq!(rows.items(), ["b", "c"]);
        assert_eq!(rows.expected, 2);
        store.add(&[row(filter, "d")]).await.unwrap();
        let (items, _) = followed(store, &cut).await.unwrap();
        assert_eq!(items, ["d"]);
    }
}

#[tokio::test]
async fn after_a_crash_transaction_ids_may_come_again_and_the_cursor_is_void() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    store.add(&[row(filter, "a")]).await.unwrap();
    // Ids that are used and not logged come again after the crash.
    for _ in 0..5 {
        let mut unlogged = database.pool().begin().await.unwrap();
        sqlx::query("SELECT pg_current_xact_id()")
            .execute(&mut *unlogged)
            .await
            .unwrap();
        unlogged.rollback().await.unwrap();
    }
    let cursor = now(&store).await;
    cluster.kill_9().await;
    cluster.start_again().await;
    let other = open_postgres(database.url()).await;
    let receipt = other.add(&[row(filter, "b")]).await.unwrap();
    assert!(!cursor.reaches(receipt.timeline, receipt.place));
    eventually(
        "the server is asked again",
        DEADLINE,
        async || match followed(&store, &cursor).await {
            Err(StoreError::CursorVoid { .. }) => Some(()),
            Err(StoreError::Unreachable { .. }) => None,
            other => panic!("{other:?}"),
        },
    )
    .await;
    assert_void(
        store
            .load(filter, Some(&cursor), &mut Rows::default())
            .await,
    );
    assert_eq!(loaded(&store, filter).await.items(), ["a", "b"]);
    let cursor = now(&store).await;
    assert!(cursor.reaches(receipt.timeline, receipt.place));
}

#[tokio::test]
async fn a_server_that_was_stopped_and_started_in_good_order_is_followed_on() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    let cursor = now(&store).await;
    cluster.stop_fast().await;
    cluster.start_again().await;
    let other = open_postgres(database.url()).await;
    other.add(&[row(filter, "a")]).await.unwrap();
    let items = eventually(
        "the server is asked again",
        DEADLINE,
        async || match followed(&store, &cursor).await {
            Ok((items, _)) => Some(items),
            Err(StoreError::Unreachable { .. }) => None,
            Err(other) => panic!("{other}"),
        },
    )
    .await;
    assert_eq!(items, ["a"]);
}

#[tokio::test]
async fn a_copy_that_was_made_of_a_stopped_server_voids_what_was_followed_after_it() {
    let mut cluster = Cluster::start().await;
    let database = cluster.create_database().await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    let before = now(&store).await;
    let backup = cluster.cold_backup().await;
    let store = open_postgres(database.url()).await;
    let after = now(&store).await;

    // The copy has the marker and all, and here it hands out the ids that were seen and more.
    cluster.restore_from(&backup).await;
    let store = open_postgres(database.url()).await;
    for item in ["a", "b", "c", "d", "e"] {
        store.add(&[row(filter, item)]).await.unwrap();
    }
    let moment = now(&store).await;
    assert!(moment.next > after.next, "{moment:?} {after:?}");
    assert_eq!(moment.timeline, after.timeline);
    assert_void(followed(&store, &after).await);
    assert_void(store.load(filter, Some(&after), &mut Rows::default()).await);
    // What was followed before the copy was made is true of it as well.
    let (items, _) = followed(&store, &before).await.unwrap();
    assert_eq!(items, ["a", "b", "c", "d", "e"]);
}

#[tokio::test]
async fn another_database_of_the_same_server_is_another_timeline() {
    let (one, other) = (Database::create().await, Database::create().await);
    let (here, there) = (
        open_postgres(one.url()).await,
        open_postgres(other.url()).await,
    );
    let cursor = now(&here).await;
    assert_void(followed(&there, &cursor).await);
}

#[tokio::test]
async fn ids_that_have_gone_back_void_the_cursor() {
    let database = Database::create().await;
    let store = open_postgres(database.url()).await;
    let cursor = now(&store).await;
    let ahead = Cursor {
        next: bloomgate::service::ports::Place(cursor.next.0 + 1_000_000),
        ..cursor
    };
    assert_void(followed(&store, &ahead).await);
}

#[tokio::test]
async fn a_marker_that_was_taken_away_voids_the_cursor_and_comes_back_as_another() {
    let database = Database::create().await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    let cursor = now(&store).await;
    database.execute("TRUNCATE bloomgate.marker").await;
    assert_void(followed(&store, &cursor).await);
    store.open().await.unwrap();
    assert_void(followed(&store, &cursor).await);
    let cursor = now(&store).await;
    store.add(&[row(filter, "a")]).await.unwrap();
    assert_eq!(followed(&store, &cursor).await.unwrap().0, ["a"]);
}

#[tokio::test]
async fn a_file_that_was_put_back_to_an_earlier_state_voids_the_cursor() {
    let (folder, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    };
    let store = SqliteStore::new(folder.path());
    store.open().await.unwrap();
    let filter = declared(&store, "f").await.id;
    store.add(&[row(filter, "a")]).await.unwrap();
    let kept = now(&store).await;
    store.close().await;
    copy(folder.path(), backup.path());
    store.open().await.unwrap();
    store.add(&[row(filter, "lost")]).await.unwrap();
    let lost = now(&store).await;
    store.close().await;
    copy(backup.path(), folder.path());

    store.open().await.unwrap();
    // The same number again, for another item.
    store.add(&[row(filter, "b")]).await.unwrap();
    let mut rows = Rows::default();
    assert_void(store.load(filter, Some(&lost), &mut rows).await);
    store.load(filter, Some(&kept), &mut rows).await.unwrap();
    assert_eq!(rows.items(), ["b"]);
}

#[tokio::test]
async fn a_file_that_was_put_back_within_one_opening_voids_what_was_seen_past_it() {
    let (folder, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = "bloomgate.sqlite";
    let store = SqliteStore::new(folder.path());
    store.open().await.unwrap();
    let filter = declared(&store, "f").await.id;
    store.add(&[row(filter, "a")]).await.unwrap();
    let kept = now(&store).await;
    let mut reader = sqlx::SqliteConnection::connect(folder.path().join(file).to_str().unwrap())
        .await
        .unwrap();
    sqlx::query("VACUUM INTO ?")
        .bind(backup.path().join(file).to_str().unwrap())
        .execute(&mut reader)
        .await
        .unwrap();
    reader.close().await.unwrap();
    store.add(&[row(filter, "lost")]).await.unwrap();
    let lost = now(&store).await;
    store.close().await;
    std::fs::copy(backup.path().join(file), folder.path().join(file)).unwrap();

    store.open().await.unwrap();
    store.add(&[row(filter, "b")]).await.unwrap();
    let mut rows = Rows::default();
    assert_void(store.load(filter, Some(&lost), &mut rows).await);
    store.load(filter, Some(&kept), &mut rows).await.unwrap();
    assert_eq!(rows.items(), ["b"]);
}

#[tokio::test]
async fn each_process_reports_with_its_poll_what_it_has_followed_before() {
    let database = Database::create().await;
    let (one, other) = (
        open_postgres(database.url()).await,
        open_postgres(database.url()).await,
    );
    assert!(one.replicas().await.unwrap().is_empty());
    let cursor = now(&other).await;
    let [first] = one.replicas().await.unwrap().try_into().unwrap();
    assert_eq!(first.cursor, None, "it had followed nothing before");
    followed(&other, &cursor).await.unwrap();
    let [second] = one.replicas().await.unwrap().try_into().unwrap();
    assert_eq!(second.cursor, Some(cursor));
    assert_eq!((second.id, second.reports), (first.id, first.reports + 1));
    assert_eq!(second.max_staleness, Duration::from_secs(30));
    other.close().await;
    assert!(one.replicas().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_add_hints_at_a_poll_in_the_other_process() {
    let database = Database::create().await;
    let (one, other) = (
        open_postgres(database.url()).await,
        open_postgres(database.url()).await,
    );
    let filter = declared(&one, "f").await.id;
    // The first is for having begun to listen.
    other.hint().await;
    let rows = [row(filter, "a")];
    let (hint, added) = tokio::join!(tokio::time::timeout(DEADLINE, other.hint()), one.add(&rows));
    hint.unwrap();
    added.unwrap();
}

#[tokio::test]
async fn every_declaration_and_deletion_shows_in_the_next_poll() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::create().await;
    let sqlite = SqliteStore::new(folder.path());
    sqlite.open().await.unwrap();
    let postgres = open_postgres(database.url()).await;
    for store in [&sqlite as &dyn Store, &postgres] {
        let before = polled(store).await.unwrap().declarations;
        let filter = declared(store, "f").await.id;
        let made = polled(store).await.unwrap().declarations;
        assert!(made > before);
        assert!(store.delete(filter).await.unwrap());
        assert!(polled(store).await.unwrap().declarations > made);
    }
}

#[tokio::test]
async fn a_half_open_connection_fails_the_poll_before_the_filters_are_stale() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let mut options = postgres_options(&database.url_at(&proxy.address()));
    options.max_staleness = Duration::from_secs(2);
    let store = PostgresStore::new(&options).unwrap();
    store.open().await.unwrap();
    let cursor = now(&store).await;
    proxy.switch(Conduct::Freeze);
    let asked = std::time::Instant::now();
    let error = followed(&store, &cursor).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert!(asked.elapsed() < Duration::from_secs(2));
    proxy.switch(Conduct::Pass);
    followed(&store, &cursor).await.unwrap();
}
