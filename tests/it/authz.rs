//! Forward-auth: whatever fails, no token passes that should not.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Answer, Bloomgate, Conduct, Database, Launch, Proxy, eventually};

/// Long enough for whatever must come on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// Part of every claim that must not be told.
const MARK: &str = "zq7mark";

const CONFIG: &str = "
max_staleness = \"2s\"
poll_interval = \"100ms\"
[authz.api]
jti = \"revoked-jti\"
[authz.strict]
jti = \"revoked-jti\"
on_maybe = \"deny\"
[filters.revoked-jti]
profile = \"jti\"
capacity = 1000
false_positive_rate = 1e-9
";

/// A signed token; nobody looks at the signature here.
pub(crate) fn token(claims: &Value) -> String {
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let header = part(r#"{"alg":"ES256","typ":"JWT"}"#);
    format!("{header}.{}.{}", part(&claims.to_string()), part("signed"))
}

async fn ask(service: &Bloomgate, path: &str, jti: &str) -> Answer {
    let request = service.request(Method::GET, path);
    let request = request.bearer_auth(token(&json!({ "jti": jti })));
    Answer::read(request.send().await.unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_database_it_lets_nobody_in_and_says_why() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let url = database.url_at(&proxy.address());
    let mut service = Launch::new()
        .config(CONFIG)
        .database_url(&url)
        .start()
        .await;
    service.wait_live("revoked-jti").await;
    service.add("revoked-jti", "stolen").await;
    for path in ["/authz/api", "/authz/strict"] {
        assert_eq!(ask(&service, path, "live").await.status, 200);
    }
    let revoked = ask(&service, "/authz/api", "stolen").await;
    revoked.expect_problem(401, "invalid-token");
    let unsure = ask(&service, "/authz/strict", "stolen").await;
    unsure.expect_problem(403, "undecided");

    proxy.switch(Conduct::Refuse);
    proxy.cut();
    eventually("the filter is stale", DEADLINE, async || {
        let checked = service.check("revoked-jti", "live").await;
        (checked.reason.as_deref() == Some("stale")).then_some(())
    })
    .await;
    for (path, jti) in [
        ("/authz/api", "live"),
        ("/authz/api", "stolen"),
        ("/authz/strict", "live"),
    ] {
        let answer = ask(&service, path, jti).await;
        answer.expect_problem(403, "undecided");
        assert_eq!(answer.header("www-authenticate"), None);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }

    // Of the start after that nothing is known but what a snapshot holds.
    service.restart().await;
    for path in ["/authz/api", "/authz/strict"] {
        let answer = ask(&service, path, "live").await;
        answer.expect_problem(403, "undecided");
    }
    proxy.switch(Conduct::Pass);
    eventually("live tokens pass again", DEADLINE, async || {
        (ask(&service, "/authz/api", "live").await.status == 200).then_some(())
    })
    .await;
    assert_eq!(ask(&service, "/authz/api", "stolen").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_store_has_is_revoked_even_while_the_filter_is_loading() {
    let database = Database::create().await;
    database.execute("CREATE TABLE person (jti text)").await;
    let proxy = Proxy::start(database.address()).await;
    proxy.switch(Conduct::Refuse);
    let config = format!(
        "{CONFIG}[[filters.revoked-jti.sources]]\nname = \"away\"\ndatabase_url = \"{}\"\n\
         query = \"SELECT jti FROM person\"\n\
         confirm_query = \"SELECT jti FROM person WHERE jti = $1\"\n",
        database.url_at(&proxy.address())
    );
    let launch = Launch::new().config(&config).database_url(database.url());
    let service = launch.start().await;
    eventually("the store takes adds", DEADLINE, async || {
        let added = service.try_add("revoked-jti", "stolen").await.unwrap();
        (added.status == 200).then_some(())
    })
    .await;
    let checked = service.check("revoked-jti", "live").await;
    assert_eq!(checked.reason.as_deref(), Some("loading"));
    eventually(
        "what is revoked is found in the store",
        DEADLINE,
        async || {
            let answer = ask(&service, "/authz/api", "stolen").await;
            assert_ne!(answer.status, 200);
            (answer.status == 401).then_some(())
        },
    )
    .await;
    // The source may have it.
    let unsure = ask(&service, "/authz/api", "live").await;
    unsure.expect_problem(403, "undecided");
    let unsure = ask(&service, "/authz/strict", "stolen").await;
    unsure.expect_problem(403, "undecided");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_and_no_claim_is_told_even_when_everything_is_logged() {
    let launch = Launch::new().config(CONFIG).env("BLOOMGATE_LOG", "trace");
    let service = launch.start().await;
    service.wait_live("revoked-jti").await;
    let jti = format!("{MARK}-1");
    service.add("revoked-jti", &jti).await;
    let claims = json!({"jti": jti, "sub": MARK});
    let (good, live) = (token(&claims), token(&json!({"jti": format!("{MARK}-2")})));
    let odd = token(&json!({"jti": [MARK]}));
    let twice = good.clone() + &good;
    let mut said = String::new();
    for path in [
        "/authz/api",
        "/authz/strict/orders",
        "/authz/nowhere",
        "/authz",
    ] {
        for token in [&good, &live, &odd, &twice, &MARK.to_owned()] {
            let path = format!("{path}?access_token={token}");
            let request = service.request(Method::GET, &path).bearer_auth(token);
            let answer = Answer::read(request.send().await.unwrap()).await.unwrap();
            assert!([200, 401, 403].contains(&answer.status));
            said += &format!("{:?}{}", answer.headers, answer.text);
        }
    }
    let metrics = service.get("/metrics").await.text;
    assert!(
        metrics.contains("http_route=\"/authz/{name}\""),
        "{metrics}"
    );
    assert!(!metrics.contains("orders"));
    said += &metrics;
    said += &service.logs();
    assert!(said.contains("/authz/{name}"));
    let payload = |token: &str| token.split('.').nth(1).unwrap().to_owned();
    for secret in [
        MARK.to_owned(),
        payload(&good),
        payload(&live),
        payload(&odd),
    ] {
        assert!(!said.contains(&secret), "a token was told");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_is_not_declared_is_told_at_the_start_and_keeps_everybody_out_until_it_is_made()
 {
    let config = format!("{CONFIG}[authz.later]\nsub = \"made-later\"\n");
    let service = Launch::new().config(&config).start().await;
    assert!(service.logs().contains("made-later"), "{}", service.logs());
    let ask = async || {
        let request = service.request(Method::GET, "/authz/later");
        let request = request.bearer_auth(token(&json!({"sub": "ann"})));
        Answer::read(request.send().await.unwrap()).await.unwrap()
    };
    eventually("the filters are known", DEADLINE, async || {
        let answer = ask().await;
        answer.expect_problem(403, "undecided");
        let description = service.get("/v1/filters/made-later").await;
        (description.status == 404).then_some(())
    })
    .await;
    let made = json!({"profile": "text", "capacity": 1000, "false_positive_rate": 0.01});
    let made = service.put("/v1/filters/made-later", &made).await;
    made.expect_status(201);
    assert_eq!(ask().await.status, 200);
}

/// The head of an answer without a body.
async fn head(connection: &mut tokio::net::TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_along_is_passed_over_and_the_connection_stays() {
    let service = Launch::new().config(CONFIG).start().await;
    service.wait_live("revoked-jti").await;
    let address = service.base_url().strip_prefix("http://").unwrap();
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let token = token(&json!({"jti": "live"}));
    let body = "x".repeat(1_000_000);
    for method in ["POST", "PUT", "GET"] {
        let request = format!(
            "{method} /authz/api/upload HTTP/1.1\r\nHost: gateway\r\n\
             Authorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut connection).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(!head.to_lowercase().contains("connection: close"), "{head}");
    }
}
