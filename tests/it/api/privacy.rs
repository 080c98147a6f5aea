//! Items reach no log, metric, header, problem or URL, by whatever road they come and however they
//! fail there.

use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::DEADLINE;
use crate::support::{Bloomgate, Conduct, Database, Launch, Proxy, eventually};

/// Part of every item here, and of nothing else.
const MARK: &str = "zq7mark";
const ADDRESSES: usize = 100;

fn address(number: usize) -> String {
    format!("Ann.{MARK}-{number}@{MARK}.example")
}

/// Everything that the service has said.
#[derive(Default)]
struct Said(String);

impl Said {
    async fn by(&mut self, request: RequestBuilder) -> u16 {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        self.0 += &format!("{:?}", response.headers());
        self.0 += &response.text().await.unwrap();
        status
    }

    async fn by_logs_and_metrics(&mut self, service: &Bloomgate) {
        for path in ["/metrics", "/v1/filters", "/readyz"] {
            self.by(service.request(Method::GET, path)).await;
        }
        self.0 += &service.logs();
        self.0 += &service.stdout();
    }

    /// Panics where the mark is found, as text or in hexadecimal as a database quotes bytes.
    fn assert_unmarked(&self) {
        let said = self.0.to_lowercase();
        for mark in [
            MARK.to_owned(),
            hex::encode(MARK),
            hex::encode(MARK.to_uppercase()),
        ] {
            if let Some(at) = said.find(&mark) {
                let around: String = said[..at].chars().rev().take(300).collect();
                let before: String = around.chars().rev().collect();
                panic!("an item was told, after: {before}");
            }
        }
    }
}

/// Bodies that hold an address, taken and refused, for `operation`.
fn bodies(operation: &str, address: &str) -> Vec<String> {
    let mut bodies = vec![
        address.to_owned(),
        format!("\"{address}\""),
        format!("{{\"item\":\"{address}"),
        format!("{{\"item\":{address}}}"),
        format!("{{\"{address}\":1}}"),
        json!({"item": [address], "items": [[address]]}).to_string(),
        json!({"item": {address: address}}).to_string(),
        json!({"items": {address: address}}).to_string(),
        json!({"item": address, "items": [address], address: address}).to_string(),
        format!("{{\"item\":\"{address}\",\"item\":\"{address}\"}}"),
        json!({"item": format!("{address}\0")}).to_string(),
        json!({"item": address.repeat(200)}).to_string(),
        json!({"item": format!("Bearer {address}")}).to_string(),
        json!({"profile": address, "capacity": 1, "false_positive_rate": 0.1}).to_string(),
        json!({"profile": "jti", "capacity": address, "false_positive_rate": 0.1}).to_string(),
    ];
    bodies.extend(match operation {
        "check" => vec![
            json!({"item": address}).to_string(),
            json!({"item": address, "min_watermark": address}).to_string(),
        ],
        "check-batch" => vec![
            json!({"items": [address, address]}).to_string(),
            json!({"items": [address, format!("{address}\0")]}).to_string(),
            json!({"items": [address], "min_watermark": address}).to_string(),
        ],
        "add" => vec![
            json!({"item": address}).to_string(),
            json!({"item": address, "expires_at": "2199-01-01T00:00:00Z"}).to_string(),
            json!({"item": address, "expires_at": address}).to_string(),
        ],
        "add-batch" => vec![
            json!({"items": [{"item": address}]}).to_string(),
            json!({"items": [address]}).to_string(),
            json!({"items": [{"item": address, "expires_at": address}]}).to_string(),
            json!({"items": [{"item": address, address: 1}]}).to_string(),
        ],
        _ => Vec::new(),
    });
    bodies
}

/// Takes one address along every road there is.
async fn every_road(service: &Bloomgate, filter: &str, address: &str, said: &mut Said) {
    let path = |operation: &str| format!("/v1/filters/{filter}/{operation}");
    let post = |path: &str, media_type: &str, body: String| {
        let request = service.request(Method::POST, path);
        request.header(CONTENT_TYPE, media_type).body(body)
    };
    for operation in ["check", "check-batch", "add", "add-batch"] {
        for body in bodies(operation, address) {
            said.by(post(&path(operation), "application/json", body))
                .await;
        }
        let body = json!({"item": address}).to_string();
        said.by(post(&path(operation), address, body)).await;
    }
    for check in [
        json!({"filter": filter, "item": address}),
        json!({"filter": filter, "item": format!("{address}\0")}),
        json!({"filter": address, "item": address}),
        json!({"filter": filter, "item": {address: address}}),
        json!({"filter": filter, "item": address, address: 1}),
        json!({"filter": filter, "item": address, "min_watermark": address}),
    ] {
        let body = json!({"checks": [check], "confirm": true});
        said.by(post("/v1/check", "application/json", body.to_string()))
            .await;
    }
    for body in bodies("", address) {
        said.by(post(
            &path("bulk-load"),
            "application/x-ndjson",
            body.clone(),
        ))
        .await;
        said.by(post(&path("bulk-load"), "text/plain", body.clone()))
            .await;
        let put = service.request(Method::PUT, "/v1/filters/other");
        said.by(put.header(CONTENT_TYPE, "application/json").body(body))
            .await;
    }
    for misplaced in [
        format!("/v1/filters/{address}"),
        format!("/v1/filters/{address}/check"),
        format!("/v1/filters/{filter}/{address}"),
        format!("/{address}"),
        format!("/problems/{address}"),
        format!("/v1/plan?capacity={address}&false_positive_rate={address}"),
        format!("/v1/plan?{address}={address}"),
        format!("/v1/filters/{filter}/check?item={address}"),
    ] {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            said.by(service.request(method, &misplaced)).await;
        }
    }
    for header in [
        "x-request-id",
        "x-api-key",
        "authorization",
        "user-agent",
        "accept",
    ] {
        let request = service.request(Method::GET, "/v1/filters/nowhere");
        said.by(request.header(header, address)).await;
    }
}

const FILTERS: &str = "
max_staleness = \"2s\"
poll_interval = \"100ms\"
[filters.jti]
profile = \"jti\"
capacity = 1000
false_positive_rate = 0.01
[filters.email]
profile = \"email\"
capacity = 1000
false_positive_rate = 0.01
";

#[tokio::test(flavor = "multi_thread")]
async fn no_item_is_told_by_any_road_even_when_everything_is_logged() {
    let launch = Launch::new().config(FILTERS).env("BLOOMGATE_LOG", "trace");
    let service = launch.start().await;
    let mut said = Said::default();
    for filter in ["email", "jti"] {
        service.wait_live(filter).await;
        for number in 0..ADDRESSES / 2 {
            every_road(&service, filter, &address(number), &mut said).await;
        }
        // The roads that are meant to be taken were.
        assert!(service.check(filter, &address(0)).await.is_match());
    }
    said.by_logs_and_metrics(&service).await;
    assert!(said.0.contains("\"level\":\"TRACE\"") || said.0.contains("\"level\":\"DEBUG\""));
    assert!(said.0.contains("/problems/malformed-body"));
    assert!(said.0.contains("/problems/invalid-item"));
    said.assert_unmarked();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_item_is_told_by_a_postgres_that_fails_over_it() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let launch = Launch::new().config(FILTERS).env("RUST_LOG", "trace");
    let launch = launch.database_url(&database.url_at(&proxy.address()));
    let service = launch.start().await;
    service.wait_live("email").await;
    let mut said = Said::default();
    for number in 0..10 {
        every_road(&service, "email", &address(number), &mut said).await;
    }
    let add = async |said: &mut Said, number: usize| {
        let request = service.request(Method::POST, "/v1/filters/email/add");
        said.by(request.json(&json!({"item": address(number)})))
            .await
    };
    // The server quotes the whole row that a constraint refuses.
    database
        .execute("ALTER TABLE bloomgate.item ADD CONSTRAINT none CHECK (false) NOT VALID")
        .await;
    for number in 0..10 {
        assert_eq!(add(&mut said, number).await, 503);
    }
    database
        .execute("ALTER TABLE bloomgate.item DROP CONSTRAINT none")
        .await;
    assert_eq!(add(&mut said, 0).await, 200);
    proxy.switch(Conduct::Refuse);
    proxy.cut();
    eventually("adds are refused", DEADLINE, async || {
        (add(&mut said, 0).await == 503).then_some(())
    })
    .await;
    every_road(&service, "email", &address(0), &mut said).await;
    said.by_logs_and_metrics(&service).await;
    assert!(said.0.contains("adds were not acknowledged"));
    said.assert_unmarked();
}

/// The description of a source that has failed.
async fn failed_source(service: &Bloomgate) -> Value {
    eventually("the source has failed", DEADLINE, async || {
        let source = service.describe("taken").await["sources"][0].clone();
        source.get("error").is_some().then_some(source)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_item_is_told_by_a_source_whose_query_fails_on_a_row() {
    let database = Database::create().await;
    let rows = format!(
        "CREATE TABLE account (email text, gone text);
         INSERT INTO account SELECT 'Ann.{MARK}-' || n || '@{MARK}.example', '{MARK}'
            FROM generate_series(1, 100) AS n"
    );
    database.execute(&rows).await;
    for query in [
        "SELECT email::bigint FROM account",
        "SELECT email, gone::timestamptz FROM account",
        "SELECT (xpath('/', email::xml))[1]::text FROM account",
        "SELECT email::json->>'a' FROM account",
        "SELECT email::regclass::text FROM account",
        "SELECT email::regtype::text FROM account",
        "SELECT current_setting(email) FROM account",
    ] {
        let config = format!(
            "database_url = \"{}\"
             [filters.taken]
             profile = \"email\"
             capacity = 1000
             false_positive_rate = 0.01
             [[filters.taken.sources]]
             name = \"accounts\"
             query = \"{query}\"",
            database.url()
        );
        let launch = Launch::new().config(&config).env("BLOOMGATE_LOG", "trace");
        let service = launch.start().await;
        let source = failed_source(&service).await;
        assert_eq!(source["state"], "loading");
        let mut said = Said::default();
        said.by_logs_and_metrics(&service).await;
        assert!(said.0.contains("accounts"), "the failure is not logged");
        said.assert_unmarked();
        assert_eq!(
            service.check("taken", "eve@x.com").await.reason.as_deref(),
            Some("loading")
        );
    }
}
