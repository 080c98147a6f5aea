//! The start: what it prints, and what ends it, with a line that says what and where.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Bloomgate, Database, Finished, Launch};

/// What is left of a start that is refused: it must not look like one that hangs.
const REFUSED_WITHIN: Duration = Duration::from_secs(15);

/// Stands in URLs, and must never be seen.
const PASSWORD: &str = "seen-nowhere";

/// The one line that ends a start that is refused.
#[track_caller]
fn last_words(finished: &Finished) -> &str {
    let words: Vec<_> = finished
        .stderr
        .lines()
        .filter(|line| !line.starts_with('{'))
        .collect();
    assert_eq!(words.len(), 1, "{finished:?}");
    assert!(finished.stdout.is_empty(), "{finished:?}");
    words[0].strip_prefix("bloomgate: ").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_url_that_is_set_but_empty_starts_no_empty_service() {
    let refused = Launch::new()
        .env("DATABASE_URL", "")
        .expect_start_failure()
        .await;
    assert_eq!(refused.exit_code, Some(2), "{refused:?}");
    for word in ["DATABASE_URL", "empty", "unset it", "store = \"sqlite\""] {
        assert!(refused.stderr.contains(word), "no {word}: {refused:?}");
    }
    let told = Launch::new()
        .env("DATABASE_URL", "")
        .flag("--store")
        .flag("sqlite");
    told.start().await.wait_live("revoked-jti").await;
}

/// Refused by `url` with these words, in seconds, without its password.
async fn assert_url_refused(url: &str, words: &[&str]) {
    let begun = Instant::now();
    let refused = Launch::new().database_url(url).expect_start_failure().await;
    assert!(begun.elapsed() < REFUSED_WITHIN, "{:?}", begun.elapsed());
    for text in [&refused.stdout, &refused.stderr] {
        assert!(!text.contains(PASSWORD), "{refused:?}");
    }
    if refused.exit_code == Some(2) {
        // The configuration's problems come as a list.
        assert!(
            words.iter().all(|word| refused.stderr.contains(word)),
            "{refused:?}"
        );
        return;
    }
    assert_eq!(refused.exit_code, Some(1));
    let line = last_words(&refused);
    for word in words {
        assert!(line.contains(word), "no {word:?} in {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_that_is_wrong_ends_the_start_with_one_line_that_says_what_and_where() {
    let database = Database::create().await;
    let (address, name) = (database.address(), database.name());
    let as_user = |user: &str, name: &str| format!("postgres://{user}:{PASSWORD}@{address}/{name}");
    assert_url_refused(&as_user("postgres", name), &[address, name, "password"]).await;
    assert_url_refused(&as_user("nobody", name), &[address, "nobody", "password"]).await;
    let unknown = database.url().replace(name, "unknown_database");
    assert_url_refused(&unknown, &[address, "\"unknown_database\" does not exist"]).await;
    let malformed = format!("mysql://user:{PASSWORD}@{address}/{name}");
    assert_url_refused(&malformed, &["DATABASE_URL", "postgres://"]).await;
    let misspelt = format!("{}?sslmod=require", as_user("postgres", name));
    assert_url_refused(&misspelt, &["sslmod"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_rights_ends_the_start_and_says_what_to_grant() {
    let database = Database::create().await;
    let (address, name) = (database.address(), database.name());
    let role = format!("role_{name}");
    database
        .execute(&format!("CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'"))
        .await;
    let url = format!("postgres://{role}:{PASSWORD}@{address}/{name}");
    assert_url_refused(&url, &[address, name, "permission denied", "grant"]).await;
    // With the schema made for it, the role is enough.
    database
        .execute(&format!("CREATE SCHEMA bloomgate AUTHORIZATION {role}"))
        .await;
    let mut service = Launch::new().database_url(&url).start().await;
    service.wait_live("revoked-jti").await;
    assert!(!service.logs().contains(PASSWORD));
    service.kill_9();
    drop(service);
    database
        .execute(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_problem_of_a_configuration_is_told_at_once_with_its_key_before_a_port_is_bound() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = r#"
        max_staleness = "soon"
        poll_intervall = "1s"
        [limits]
        max_batch = 0
        [filters.Tokens]
        [filters.tokens]
        profile = "jwt"
        capacity = 0
        false_positive_rate = 2
    "#;
    let launch = Launch::new().config(config).listen(Some(&address));
    let refused = launch.expect_start_failure().await;
    assert_eq!(refused.exit_code, Some(2), "{refused:?}");
    for key in [
        "max_staleness",
        "poll_intervall",
        "limits.max_batch",
        "filters.Tokens",
        "filters.tokens.profile",
        "filters.tokens.capacity",
        "filters.tokens.false_positive_rate",
    ] {
        assert!(refused.stderr.contains(key), "no {key}: {}", refused.stderr);
    }
    assert!(!refused.stderr.contains("listen on"), "{}", refused.stderr);

    let valid = Launch::new()
        .listen(Some(&address))
        .expect_start_failure()
        .await;
    assert!(last_words(&valid).contains(&address), "{valid:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_only_loopback_is_served_unless_told() {
    let open = Launch::new().listen(Some("0.0.0.0:0"));
    let refused = open.clone().expect_start_failure().await;
    assert_eq!(refused.exit_code, Some(2));
    for word in ["keys", "key new", "--insecure-no-keys"] {
        assert!(refused.stderr.contains(word), "no {word}: {refused:?}");
    }
    // SQLite on an address that others reach must be asked for, too.
    let told = open
        .flag("--insecure-no-keys")
        .flag("--store")
        .flag("sqlite");
    told.start().await.wait_live("revoked-jti").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_start_says_where_it_listens_where_the_data_lies_and_one_line_to_try() {
    let service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    service.wait_live("registered-email").await;
    let printed = service.stdout();
    assert!(printed.contains(service.base_url()), "{printed}");
    let data_dir = service.launched_as().data_dir();
    assert!(printed.contains(data_dir.to_str().unwrap()), "{printed}");

    let line = printed.lines().find_map(|line| line.strip_prefix("try: "));
    let tried = Command::new("bash")
        .args(["-c", line.unwrap()])
        .output()
        .unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&tried.stdout).unwrap();
    assert_eq!(answer["verdict"], "definitely-not", "{answer}");
}
