//! What the store on SQLite keeps, through restarts and a full disk.

use std::path::Path;

use bloomgate::filter::profile::{EmailOptions, Profile};
use bloomgate::service::declaration::{Declaration, DeclaredBy, DeclaredSource};
use bloomgate::service::ports::{Store, StoreError};
use bloomgate::store::SqliteStore;
use sqlx::{Connection as _, SqliteConnection};

use super::rows::{
    a_declaration, bytes_row, declared, expiring, filter_name, loaded, moment, polled, purge_all,
    row, unknown_filter,
};

async fn open(folder: &Path) -> SqliteStore {
    let store = SqliteStore::new(folder);
    store.open().await.unwrap();
    store
}

/// Statements on the store's file, from outside.
async fn execute(folder: &Path, statement: &'static str) {
    let path = folder.join("bloomgate.sqlite");
    let mut connection = SqliteConnection::connect(path.to_str().unwrap())
        .await
        .unwrap();
    sqlx::raw_sql(statement)
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn what_was_added_is_there_after_a_restart_and_so_is_the_identity() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::new(folder.path());
    let identity = store.open().await.unwrap();
    let filter = declared(&store, "f").await;
    let mut rows: Vec<_> = [&b"plain"[..], b"\xff no UTF-8", b"with \0 in it", b""]
        .map(|item| bytes_row(filter.id, item))
        .into();
    rows[1].terms.expires_at = Some("2031-05-06T07:08:09.000001Z".parse().unwrap());
    store.add(&rows).await.unwrap();
    // No close: as after a kill, the log is all there is.
    drop(store);

    let store = SqliteStore::new(folder.path());
    assert_eq!(store.open().await.unwrap(), identity);
    assert_eq!(
        store.filters().await.unwrap(),
        std::slice::from_ref(&filter)
    );
    let mut found = loaded(&store, filter.id).await.found;
    found.sort();
    let mut expected: Vec<_> = rows
        .iter()
        .map(|row| (row.item.to_vec(), row.terms.expires_at))
        .collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn the_later_expiry_wins_and_none_beats_any() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let filter = declared(&store, "f").await.id;
    let first = [
        expiring(filter, "up", 100),
        expiring(filter, "down", 200),
        expiring(filter, "to never", 100),
        row(filter, "from never"),
    ];
    let second = [
        expiring(filter, "up", 200),
        expiring(filter, "down", 100),
        row(filter, "to never"),
        expiring(filter, "from never", 100),
    ];
    store.add(&first).await.unwrap();
    store.add(&second).await.unwrap();
    let expiries = loaded(&store, filter).await.expiries();
    assert_eq!(expiries["up"], Some(moment(200)));
    assert_eq!(expiries["down"], Some(moment(200)));
    assert_eq!(expiries["to never"], None);
    assert_eq!(expiries["from never"], None);
}

#[tokio::test]
async fn a_place_is_never_given_twice() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let filter = declared(&store, "f").await.id;
    let first = store.add(&[row(filter, "a")]).await.unwrap().place;
    store.delete(filter).await.unwrap();
    store.close().await;
    store.open().await.unwrap();
    let filter = declared(&store, "f").await.id;
    let second = store.add(&[row(filter, "a")]).await.unwrap();
    assert!(second.place > first);
    let mut rows = super::rows::Rows::default();
    let cut = store.load(filter, None, &mut rows).await.unwrap();
    assert!(cut.reaches(second.timeline, second.place));
}

#[tokio::test]
async fn an_add_names_the_filters_that_are_gone_and_writes_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let kept = declared(&store, "kept").await.id;
    let gone = declared(&store, "gone").await.id;
    store.add(&[row(gone, "a")]).await.unwrap();
    assert!(store.delete(gone).await.unwrap());
    assert!(!store.delete(gone).await.unwrap());
    let rows = [row(gone, "a"), row(kept, "a"), row(gone, "b")];
    let receipt = store.add(&rows).await.unwrap();
    assert_eq!(receipt.deleted, [gone]);
    purge_all(&store).await;
    assert_eq!(loaded(&store, kept).await.items(), ["a"]);
    assert!(loaded(&store, gone).await.found.is_empty());
    assert!(loaded(&store, unknown_filter()).await.found.is_empty());
}

#[tokio::test]
async fn a_declaration_comes_back_as_it_was_made_and_keeps_its_identity() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let mut emails = Declaration::new(
        Profile::Email(EmailOptions {
            gmail_dots: true,
            googlemail: false,
            plus_tags: true,
        }),
        5_000_000,
        0.001,
    )
    .unwrap();
    emails.sources = ["accounts", "legacy \"users\""]
        .map(|name| DeclaredSource {
            name: name.to_owned(),
            query_digest: [7; 32],
        })
        .into();
    let name = filter_name("registered-email");
    let made = store.declare(&name, &emails, DeclaredBy::Config).await;
    let made = made.unwrap().unwrap();
    assert_eq!(store.filters().await.unwrap(), std::slice::from_ref(&made));

    let other = a_declaration();
    let by_put = store.declare(&name, &other, DeclaredBy::Api).await.unwrap();
    assert_eq!(by_put, None, "a PUT replaces nothing");
    assert_eq!(store.filters().await.unwrap(), std::slice::from_ref(&made));

    let again = store.declare(&name, &other, DeclaredBy::Config).await;
    let again = again.unwrap().unwrap();
    assert_eq!(again.id, made.id);
    assert_eq!(store.filters().await.unwrap(), [again]);
}

#[tokio::test]
async fn batches_of_any_length_are_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    for length in [0, 1, 15, 16, 17, 255, 256, 257, 543, 10_000] {
        let filter = declared(&store, &format!("f{length}")).await.id;
        let rows: Vec<_> = (0..length).map(|n| row(filter, &format!("{n}"))).collect();
        store.add(&rows).await.unwrap();
        assert_eq!(loaded(&store, filter).await.found.len(), length);
    }
}

#[tokio::test]
async fn adds_go_on_while_a_load_reads() {
    let folder = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(open(folder.path()).await);
    let filter = declared(&*store, "f").await.id;
    let rows: Vec<_> = (0..20_000).map(|n| row(filter, &format!("{n}"))).collect();
    store.add(&rows).await.unwrap();
    let adding = tokio::spawn({
        let store = store.clone();
        async move {
            for n in 0..20 {
                store
                    .add(&[row(filter, &format!("new {n}"))])
                    .await
                    .unwrap();
            }
        }
    });
    let found = loaded(&*store, filter).await.found.len();
    assert!(found >= 20_000);
    adding.await.unwrap();
    assert_eq!(loaded(&*store, filter).await.found.len(), 20_020);
}

#[tokio::test]
async fn a_schema_of_a_newer_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).await.close().await;
    execute(
        folder.path(),
        "INSERT INTO migration (version, description, success, checksum, execution_time)
         VALUES (9999, 'of tomorrow', true, x'00', 0)",
    )
    .await;
    let error = SqliteStore::new(folder.path()).open().await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("9999"), "{error}");
}

#[tokio::test]
async fn a_folder_that_is_not_there_and_a_file_that_is_no_database_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = SqliteStore::new(&folder.path().join("nowhere"));
    let error = nowhere.open().await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    std::fs::write(
        folder.path().join("bloomgate.sqlite"),
        "no database ".repeat(400),
    )
    .unwrap();
    let error = SqliteStore::new(folder.path()).open().await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_file_that_was_taken_away_voids_the_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    polled(&store).await.unwrap();
    let path = folder.path().join("bloomgate.sqlite");
    std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    let error = polled(&store).await.unwrap_err();
    assert!(matches!(error, StoreError::CursorVoid { .. }), "{error}");
    std::fs::write(&path, "").unwrap();
    let error = polled(&store).await.unwrap_err();
    assert!(matches!(error, StoreError::CursorVoid { .. }), "{error}");
}

#[tokio::test]
async fn what_another_process_writes_in_spite_of_the_lock_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let filter = declared(&store, "f").await;
    store.add(&[row(filter.id, "a")]).await.unwrap();
    loaded(&store, filter.id).await;
    polled(&store).await.unwrap();
    let other = open(folder.path()).await;
    other.add(&[row(filter.id, "b")]).await.unwrap();
    let error = polled(&store).await.unwrap_err();
    assert!(matches!(error, StoreError::CursorVoid { .. }), "{error}");
    store.open().await.unwrap();
    polled(&store).await.unwrap();
    assert_eq!(loaded(&store, filter.id).await.items(), ["a", "b"]);
}
