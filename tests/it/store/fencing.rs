//! That one process at a time holds a store, whatever becomes of its sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bloomgate::service::ports::{Store, StoreError};
use bloomgate::store::PostgresStore;

use super::rows::{Rows, declared, loaded, open_postgres, postgres_at, postgres_options, row};
use crate::support::{Conduct, Database, Proxy, eventually};

const DEADLINE: Duration = Duration::from_secs(20);

/// Ends the session that has the lock, as an administrator or a broken network does.
async fn end_lock_session(database: &Database) {
    let ended: i64 = database
        .query_value(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_locks
              WHERE locktype = 'advisory' AND granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .await;
    assert_eq!(ended, 1);
    eventually("the lock is free", DEADLINE, async || {
        let locks: i64 = database
            .query_value(
                "SELECT count(*) FROM pg_locks
                  WHERE locktype = 'advisory'
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            )
            .await;
        (locks == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_second_process_is_refused_with_what_is_known_of_the_first() {
    let database = Database::create().await;
    let first = open_postgres(&format!("{}?application_name=first", database.url())).await;
    let second = postgres_at(database.url());
    let error = second.open().await.unwrap_err();
    assert!(matches!(error, StoreError::HeldElsewhere { .. }), "{error}");
    let message = error.to_string();
    for known in [
        "\"first\"",
        "127.0.0.1",
        "stop that process",
        database.name(),
    ] {
        assert!(message.contains(known), "{message}");
    }
    first.poll().await.unwrap();

    first.close().await;
    second.open().await.unwrap();
    second.poll().await.unwrap();
    let error = first.poll().await.unwrap_err();
    assert!(matches!(error, StoreError::HoldLost { .. }), "{error}");
}

#[tokio::test]
async fn a_process_waits_for_one_that_is_on_its_way_out() {
    let database = Database::create().await;
    let first = open_postgres(database.url()).await;
    let second = Arc::new(postgres_at(database.url()));
    let opening = tokio::spawn({
        let second = second.clone();
        async move { second.open().await }
    });
    eventually("the second asks for the lock", DEADLINE, async || {
        let sessions: i64 = database
            .query_value(
                "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND query LIKE '%pg_try_advisory_lock%'
                    AND pid <> pg_backend_pid()",
            )
            .await;
        (sessions == 1).then_some(())
    })
    .await;
    first.close().await;
    opening.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_process_that_lost_its_session_says_so_and_takes_the_store_anew() {
    let database = Database::create().await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    end_lock_session(&database).await;
    let error = store.poll().await.unwrap_err();
    assert!(matches!(error, StoreError::HoldLost { .. }), "{error}");
    let error = store.add(&[row(filter, "a")]).await.unwrap_err();
    assert!(matches!(error, StoreError::HoldLost { .. }), "{error}");
    store.open().await.unwrap();
    store.add(&[row(filter, "a")]).await.unwrap();
    store.poll().await.unwrap();
}

#[tokio::test]
async fn a_process_that_lost_the_store_unawares_writes_nothing() {
    let database = Database::create().await;
    let first = open_postgres(database.url()).await;
    let filter = declared(&first, "f").await.id;
    end_lock_session(&database).await;
    let second = open_postgres(database.url()).await;

    let error = first.add(&[row(filter, "late")]).await.unwrap_err();
    assert!(matches!(error, StoreError::HoldLost { .. }), "{error}");
    let error = first.delete(filter).await.unwrap_err();
    assert!(matches!(error, StoreError::HoldLost { .. }), "{error}");
    let declared_late = first
        .declare(
            &super::rows::filter_name("late"),
            &super::rows::a_declaration(),
            bloomgate::service::declaration::DeclaredBy::Api,
        )
        .await;
    let error = declared_late.unwrap_err();
    assert!(matches!(error, StoreError::HoldLost { .. }), "{error}");
    assert_eq!(second.filters().await.unwrap().len(), 1);
    assert!(loaded(&second, filter).await.found.is_empty());
}

#[tokio::test]
async fn a_successor_sees_the_adds_that_were_under_way_when_it_took_the_store() {
    let database = Database::create().await;
    let first = Arc::new(open_postgres(database.url()).await);
    let filter = declared(&*first, "f").await.id;
    first.add(&[row(filter, "blocked")]).await.unwrap();
    let mut blocker = database.pool().begin().await.unwrap();
    sqlx::query("UPDATE bloomgate.item SET profile_version = 9")
        .execute(&mut *blocker)
        .await
        .unwrap();
    let add = tokio::spawn({
        let first = first.clone();
        async move {
            first
                .add(&[row(filter, "blocked"), row(filter, "under way")])
                .await
        }
    });
    wait_for_waiting(&database, 1).await;
    end_lock_session(&database).await;
    let second = Arc::new(postgres_at(database.url()));
    let opening = tokio::spawn({
        let second = second.clone();
        async move { second.open().await }
    });
    // The successor waits for the add, and the add for the blocker.
    wait_for_waiting(&database, 2).await;
    blocker.rollback().await.unwrap();
    add.await.unwrap().unwrap();
    opening.await.unwrap().unwrap();
    let items = loaded(&*second, filter).await.items();
    assert_eq!(items, ["blocked", "under way"]);
    let error = first.add(&[row(filter, "late")]).await.unwrap_err();
    assert!(matches!(error, StoreError::HoldLost { .. }), "{error}");
}

#[tokio::test]
async fn a_half_open_connection_is_a_lost_hold_before_the_filters_are_stale() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let mut options = postgres_options(&database.url_at(&proxy.address()));
    options.max_staleness = Duration::from_secs(2);
    let store = PostgresStore::new(&options).unwrap();
    store.open().await.unwrap();
    store.poll().await.unwrap();
    proxy.switch(Conduct::Freeze);
    let asked = Instant::now();
    let error = store.poll().await.unwrap_err();
    assert!(matches!(error, StoreError::HoldLost { .. }), "{error}");
    assert!(asked.elapsed() < options.max_staleness);
    let error = store.open().await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
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

#[tokio::test]
async fn a_load_counts_only_where_it_meets_the_hold_of_its_own_process() {
    let database = Database::create().await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    store.add(&[row(filter, "a")]).await.unwrap();
    // As a server would answer that lags behind, or that another process has taken.
    for other_epoch in ["holder_epoch - 1", "holder_epoch + 2"] {
        database
            .execute(&format!(
                "UPDATE bloomgate.store SET holder_epoch = {other_epoch}"
            ))
            .await;
        let error = store.load(filter, &mut Rows::default()).await.unwrap_err();
        assert!(matches!(error, StoreError::HoldLost { .. }), "{error}");
    }
}
