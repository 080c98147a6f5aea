//! Which queries a source takes, and which it refuses, by name and with a remedy.

use std::time::Duration;

use bloomgate::service::ports::{Source, StoreError};
use bloomgate::store::{PostgresSource, PostgresSourceOptions};

use super::rows::{Rows, moment};
use crate::support::Database;

pub(super) fn source(url: &str, query: &str) -> PostgresSource {
    PostgresSource::new(&PostgresSourceOptions {
        filter: "revoked".to_owned(),
        source: "tokens".to_owned(),
        url: url.into(),
        query: query.to_owned(),
        max_staleness: Duration::from_secs(30),
    })
    .unwrap()
}

pub(super) async fn load(database: &Database, query: &str) -> Rows {
    let source = source(database.url(), query);
    source.examine().await.unwrap();
    let mut rows = Rows::default();
    source.load(&mut rows).await.unwrap();
    rows
}

pub(super) async fn items(database: &Database, query: &str) -> Vec<String> {
    load(database, query).await.items()
}

/// Why a query is refused.
async fn refusal(database: &Database, query: &str) -> String {
    let error = source(database.url(), query).examine().await.unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, StoreError::Refused { .. }), "{message}");
    assert!(!message.contains('\n'), "{message}");
    message
}

#[tokio::test]
async fn the_types_that_hold_an_item_are_taken_in_their_text_form() {
    let database = Database::create().await;
    database
        .execute(
            "CREATE SCHEMA extensions;
             CREATE EXTENSION citext SCHEMA extensions;
             CREATE DOMAIN address AS extensions.citext;
             CREATE DOMAIN work_address AS address CHECK (VALUE LIKE '%@%');
             CREATE DOMAIN padded AS char(12);
             CREATE TABLE t (a text, b varchar(40), c char(12), d name, e extensions.citext,
                             f uuid, g smallint, h integer, i bigint, j work_address, k padded);
             INSERT INTO t VALUES ('Text', 'Varchar', 'abc', 'Name', 'Ci@Text',
                 '6F9619FF8B86D011B42D00C04FC964FF', -1, 2, 12345678901, 'Ann@Example.COM', 'xyz')",
        )
        .await;
    for (column, item) in [
        ("a", "Text"),
        ("b", "Varchar"),
        ("c", "abc"),
        ("d", "Name"),
        ("e", "Ci@Text"),
        ("f", "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
        ("g", "-1"),
        ("h", "2"),
        ("i", "12345678901"),
        ("j", "Ann@Example.COM"),
        ("k", "xyz"),
    ] {
        let query = format!("SELECT {column} FROM t");
        assert_eq!(items(&database, &query).await, [item], "{column}");
    }
}

#[tokio::test]
async fn another_type_is_refused_with_the_columns_name_and_a_remedy() {
    let database = Database::create().await;
    database
        .execute(
            "CREATE TYPE mood AS ENUM ('calm');
             CREATE DOMAIN bytes AS bytea;
             CREATE TABLE t (token bytea, wrapped bytes, \"The Mood\" mood, list text[],
                             at timestamptz, price numeric)",
        )
        .await;
    for (column, parts) in [
        ("token", ["\"token\"", "bytea", "encode(token, 'hex')"]),
        (
            "wrapped",
            ["\"wrapped\"", "bytea", "encode(wrapped, 'hex')"],
        ),
        ("\"The Mood\"", ["\"The Mood\"", "mood", "::text"]),
        ("list", ["\"list\"", "text[]", "::text"]),
        ("at", ["\"at\"", "timestamp with time zone", "::text"]),
        ("price", ["\"price\"", "numeric", "::text"]),
    ] {
        let message = refusal(&database, &format!("SELECT {column} FROM t")).await;
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[tokio::test]
async fn an_expiry_is_a_timestamp_with_time_zone_and_nothing_else() {
    let database = Database::create().await;
    database
        .execute(
            "CREATE DOMAIN deadline AS timestamptz;
             CREATE TABLE t (jti text, zoned timestamptz, own deadline, plain timestamp, day date,
                             seconds bigint);
             INSERT INTO t VALUES
                 ('dated', to_timestamp(1900000000), to_timestamp(1900000000)),
                 ('none', NULL, NULL), ('infinite', 'infinity', 'infinity'),
                 ('ancient', '-infinity', '-infinity')",
        )
        .await;
    for column in ["zoned", "own"] {
        let rows = load(&database, &format!("SELECT jti, {column} FROM t")).await;
        let expiries = rows.expiries();
        assert_eq!(expiries["dated"], Some(moment(1_900_000_000)));
        assert_eq!(expiries["none"], None);
        assert_eq!(expiries["infinite"], None);
        assert!(expiries["ancient"].unwrap() < moment(0));
    }
    for (column, remedy) in [
        ("plain", "AT TIME ZONE"),
        ("day", "AT TIME ZONE"),
        ("seconds", "to_timestamp(seconds)"),
        ("jti", "leave it out"),
    ] {
        let message = refusal(&database, &format!("SELECT jti, {column} FROM t")).await;
        assert!(
            message.contains(column) && message.contains(remedy),
            "{message}"
        );
    }
}

#[tokio::test]
async fn any_query_of_one_or_two_columns_is_taken() {
    let database = Database::create().await;
    database
        .execute(
            "CREATE SCHEMA \"Auth Data\";
             CREATE TABLE \"Auth Data\".\"Token\" (\"Id\" uuid, \"User\" int, revoked boolean);
             CREATE TABLE account (id int, email text, deleted_at timestamptz);
             INSERT INTO account VALUES (1, 'ann', NULL), (2, 'bob', now());
             INSERT INTO \"Auth Data\".\"Token\"
             VALUES ('00000000-0000-0000-0000-000000000001', 1, true),
                    ('00000000-0000-0000-0000-000000000002', 2, true),
                    ('00000000-0000-0000-0000-000000000003', 1, false)",
        )
        .await;
    let one = ["00000000-0000-0000-0000-000000000001"];
    for (query, expected) in [
        (
            "SELECT t.\"Id\" FROM \"Auth Data\".\"Token\" t JOIN public.account a ON a.id = t.\"User\"
              WHERE t.revoked AND a.deleted_at IS NULL",
            &one[..],
        ),
        ("SELECT email FROM account ORDER BY 1 LIMIT 1; ", &["ann"]),
        ("SELECT email FROM account WHERE id = 1 -- only Ann", &["ann"]),
        ("WITH a AS (SELECT email FROM account) SELECT email FROM a", &["ann", "bob"]),
        ("SELECT email FROM account UNION ALL SELECT 'eve'", &["ann", "bob", "eve"]),
        // Two columns of one name.
        ("SELECT a.email AS x, a.deleted_at AS x FROM account a WHERE a.id = 1", &["ann"]),
        ("VALUES ('a'), ('b')", &["a", "b"]),
    ] {
        assert_eq!(items(&database, query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn what_is_no_single_query_of_that_form_is_refused() {
    let database = Database::create().await;
    database.execute("CREATE TABLE account (email text)").await;
    for query in [
        "SELECT 1; SELECT 2",
        "DELETE FROM account RETURNING email",
        "SELECT email FROM nowhere",
        "SELECT missing FROM account",
        "SELECT 'a', now(), 3",
        "SELECT FROM account",
        "SELECT 'a') AS source; DROP TABLE account; --",
        "not a query",
    ] {
        refusal(&database, query).await;
    }
    for query in ["", " ;\n; "] {
        let options = PostgresSourceOptions {
            filter: "revoked".to_owned(),
            source: "tokens".to_owned(),
            url: database.url().into(),
            query: query.to_owned(),
            max_staleness: Duration::from_secs(30),
        };
        assert!(PostgresSource::new(&options).is_err());
    }
}

#[tokio::test]
async fn a_query_cannot_write() {
    let database = Database::create().await;
    database
        .execute(
            "CREATE TABLE trail (item text);
             CREATE FUNCTION leave_trail() RETURNS text LANGUAGE sql AS
             'INSERT INTO public.trail VALUES (1) RETURNING item'",
        )
        .await;
    let source = source(database.url(), "SELECT leave_trail()");
    source.examine().await.unwrap();
    let error = source.load(&mut Rows::default()).await.unwrap_err();
    assert!(error.to_string().contains("25006"), "{error}");
}
