//! A database that is not ours, with a million tokens and a million addresses: all of it is loaded
//! at the start, nothing of it is missed, and it costs what the filters are declared for.
//!
//! `tests/run large -- --nocapture` prints the figures.

use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::support::{Answer, Bloomgate, Database, Launch};

/// Rows of each table, and absent items that are checked against each filter.
const ROWS: u32 = 1_000_000;

/// Items in one check-batch: the most that one takes.
const BATCH: u32 = 10_000;

/// Batches under way at once.
const BATCHES_AT_ONCE: usize = 3;

/// What the process may hold beside the bits of its filters.
const MEMORY_BESIDE_THE_BITS_BYTES: u64 = 150 << 20;

/// Of 100 tokens 9 have expired long ago, one within the leeway, and ten never expire.
const TOKENS: &str = "
    CREATE TABLE token (id uuid PRIMARY KEY, valid_until timestamptz);
    INSERT INTO token
    SELECT md5('token ' || n)::uuid,
           CASE WHEN n % 100 < 9 THEN now() - n % 1000 * interval '1 day' - interval '1 day'
                WHEN n % 100 = 9 THEN now() - interval '5 minutes'
                WHEN n % 100 >= 20 THEN now() + n % 1000 * interval '1 hour' + interval '1 hour' END
      FROM generate_series(1, 1000000) AS n";
const EXPIRED_TOKENS: u32 = ROWS / 100 * 9;

/// Of 100 addresses one is NULL, one blank, and one no address at all; others have blanks around,
/// letters beyond ASCII and every mixture of case.
const ADDRESSES: &str = r"
    CREATE TABLE account (id bigint PRIMARY KEY, email text);
    INSERT INTO account
    SELECT n, CASE n % 100
        WHEN 0 THEN NULL
        WHEN 1 THEN (ARRAY['', '   ', E' \t\n', E'\u00a0'])[1 + n / 100 % 4]
        WHEN 2 THEN (ARRAY['not-an-email ' || n, repeat('x', 400) || n || '@example.com',
                           'two@at' || n || '@@example.com', '@' || n, n || '@'])[1 + n / 100 % 5]
        WHEN 3 THEN '  User.' || n || '@Example.COM'
        WHEN 4 THEN 'user.' || n || E'@Example.COM \t'
        WHEN 5 THEN E'\u00a0User.' || n || E'@example.com\n'
        WHEN 6 THEN 'Jürgen.Groß.' || n || '@Bücher.Example'
        WHEN 7 THEN 'İPEK.' || n || '@Example.COM'
        WHEN 8 THEN 'ΟΔΥΣΣΕΥΣ.' || n || '@Example.COM'
        WHEN 9 THEN 'USER.' || n || '@EXAMPLE.COM.'
        ELSE (ARRAY['User.', 'USER.', 'user.', 'uSeR.'])[1 + n % 4] || n
             || (ARRAY['@Example.COM', '@EXAMPLE.com', '@example.com'])[1 + n % 3]
    END FROM generate_series(1, 1000000) AS n";
const BLANK_ADDRESSES: u32 = ROWS / 100 * 2;
const ODD_ADDRESSES: u32 = ROWS / 100;

/// The filters are declared for what is to be in them, so that the rates are those of full ones.
const CONFIG: &str = r#"
    expiry_leeway = "1h"

    [filters.revoked-jti]
    profile = "jti"
    capacity = 910000
    false_positive_rate = 0.01
    [[filters.revoked-jti.sources]]
    name = "tokens"
    query = "SELECT id, valid_until FROM token"

    [filters.registered-email]
    profile = "email"
    capacity = 980000
    false_positive_rate = 0.001
    [[filters.registered-email.sources]]
    name = "accounts"
    query = "SELECT email FROM account"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_million_tokens_and_a_million_addresses_are_loaded_and_none_of_them_is_missed() {
    let database = Database::create().await;
    tokio::join!(database.execute(TOKENS), database.execute(ADDRESSES));
    let started = Instant::now();
    let launch = Launch::new().database_url(database.url()).config(CONFIG);
    let service = launch.start().await;
    let tokens = service.wait_live("revoked-jti").await;
    let addresses = service.wait_live("registered-email").await;
    eprintln!(
        "both tables are live {:?} after the start",
        started.elapsed()
    );

    assert_rows(&tokens, 0, 0, EXPIRED_TOKENS);
    assert_rows(&addresses, BLANK_ADDRESSES, ODD_ADDRESSES, 0);
    assert_every_row_is_found(&database, &service).await;
    for (description, absent) in [
        (
            &tokens,
            "SELECT n, md5('absent ' || n)::uuid FROM generate_series(1, 1000000) AS n",
        ),
        (
            &addresses,
            "SELECT n, 'Nobody.' || n || '@Example.COM' FROM generate_series(1, 1000000) AS n",
        ),
    ] {
        let checked = check_all(&database, &service, filter(description), absent).await;
        assert_rate(description, &checked);
    }

    let bits_bytes = memory_bytes(&tokens) + memory_bytes(&addresses);
    let beside_bytes = service.peak_memory_bytes() - bits_bytes;
    eprintln!("bits: {bits_bytes} bytes; at most {beside_bytes} bytes beside them");
    assert!(beside_bytes <= MEMORY_BESIDE_THE_BITS_BYTES);
}

#[track_caller]
fn assert_rows(description: &Value, blank: u32, odd: u32, expired: u32) {
    let source = &description["sources"][0];
    eprintln!("{}: {source}", description["filter"]);
    assert_eq!(source["rows_loaded"], ROWS);
    assert_eq!(source["rows_blank"], blank);
    assert_eq!(source["rows_odd"], odd);
    assert_eq!(source["rows_expired"], expired);
}

async fn assert_every_row_is_found(database: &Database, service: &Bloomgate) {
    let required_tokens = "SELECT row_number() OVER (), id FROM token
                            WHERE valid_until IS NULL OR valid_until > now() - interval '20 minutes'";
    let filled = "FROM account WHERE id % 100 > 1";
    for (filter, items, expected) in [
        ("revoked-jti", required_tokens, ROWS - EXPIRED_TOKENS),
        (
            "registered-email",
            &format!("SELECT id, email {filled}"),
            ROWS - BLANK_ADDRESSES,
        ),
        (
            "registered-email",
            &format!("SELECT id, lower(email) {filled}"),
            ROWS - BLANK_ADDRESSES,
        ),
        (
            "registered-email",
            &format!("SELECT id, upper(email) {filled}"),
            ROWS - BLANK_ADDRESSES,
        ),
    ] {
        let checked = check_all(database, service, filter, items).await;
        let missed = checked.items - checked.maybe;
        eprintln!(
            "{filter}: {missed} of {} rows missed, {items}",
            checked.items
        );
        assert_eq!(checked.items, u64::from(expected));
        assert_eq!(missed, 0);
    }
}

/// At most 1.05 times the declared rate, or four standard deviations more where that is coarser;
/// and the filter tells its rate as it is.
#[track_caller]
fn assert_rate(description: &Value, checked: &Checked) {
    let found = checked.maybe as f64;
    let expected = |rate: &str| description[rate].as_f64().unwrap() * checked.items as f64;
    let (declared, estimated) = (
        expected("false_positive_rate"),
        expected("estimated_fp_rate"),
    );
    eprintln!(
        "{}: {found} of {} others are maybe; declared for {declared:.0}, estimated {estimated:.0}",
        filter(description),
        checked.items
    );
    assert!(found <= declared + (0.05 * declared).max(4.0 * declared.sqrt()));
    assert!((found - estimated).abs() <= (0.05 * estimated).max(5.0 * estimated.sqrt()));
}

/// How many items were checked, and how many of them were `maybe`.
#[derive(Default)]
struct Checked {
    items: u64,
    maybe: u64,
}

#[derive(Deserialize)]
struct Verdicts {
    verdicts: Vec<String>,
}

/// Checks all items of a query of numbers and items, each batch of which becomes a request's body
/// in the database already.
async fn check_all(
    database: &Database,
    service: &Bloomgate,
    filter: &str,
    numbered_items: &str,
) -> Checked {
    let path = format!("/v1/filters/{filter}/check-batch");
    let bodies = format!(
        "SELECT json_build_object('items', json_agg(item))::text
           FROM ({numbered_items}) AS numbered (number, item) GROUP BY number / {BATCH}"
    );
    let bodies = sqlx::query_scalar(AssertSqlSafe(bodies)).fetch(database.pool());
    bodies
        .map(|body: Result<String, _>| async {
            let answer = service.post_text(&path, "application/json", body?).await;
            Ok::<_, sqlx::Error>(answer)
        })
        .buffer_unordered(BATCHES_AT_ONCE)
        .try_fold(Checked::default(), |checked, answer: Answer| async move {
            assert_eq!(answer.status, 200, "{answer:?}");
            let answer: Verdicts = serde_json::from_str(&answer.text).unwrap();
            let maybe = answer.verdicts.iter().filter(|verdict| *verdict == "maybe");
            Ok(Checked {
                items: checked.items + answer.verdicts.len() as u64,
                maybe: checked.maybe + maybe.count() as u64,
            })
        })
        .await
        .unwrap()
}

fn filter(description: &Value) -> &str {
    description["filter"].as_str().unwrap()
}

fn memory_bytes(description: &Value) -> u64 {
    description["memory_bytes"].as_u64().unwrap()
}
