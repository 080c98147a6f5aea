//! What PostgreSQL's own `lower()`, `upper()` and `initcap()` make of an address with any character
//! in it, under the collations of every provider: people index, compare and store that.

use std::collections::BTreeSet;
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _};
use sqlx::AssertSqlSafe;

use crate::support::{Bloomgate, Database, Launch};

/// Locales of the C library, and of ICU: the root, and those whose case mappings are their own.
const COLLATIONS: [(&str, &[&str]); 2] = [
    ("libc", &["C", "C.UTF-8", "en_US.UTF-8", "tr_TR.UTF-8"]),
    ("icu", &["und", "de", "tr-TR", "az", "lt", "el", "hy", "nl"]),
];

/// Addresses in one string, and so in one call of the database: a call costs more than the
/// characters that it maps.
const ADDRESSES_IN_ONE: u32 = 500;

/// Between two addresses; no address has it inside, and no mapping reaches over it.
const SEPARATOR: &str = "\n--\n";

/// Strings of addresses under way at once.
const AT_ONCE: usize = 3;

/// All characters but U+0000, which no text has, and those that are halves of others.
const ALL: (u32, u32) = (1, 0x10_FFFF);

/// The planes that have letters with a case, and marks that stand on them.
const CASED: (u32, u32) = (1, 0x1_FFFF);

/// Around a character: in the middle of a word; at its end, on a letter that has a soft dot; in the
/// domain.
const PLACES: [(&str, &str, (u32, u32)); 3] = [
    ("a", "b@x.com", ALL),
    ("I", "@x.com", CASED),
    ("a@x", "y.com", CASED),
];

/// An address that is in no table, beside each batch.
const ABSENT: &str = "absent@elsewhere.example";

#[tokio::test(flavor = "multi_thread")]
async fn what_any_collation_of_postgres_makes_of_any_character_in_an_address_is_the_address() {
    let started = Instant::now();
    let database = Database::create().await;
    create_collations(&database).await;
    create_addresses(&database).await;
    let service = Launch::new()
        .database_url(database.url())
        .config(&config())
        .start()
        .await;
    let description = service.wait_live("registered-email").await;
    let rows = &description["sources"][0]["rows_loaded"];
    eprintln!("{rows} addresses are live after {:?}", started.elapsed());

    let mapped = mapped_addresses();
    let (mut asked, mut missed) = (0, Vec::new());
    let mut checks = sqlx::query_scalar(AssertSqlSafe(mapped))
        .fetch(database.pool())
        .map(|mapped: Result<Vec<String>, _>| async {
            Ok::<_, sqlx::Error>(missed_of(&service, &mapped?).await)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((asked_now, missed_now)) = checks.try_next().await.unwrap() {
        asked += asked_now;
        missed.extend(missed_now);
    }
    eprintln!(
        "{asked} spellings were asked for after {:?}",
        started.elapsed()
    );
    missed.sort();
    let first: Vec<_> = missed
        .iter()
        .take(20)
        .map(|item| item.escape_unicode().to_string())
        .collect();
    assert!(
        missed.is_empty(),
        "{} are missed, such as {first:#?}",
        missed.len()
    );
    assert!(
        asked > 3 * u64::from(ALL.1),
        "too few spellings were made: {asked}"
    );
}

/// How many different addresses these strings hold, and which of them are not `maybe`.
async fn missed_of(service: &Bloomgate, mapped: &[String]) -> (u64, Vec<String>) {
    let addresses: BTreeSet<&str> = mapped.iter().flat_map(|one| one.split(SEPARATOR)).collect();
    let mut addresses: Vec<&str> = addresses.into_iter().collect();
    addresses.push(ABSENT);
    let mut verdicts = service.check_batch("registered-email", &addresses).await;
    assert_eq!(verdicts.pop(), Some(false), "an absent address is maybe");
    addresses.pop();
    let missed = addresses
        .iter()
        .zip(verdicts)
        .filter(|(_, is_maybe)| !is_maybe);
    let missed = missed.map(|(address, _)| (*address).to_owned()).collect();
    (addresses.len() as u64, missed)
}

async fn create_collations(database: &Database) {
    for (provider, locales) in COLLATIONS {
        for locale in locales {
            let statement = format!(
                "CREATE COLLATION \"of {provider} {locale}\" (PROVIDER = {provider}, LOCALE = '{locale}')"
            );
            database.execute(&statement).await;
        }
    }
}

async fn create_addresses(database: &Database) {
    database
        .execute("CREATE TABLE address (together text)")
        .await;
    for (before, after, (first, last)) in PLACES {
        let statement = format!(
            "INSERT INTO address
             SELECT string_agg('{before}' || chr(n) || '{after}', '{SEPARATOR}')
               FROM generate_series({first}, {last}) AS n
              WHERE n NOT BETWEEN x'D800'::int AND x'DFFF'::int GROUP BY n / {ADDRESSES_IN_ONE}"
        );
        database.execute(&statement).await;
    }
}

/// For each string of addresses the different strings that the mappings make of it.
fn mapped_addresses() -> String {
    let mut mapped = vec!["(together)".to_owned()];
    for (provider, locales) in COLLATIONS {
        for locale in locales {
            for mapping in ["lower", "upper", "initcap"] {
                let argument = format!("together COLLATE \"of {provider} {locale}\"");
                mapped.push(format!("({mapping}({argument}) COLLATE \"C\")"));
            }
        }
    }
    format!(
        "SELECT ARRAY(SELECT DISTINCT mapped FROM (VALUES {}) AS one (mapped)) FROM address",
        mapped.join(", ")
    )
}

fn config() -> String {
    format!(
        "[filters.registered-email]\nprofile = \"email\"\ncapacity = 1500000\n\
         false_positive_rate = 1e-10\n[[filters.registered-email.sources]]\nname = \"all\"\n\
         refresh_interval = \"1h\"\n\
         query = \"\"\"SELECT unnest(string_to_array(together, '{}')) FROM address\"\"\"\n",
        SEPARATOR
    )
}
