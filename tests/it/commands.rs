//! The commands beside `serve`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Bloomgate, Database, Finished, Launch};

async fn run(arguments: &[&str]) -> Finished {
    Launch::new().run(arguments).await
}

/// What a command printed that ended well.
#[track_caller]
fn printed(finished: &Finished) -> &str {
    assert_eq!(finished.exit_code, Some(0), "{finished:?}");
    &finished.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn config_check_shows_what_takes_effect_and_no_secret() {
    let launch = Launch::new().database_url("postgres://user:seen-nowhere@db.example/app");
    let checked = launch.run(&["config", "check"]).await;
    let text = printed(&checked);
    assert!(text.starts_with("configuration is valid"), "{text}");
    assert!(text.contains("listen = \"127.0.0.1:8080\""), "{text}");
    assert!(!text.contains("seen-nowhere"), "{text}");
    let wrong = ["config", "check", "--listen", "nowhere", "--store", "paper"];
    let refused = run(&wrong).await;
    assert_eq!(refused.exit_code, Some(2), "{refused:?}");
    for key in ["listen", "store"] {
        assert!(refused.stderr.contains(key), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_makes_the_schema_and_takes_no_store() {
    let database = Database::create().await;
    let first = Launch::new().database_url(database.url()).start().await;
    first.wait_live("revoked-jti").await;
    // Beside the process that has the store, and again where there is nothing to do.
    for _ in 0..2 {
        let migrating = Launch::new().database_url(database.url());
        printed(&migrating.run(&["migrate"]).await);
    }
    first.add("revoked-jti", "still mine").await;

    let fresh = Database::create().await;
    let migrating = Launch::new().database_url(fresh.url());
    printed(&migrating.run(&["migrate"]).await);
    let tables: i64 = fresh
        .query_value("SELECT count(*) FROM pg_tables WHERE schemaname = 'bloomgate'")
        .await;
    assert!(tables > 0);
    let elsewhere: i64 = fresh
        .query_value("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        .await;
    assert_eq!(elsewhere, 0);
    printed(&run(&["migrate"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_prints_the_document_that_is_served_and_checked_in() {
    let printed_document = run(&["openapi"]).await;
    let document: Value = serde_json::from_str(printed(&printed_document)).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi/openapi.json");
    let checked_in: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(document, checked_in);
    let service = Bloomgate::start("").await;
    let served = service.get("/openapi.json").await.expect_status(200);
    assert_eq!(served["paths"], checked_in["paths"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_tells_what_a_filter_takes() {
    let arguments = [
        "plan",
        "--capacity",
        "5000000",
        "--false-positive-rate",
        "0.001",
    ];
    let planned = run(&arguments).await;
    let text = printed(&planned);
    for word in ["71887938", "8.57 MiB"] {
        assert!(text.contains(word), "no {word}: {text}");
    }
    let impossible = run(&["plan", "--capacity", "5", "--false-positive-rate", "1.5"]).await;
    assert_ne!(impossible.exit_code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_works_with_the_block_that_it_is_printed_with_and_within_its_scopes() {
    let made = run(&["key", "new", "--id", "gateway", "--scope", "check,read"]).await;
    let text = printed(&made);
    let key = text.lines().find(|line| line.starts_with("bg_")).unwrap();
    let block = &text[text.find("[[keys]]").unwrap()..];
    assert!(!block.contains(key));

    let mut service = Bloomgate::start(block).await;
    let item = json!({ "item": "7f0c" });
    let check = service.post("/v1/filters/revoked-jti/check", &item).await;
    check.expect_problem(401, "unauthenticated");
    service.use_key(key);
    service.wait_live("revoked-jti").await;
    assert_eq!(
        service.check("revoked-jti", "7f0c").await.verdict,
        "definitely-not"
    );
    let add = service.post("/v1/filters/revoked-jti/add", &item).await;
    add.expect_problem(403, "forbidden");
    let bearer = reqwest::Client::new()
        .request(Method::GET, format!("{}/v1/filters", service.base_url()))
        .bearer_auth(key);
    assert_eq!(bearer.send().await.unwrap().status(), 200);
    assert!(!service.logs().contains(key));
}

#[tokio::test(flavor = "multi_thread")]
async fn healthcheck_is_0_for_a_service_that_lives_and_1_for_none() {
    let mut service = Bloomgate::start("").await;
    let address = service
        .base_url()
        .strip_prefix("http://")
        .unwrap()
        .to_owned();
    printed(&run(&["healthcheck", "--listen", &address]).await);
    service.kill_9();
    let dead = run(&["healthcheck", "--listen", &address]).await;
    assert_eq!(dead.exit_code, Some(1), "{dead:?}");
    assert!(dead.stderr.contains(&address), "{dead:?}");
}
