//! What is said of a store that cannot be reached or refuses us, and what its schema needs.

use bloomgate::service::ports::{Store, StoreError};

use super::rows::{declared, loaded, open_postgres, polled, postgres_at, row};
use crate::support::{Database, tls_folder};

async fn open_error(url: &str) -> StoreError {
    postgres_at(url).open().await.unwrap_err()
}

#[track_caller]
fn assert_refused(error: &StoreError, part: &str) {
    let message = error.to_string();
    assert!(matches!(error, StoreError::Refused { .. }), "{message}");
    assert!(message.contains(part), "{message}");
    assert!(!message.contains('\n'), "{message}");
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_database_are_refused_and_no_password_is_shown() {
    let database = Database::create().await;
    let (server, _) = database.url().rsplit_once('/').unwrap();
    assert_refused(
        &open_error(&format!("{server}/nowhere")).await,
        "create the database",
    );
    let wrong = format!(
        "postgres://postgres:hunter2@{}/{}",
        database.address(),
        database.name()
    );
    let error = open_error(&wrong).await;
    assert_refused(&error, "SQLSTATE 28P01");
    assert!(error.to_string().contains(database.address()));
    assert!(!error.to_string().contains("hunter2"));
}

#[tokio::test]
async fn a_server_that_is_down_or_has_no_address_is_unreachable() {
    for url in [
        "postgres://ann:hunter2@127.0.0.1:1/app",
        "postgres://ann:hunter2@db.invalid/app",
        "postgres://ann:hunter2@%2Fnowhere/app",
    ] {
        let error = open_error(url).await;
        let message = error.to_string();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[tokio::test]
async fn what_takes_a_connection_and_ends_it_is_unreachable_as_the_server_behind_it_is() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ending = tokio::spawn(async move {
        use tokio::io::AsyncReadExt as _;
        let (mut socket, _) = listener.accept().await.unwrap();
        // Read to its end, or the connection would be reset and not closed.
        socket.read_exact(&mut [0; 8]).await.unwrap();
    });
    let error = open_error(&format!("postgres://{address}/app")).await;
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    ending.await.unwrap();
}

#[tokio::test]
async fn what_answers_but_is_no_postgres_is_refused() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answering = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        let (mut socket, _) = listener.accept().await.unwrap();
        socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        socket
    });
    let error = open_error(&format!("postgres://{address}/app")).await;
    assert_refused(&error, "does not speak the PostgreSQL protocol");
    answering.await.unwrap();
}

#[tokio::test]
async fn a_certificate_is_checked_against_the_authority_that_is_named() {
    let database = Database::create().await;
    let (_, port) = database.address().split_once(':').unwrap();
    let url = |host: &str, mode: &str, authority: &str| {
        format!(
            "{}?sslmode={mode}&sslrootcert={}",
            database.url_at(&format!("{host}:{port}")),
            tls_folder().join(authority).display()
        )
    };
    let right = open_postgres(&url("localhost", "verify-full", "ca.pem")).await;
    polled(&right).await.unwrap();
    right.close().await;
    for (host, mode, authority, part) in [
        ("localhost", "verify-full", "other-ca.pem", "TLS failed"),
        ("localhost", "require", "other-ca.pem", "TLS failed"),
        ("127.0.0.1", "verify-full", "ca.pem", "TLS failed"),
        (
            "localhost",
            "verify-full",
            "no-such.pem",
            "no-such.pem cannot be read",
        ),
    ] {
        let error = open_error(&url(host, mode, authority)).await;
        assert_refused(&error, part);
    }
}

#[tokio::test]
async fn a_schema_of_a_newer_version_is_refused() {
    let database = Database::create().await;
    open_postgres(database.url()).await.close().await;
    database
        .execute(
            "INSERT INTO bloomgate.migration (version, description, success, checksum, execution_time)
             VALUES (9999, 'of tomorrow', true, '\\x00', 0)",
        )
        .await;
    assert_refused(&open_error(database.url()).await, "migration 9999");
}

#[tokio::test]
async fn the_users_own_schema_stays_as_it_is() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE _sqlx_migrations (of_another_application text)")
        .await;
    open_postgres(database.url()).await;
    let tables: Vec<String> = database
        .query_value("SELECT array_agg(tablename::text) FROM pg_tables WHERE schemaname = 'public'")
        .await;
    assert_eq!(tables, ["_sqlx_migrations"]);
}

#[tokio::test]
async fn two_processes_that_migrate_at_once_both_succeed() {
    let database = Database::create().await;
    let (one, other) = (postgres_at(database.url()), postgres_at(database.url()));
    let (one, other) = tokio::join!(one.migrate(), other.migrate());
    one.unwrap();
    other.unwrap();
}

#[tokio::test]
async fn a_role_without_rights_is_refused_and_one_with_what_it_needs_is_enough() {
    let database = Database::create().await;
    let role = format!("role_{}", database.name());
    let url = format!(
        "postgres://{role}:secret@{}/{}",
        database.address(),
        database.name()
    );
    database
        .execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'"))
        .await;
    assert_refused(&open_error(&url).await, "SQLSTATE 42501");

    // An administrator migrates; the service reads and writes.
    postgres_at(database.url()).migrate().await.unwrap();
    database
        .execute(&format!(
            "GRANT USAGE ON SCHEMA bloomgate TO {role};
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA bloomgate TO {role}"
        ))
        .await;
    let store = open_postgres(&url).await;
    let filter = declared(&store, "f").await.id;
    store.add(&[row(filter, "a")]).await.unwrap();
    assert_eq!(loaded(&store, filter).await.items(), ["a"]);
    assert!(store.delete(filter).await.unwrap());
    store.close().await;
    database
        .execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}

#[tokio::test]
async fn an_add_waits_for_the_disk_whatever_the_databases_default() {
    let database = Database::create().await;
    database
        .execute(&format!(
            "ALTER DATABASE {name} SET synchronous_commit = off;
             ALTER DATABASE {name} SET default_transaction_isolation = 'serializable';
             CREATE TABLE seen (value text);
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO public.seen
                 VALUES (current_setting('synchronous_commit') || ', '
                         || current_setting('transaction_isolation'));
                 RETURN NULL;
             END $$",
            name = database.name()
        ))
        .await;
    let store = open_postgres(database.url()).await;
    let filter = declared(&store, "f").await.id;
    database
        .execute(
            "CREATE TRIGGER see AFTER INSERT ON bloomgate.item
             FOR EACH STATEMENT EXECUTE FUNCTION see()",
        )
        .await;
    store.add(&[row(filter, "a")]).await.unwrap();
    let seen: String = database.query_value("SELECT value FROM seen").await;
    assert_eq!(seen, "on, read committed");
}
