//! What the store on PostgreSQL keeps, and what it gives back.

use std::sync::Arc;
use std::time::Duration;

use bloomgate::filter::profile::{EmailOptions, Profile};
use bloomgate::service::declaration::{Declaration, DeclaredBy, DeclaredSource};
use bloomgate::service::ports::{Store, StoreError};

use super::rows::{
    Rows, a_declaration, bytes_row, declared, expiring, filter_name, loaded, moment, open_postgres,
    polled, purge_all, row,
};
use crate::support::{Database, eventually};

/// Time for something that waits for a lock to be seen waiting, and for it to end.
const DEADLINE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn what_was_added_is_loaded_to_the_byte_and_the_microsecond() {
    let database = Database::create().await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    let long = vec![b'x'; 4096];
    let items: [&[u8]; 5] = [b"plain", b"\xff\xfe no UTF-8", b"with \0 in it", b"", &long];
    let mut rows: Vec<_> = items.iter().map(|item| bytes_row(filter, item)).collect();
    rows[0].terms.expires_at = Some("2031-05-06T07:08:09.000001Z".parse().unwrap());
    store.add(&rows).await.unwrap();

    let mut found = loaded(&store, filter).await.found;
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
    let database = Database::create().await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    store
        .add(&[
            expiring(filter, "up", 100),
            expiring(filter, "down", 200),
            expiring(filter, "to never", 100),
            row(filter, "from never"),
            expiring(filter, "twice in a call", 300),
            expiring(filter, "twice in a call", 100),
            expiring(filter, "never in a call", 300),
            row(filter, "never in a call"),
        ])
        .await
        .unwrap();
    store
        .add(&[
            expiring(filter, "up", 200),
            expiring(filter, "down", 100),
            row(filter, "to never"),
            expiring(filter, "from never", 100),
        ])
        .await
        .unwrap();
    let expiries = loaded(&store, filter).await.expiries();
    let expected = [
        ("up", Some(200)),
        ("down", Some(200)),
        ("to never", None),
        ("from never", None),
        ("twice in a call", Some(300)),
        ("never in a call", None),
    ];
    assert_eq!(expiries.len(), expected.len());
    for (item, expires_s) in expected {
        assert_eq!(expiries[item], expires_s.map(moment), "{item}");
    }
}

#[tokio::test]
async fn every_add_stamps_its_rows_anew_and_a_load_reaches_past_it() {
    let database = Database::create().await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    let stamp = "SELECT xid::text FROM bloomgate.item";
    let first = store.add(&[row(filter, "a")]).await.unwrap();
    assert_eq!(
        database.query_value::<String>(stamp).await,
        first.place.0.to_string()
    );
    let second = store.add(&[row(filter, "a")]).await.unwrap();
    assert!(second.place > first.place);
    assert_eq!(
        database.query_value::<String>(stamp).await,
        second.place.0.to_string()
    );
    let mut rows = Rows::default();
    let cut = store.load(filter, None, &mut rows).await.unwrap();
    assert!(cut.reaches(second.timeline, second.place));
    let third = store.add(&[row(filter, "b")]).await.unwrap();
    assert!(
        !cut.reaches(third.timeline, third.place),
        "a later add must lie behind the cut"
    );
}

#[tokio::test]
async fn an_add_names_the_filters_that_are_gone_and_writes_the_others() {
    let database = Database::create().await;
    let store = open_postgres(database.url()).await;
    let kept = declared(&store, "kept").await.id;
    let gone = declared(&store, "gone").await.id;
    assert!(store.delete(gone).await.unwrap());
    assert!(!store.delete(gone).await.unwrap());
    let rows = [row(gone, "a"), row(kept, "a"), row(gone, "b")];
    let receipt = store.add(&rows).await.unwrap();
    assert_eq!(receipt.deleted, [gone]);
    assert_eq!(loaded(&store, kept).await.items(), ["a"]);
    assert_eq!(orphans(&database).await, 0);
    let nothing = store.add(&[]).await.unwrap();
    assert!(nothing.deleted.is_empty());
}

#[tokio::test]
async fn a_declaration_comes_back_as_it_was_made_and_keeps_its_identity() {
    let database = Database::create().await;
    let store = open_postgres(database.url()).await;
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
    let made = store
        .declare(&name, &emails, DeclaredBy::Config)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(store.filters().await.unwrap(), std::slice::from_ref(&made));

    let other = a_declaration();
    let by_put = store.declare(&name, &other, DeclaredBy::Api).await.unwrap();
    assert_eq!(by_put, None, "a PUT replaces nothing");
    assert_eq!(store.filters().await.unwrap(), std::slice::from_ref(&made));

    let again = store.declare(&name, &other, DeclaredBy::Config).await;
    let again = again.unwrap().unwrap();
    assert_eq!(again.id, made.id);
    assert_eq!(store.filters().await.unwrap(), [again]);

    store.add(&[row(made.id, "a")]).await.unwrap();
    assert!(store.delete(made.id).await.unwrap());
    let new = declared(&store, "registered-email").await;
    assert_ne!(new.id, made.id);
    assert!(loaded(&store, new.id).await.found.is_empty());
}

#[tokio::test]
async fn an_add_waits_for_a_deletion_under_way_and_writes_no_row_without_a_filter() {
    let database = Database::create().await;
    let store = Arc::new(open_postgres(database.url()).await);
    let filter = declared(&*store, "f").await.id;
    let mut deletion = database.pool().begin().await.unwrap();
    sqlx::query("DELETE FROM bloomgate.filter")
        .execute(&mut *deletion)
        .await
        .unwrap();
    let add = tokio::spawn({
        let store = store.clone();
        async move { store.add(&[row(filter, "late")]).await }
    });
    wait_for_waiting(&database, 1).await;
    deletion.commit().await.unwrap();
    assert_eq!(add.await.unwrap().unwrap().deleted, [filter]);
    assert_eq!(orphans(&database).await, 0);
}

#[tokio::test]
async fn a_deletion_waits_for_an_add_under_way_and_takes_its_rows_too() {
    let database = Database::create().await;
    let store = Arc::new(open_postgres(database.url()).await);
    let filter = declared(&*store, "f").await.id;
    store.add(&[row(filter, "blocked")]).await.unwrap();
    // Whoever adds the same item waits for this, with the filter's row locked.
    let mut blocker = database.pool().begin().await.unwrap();
    sqlx::query("UPDATE bloomgate.item SET profile_version = 9")
        .execute(&mut *blocker)
        .await
        .unwrap();
    let add = tokio::spawn({
        let store = store.clone();
        async move {
            store
                .add(&[row(filter, "blocked"), row(filter, "new")])
                .await
        }
    });
    wait_for_waiting(&database, 1).await;
    let delete = tokio::spawn({
        let store = store.clone();
        async move { store.delete(filter).await }
    });
    wait_for_waiting(&database, 2).await;
    blocker.rollback().await.unwrap();
    assert_eq!(add.await.unwrap().unwrap().deleted, []);
    assert!(delete.await.unwrap().unwrap());
    purge_all(&*store).await;
    assert_eq!(orphans(&database).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn adds_deletions_and_declarations_at_once_leave_no_row_without_a_filter_and_no_deadlock() {
    let database = Database::create().await;
    let store = Arc::new(open_postgres(database.url()).await);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..6 {
        let store = store.clone();
        writers.spawn(async move {
            for round in 0..30 {
                let one = declared(&*store, "one").await.id;
                let other = declared(&*store, "other").await.id;
                // The same items from all, in another order each time.
                let mut rows: Vec<_> = (0..40)
                    .map(|item| row([one, other][item % 2], &item.to_string()))
                    .collect();
                rows.rotate_left((writer * 7 + round) % 40);
                store.add(&rows).await.unwrap();
                if round % 5 == writer {
                    store.delete(one).await.unwrap();
                }
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    purge_all(&*store).await;
    assert_eq!(orphans(&database).await, 0);
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_server_was_started_anew() {
    let mut cluster = crate::support::Cluster::start().await;
    let database = cluster.create_database().await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    store.add(&[row(filter, "a")]).await.unwrap();
    cluster.kill_9().await;
    let error = store.add(&[row(filter, "lost")]).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    let error = polled(&store).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    let error = store.open().await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    cluster.start_again().await;
    store.open().await.unwrap();
    assert_eq!(loaded(&store, filter).await.items(), ["a"]);
    store.add(&[row(filter, "b")]).await.unwrap();
    polled(&store).await.unwrap();
}

/// Rows that point to no filter.
async fn orphans(database: &Database) -> i64 {
    database
        .query_value(
            "SELECT count(*) FROM bloomgate.item
              WHERE filter_id NOT IN (SELECT id FROM bloomgate.filter)",
        )
        .await
}

/// Waits until so many sessions wait for a lock.
async fn wait_for_waiting(database: &Database, sessions: i64) {
    eventually("a session waits for a lock", DEADLINE, async || {
        let waiting: i64 = database
            .query_value(
                "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock'",
            )
            .await;
        (waiting == sessions).then_some(())
    })
    .await;
}
