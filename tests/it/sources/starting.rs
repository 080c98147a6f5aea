//! What sources bring when all goes well, and what ends the start.

use serde_json::{Value, json};

use crate::support::{Bloomgate, Database, DatabaseOptions, Finished, Launch, tls_folder};

/// A filter that is named as its profile, with one source named `rows`.
fn filter(profile: &str, database_url: &str, query: &str) -> String {
    filter_named(profile, profile, database_url, query)
}

fn filter_named(name: &str, profile: &str, database_url: &str, query: &str) -> String {
    format!(
        "[filters.{name}]\nprofile = \"{profile}\"\ncapacity = 10000\nfalse_positive_rate = 1e-10\n\
         [[filters.{name}.sources]]\nname = \"rows\"\ndatabase_url = \"{database_url}\"\n\
         query = \"\"\"{query}\"\"\"\n"
    )
}

/// Starts the program, which must end by itself with one line that holds all of `parts`.
async fn assert_start_ends(config: &str, parts: &[&str]) -> Finished {
    let finished = Bloomgate::expect_start_failure(config).await;
    let says_all = |line: &str| parts.iter().all(|part| line.contains(part));
    assert!(
        finished.stderr.lines().any(says_all),
        "{parts:?}: {finished:?}"
    );
    assert!(finished.stdout.is_empty(), "{finished:?}");
    finished
}

fn rows_of(description: &Value) -> [&Value; 4] {
    let source = &description["sources"][0];
    ["rows_loaded", "rows_blank", "rows_odd", "rows_expired"].map(|rows| &source[rows])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_any_type_is_found_in_every_spelling_that_its_type_has() {
    let database = Database::create().await;
    database
        .execute(
            "CREATE EXTENSION citext;
             CREATE DOMAIN token_id AS uuid;
             CREATE DOMAIN address AS citext;
             CREATE TABLE t (a bigint, b uuid, c token_id, d char(12), e varchar(20), f address);
             INSERT INTO t VALUES (12345, '6F9619FF-8B86-D011-B42D-00C04FC964FF',
                 '{0e984725c51c4bf49960e1c80e27aba0}', 'abc', 'Exact', 'Ann@Example.COM')",
        )
        .await;
    let types = [
        ("a", "jti", &["12345"][..], &["012345", "12345.0"][..]),
        (
            "b",
            "jti",
            &[
                "6f9619ff-8b86-d011-b42d-00c04fc964ff",
                "6F9619FF-8B86-D011-B42D-00C04FC964FF",
                "{6f9619ff-8b86-d011-b42d-00c04fc964ff}",
                "6F9619FF8B86D011B42D00C04FC964FF",
                "urn:uuid:6f9619ff-8b86-d011-b42d-00c04fc964ff",
            ],
            &["6f9619ff-8b86-d011-b42d-00c04fc964fe"],
        ),
        (
            "c",
            "jti",
            &["0E984725-C51C-4BF4-9960-E1C80E27ABA0"],
            &["0e984725"],
        ),
        ("d", "text", &["abc"], &["abc         ", "ABC"]),
        ("e", "text", &["Exact"], &["exact"]),
        (
            "f",
            "email",
            &["ann@example.com", "ANN@EXAMPLE.COM"],
            &["anne@example.com"],
        ),
    ];
    let config: String = types
        .iter()
        .map(|(column, profile, ..)| {
            filter_named(
                column,
                profile,
                database.url(),
                &format!("SELECT {column} FROM t"),
            )
        })
        .collect();
    let service = Bloomgate::start(&config).await;
    for (column, _, found, absent) in types {
        service.wait_live(column).await;
        for item in found {
            assert!(
                service.check(column, item).await.is_match(),
                "{column}: {item}"
            );
        }
        for item in absent {
            assert!(
                !service.check(column, item).await.is_maybe(),
                "{column}: {item}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_utf8_are_counted_as_odd_and_found_by_their_latin1_reading() {
    let database = Database::create_with(DatabaseOptions {
        encoding: Some("SQL_ASCII"),
        locale: Some("C"),
        ..DatabaseOptions::default()
    })
    .await;
    let rows = r"CREATE TABLE t (item text);
                 INSERT INTO t VALUES (E'\xc1R'), (E'Jos\xe9@x.com'), ('plain@x.com')";
    database.execute(rows).await;
    let query = "SELECT item FROM t";
    let config = filter("text", database.url(), query) + &filter("email", database.url(), query);
    let service = Bloomgate::start(&config).await;
    for (name, odd, found, absent) in [
        (
            "text",
            2,
            ["\u{c1}R", "Jos\u{e9}@x.com", "plain@x.com"],
            "R",
        ),
        (
            "email",
            2,
            ["\u{e1}r", "JOSE\u{301}@X.COM", "Plain@X.com"],
            "jose@x.com",
        ),
    ] {
        let description = service.wait_live(name).await;
        assert_eq!(
            rows_of(&description),
            [&json!(3), &json!(0), &json!(odd), &json!(0)]
        );
        for item in found {
            assert!(service.check(name, item).await.is_match(), "{name}: {item}");
        }
        assert!(!service.check(name, absent).await.is_maybe());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_holds_no_item_ends_the_start_with_its_name_and_the_remedy() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE t (digest bytea, jti text, exp bigint)")
        .await;
    let url = database.url();
    let bytes = filter("jti", url, "SELECT digest FROM t");
    assert_start_ends(
        &bytes,
        &["rows of jti", "\"digest\"", "bytea", "encode(digest"],
    )
    .await;
    let seconds = filter("jti", url, "SELECT jti, exp FROM t");
    assert_start_ends(&seconds, &["rows of jti", "\"exp\"", "to_timestamp(exp)"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_refuses_ends_the_start_with_a_line_that_shows_no_password() {
    let database = Database::create().await;
    let (server, name) = database.url().rsplit_once('/').unwrap();
    let wrong = format!("postgres://postgres:hunter2@{}/{name}", database.address());
    for (url, query, parts) in [
        (
            database.url(),
            "SELECT jti FROM nowhere",
            ["rows of jti", "\"nowhere\""],
        ),
        (
            &format!("{server}/nowhere"),
            "SELECT 'a'",
            ["rows of jti", "\"nowhere\""],
        ),
        (
            &wrong,
            "SELECT 'a'",
            ["rows of jti", "check user, password"],
        ),
    ] {
        let finished = assert_start_ends(&filter("jti", url, query), &parts).await;
        for secret in ["hunter2", password(server)] {
            assert!(!finished.stderr.contains(secret), "{finished:?}");
        }
    }
}

fn password(url: &str) -> &str {
    let (credentials, _) = url.rsplit_once('@').unwrap();
    credentials.rsplit_once(':').unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_the_named_authority_is_trusted_and_another_ends_the_start() {
    let database = Database::create().await;
    let (_, port) = database.address().rsplit_once(':').unwrap();
    let config = |host: &str, authority: &str| {
        let url = format!(
            "{}?sslmode=verify-full&sslrootcert={}",
            database.url_at(&format!("{host}:{port}")),
            tls_folder().join(authority).display()
        );
        // Whoever is not connected by TLS sees no row.
        let query = "SELECT 'a' FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl";
        filter("jti", &url, query)
    };
    let service = Bloomgate::start(&config("localhost", "ca.pem")).await;
    service.wait_live("jti").await;
    assert!(service.check("jti", "a").await.is_match());
    for (host, authority) in [("localhost", "other-ca.pem"), ("127.0.0.1", "ca.pem")] {
        assert_start_ends(&config(host, authority), &["rows of jti", "TLS failed"]).await;
    }
    // A role that must use TLS is told so where it does not.
    let plain = database.url().replacen("//postgres:", "//tls_only:", 1) + "?sslmode=disable";
    assert_start_ends(
        &filter("jti", &plain, "SELECT 'a'"),
        &["rows of jti", "no encryption"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_row_level_security_would_hide_end_the_start() {
    let database = Database::create().await;
    let role = format!("role_{}", database.name());
    database
        .execute(&format!(
            "CREATE ROLE {role} LOGIN PASSWORD 'secret';
             CREATE TABLE t (jti text); INSERT INTO t VALUES ('a'), ('b');
             ALTER TABLE t ENABLE ROW LEVEL SECURITY;
             CREATE POLICY one ON t USING (jti = 'a');
             CREATE VIEW v WITH (security_invoker) AS SELECT jti FROM t;
             GRANT SELECT ON t, v TO {role}"
        ))
        .await;
    let url = format!(
        "postgres://{role}:secret@{}/{}",
        database.address(),
        database.name()
    );
    for relation in ["t", "v"] {
        let config = filter("jti", &url, &format!("SELECT jti FROM {relation}"));
        assert_start_ends(&config, &["rows of jti", "BYPASSRLS"]).await;
    }
    database
        .execute(&format!("ALTER ROLE {role} BYPASSRLS"))
        .await;
    let config = filter("jti", &url, "SELECT jti FROM v");
    let service = Launch::new().config(&config).start().await;
    service.wait_live("jti").await;
    for item in ["a", "b"] {
        assert!(service.check("jti", item).await.is_match());
    }
    drop(service);
    database
        .execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}
