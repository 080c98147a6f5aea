//! Keys: who may ask what, and that nobody else learns anything.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Bloomgate, Finished, Launch, eventually};

/// Long enough for whatever must come on a busy machine.
const DEADLINE: Duration = Duration::from_secs(30);

/// A key as `bloomgate key new` made it.
struct Key {
    secret: String,
    /// What is pasted into the configuration.
    block: String,
}

async fn key_new(arguments: &[&str]) -> Finished {
    let arguments = [&["key", "new"], arguments].concat();
    Launch::new().run(&arguments).await
}

async fn new_key(id: &str, scopes: &str, filters: Option<&str>) -> Key {
    let mut arguments = vec!["--id", id, "--scope", scopes];
    if let Some(filters) = filters {
        arguments.extend(["--filter", filters]);
    }
    let made = key_new(&arguments).await;
    assert_eq!(made.exit_code, Some(0), "{made:?}");
    let secrets: Vec<_> = made
        .stdout
        .lines()
        .filter(|line| line.starts_with("bg_"))
        .collect();
    assert_eq!(secrets.len(), 1, "the key is printed once");
    let (_, block) = made.stdout.split_once("[[keys]]").unwrap();
    assert!(
        !block.contains(secrets[0]),
        "the configuration never holds the key"
    );
    Key {
        secret: secrets[0].to_owned(),
        block: format!("[[keys]]{block}\n"),
    }
}

async fn start_with(keys: &[&Key]) -> Bloomgate {
    let config: String = keys.iter().map(|key| key.block.as_str()).collect();
    Bloomgate::start(&config).await
}

async fn ask(service: &Bloomgate, method: &Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = service.request(method.clone(), path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if *method == Method::POST || *method == Method::PUT {
        request = request.json(&body_for(path));
    }
    Answer::read(request.send().await.unwrap()).await.unwrap()
}

/// Waits until a filter is live, as whoever has this key sees it.
async fn wait_live(service: &Bloomgate, key: &Key) {
    eventually("the filter is live", DEADLINE, async || {
        let path = "/v1/filters/revoked-jti/check";
        let answer = ask(service, &Method::POST, path, &[("x-api-key", &key.secret)]).await;
        (answer.json()["reason"] != "loading").then_some(())
    })
    .await;
}

/// A body that the operation at this path takes.
fn body_for(path: &str) -> Value {
    match path.rsplit('/').next().unwrap() {
        "check-batch" => json!({"items": ["7f0c"]}),
        "add-batch" => json!({"items": [{"item": "7f0c"}]}),
        "check" if path == "/v1/check" => {
            json!({"checks": [{"filter": "revoked-jti", "item": "7f0c"}]})
        }
        "check" | "add" | "remove" => json!({"item": "7f0c"}),
        _ => json!({"profile": "jti", "capacity": 1_000, "false_positive_rate": 0.01}),
    }
}

/// Every route, and the scope that it needs; none where any key will do.
fn routes() -> Vec<(Method, &'static str, Option<&'static str>)> {
    vec![
        (Method::POST, "/v1/filters/revoked-jti/check", Some("check")),
        (
            Method::POST,
            "/v1/filters/revoked-jti/check-batch",
            Some("check"),
        ),
        (Method::POST, "/v1/check", Some("check")),
        (Method::POST, "/v1/filters/revoked-jti/add", Some("add")),
        (
            Method::POST,
            "/v1/filters/revoked-jti/add-batch",
            Some("add"),
        ),
        (
            Method::POST,
            "/v1/filters/revoked-jti/bulk-load",
            Some("add"),
        ),
        (Method::GET, "/v1/filters", Some("read")),
        (Method::GET, "/v1/filters/revoked-jti", Some("read")),
        (
            Method::GET,
            "/v1/plan?capacity=10&false_positive_rate=0.1",
            Some("read"),
        ),
        (Method::GET, "/metrics", Some("read")),
        (Method::GET, "/openapi.json", Some("read")),
        (Method::GET, "/docs/", Some("read")),
        (
            Method::POST,
            "/v1/filters/revoked-jti/remove",
            Some("admin"),
        ),
        (Method::PUT, "/v1/filters/another", Some("admin")),
        (Method::DELETE, "/v1/filters/another", Some("admin")),
        (Method::GET, "/problems/not-found", None),
        (Method::GET, "/nowhere", None),
        (Method::POST, "/v1/filters/revoked-jti/nowhere", None),
        (Method::GET, "/v1/filters/revoked-jti/check", None),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_the_probes_is_open_not_even_an_unknown_path_or_method() {
    let admin = new_key("root", "admin", None).await;
    let service = start_with(&[&admin]).await;
    for probe in ["/livez", "/readyz"] {
        let status = ask(&service, &Method::GET, probe, &[]).await.status;
        assert!([200, 503].contains(&status), "{probe} {status}");
    }
    for (method, path, _) in routes() {
        let answer = ask(&service, &method, path, &[]).await;
        answer.expect_problem(401, "unauthenticated");
        // Whoever brings no token gets a challenge without an error code (RFC 6750, section 3.1).
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.starts_with("Bearer"), "{challenge}");
        assert!(!challenge.contains("error"), "{challenge}");

        let almost = admin.secret.to_lowercase();
        for (name, value) in [
            ("x-api-key", "bg_no-such-key"),
            ("x-api-key", ""),
            ("x-api-key", &admin.secret[..admin.secret.len() - 1]),
            ("x-api-key", almost.as_str()),
            ("authorization", "Bearer bg_no-such-key"),
        ] {
            let answer = ask(&service, &method, path, &[(name, value)]).await;
            answer.expect_problem(401, "unauthenticated");
            let challenge = answer.header("www-authenticate").unwrap();
            assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
        }
        let basic = format!("Basic {}", admin.secret);
        let answer = ask(&service, &method, path, &[("authorization", &basic)]).await;
        answer.expect_problem(401, "unauthenticated");
    }
    assert!(!service.logs().contains(&admin.secret));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_taken_from_either_header() {
    let admin = new_key("root", "admin", None).await;
    let service = start_with(&[&admin]).await;
    let bearer = format!("Bearer {}", admin.secret);
    for header in [
        ("x-api-key", admin.secret.as_str()),
        ("authorization", &bearer),
    ] {
        let answer = ask(&service, &Method::GET, "/v1/filters", &[header]).await;
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_opens_its_own_operations_and_admin_opens_all() {
    let mut keys = Vec::new();
    for scope in ["check", "add", "read", "admin"] {
        keys.push((scope, new_key(scope, scope, None).await));
    }
    let all: Vec<_> = keys.iter().map(|(_, key)| key).collect();
    let service = start_with(&all).await;
    wait_live(&service, &keys[3].1).await;
    for (scope, key) in &keys {
        for (method, path, needed) in routes() {
            let answer = ask(&service, &method, path, &[("x-api-key", &key.secret)]).await;
            let allowed = needed.is_none_or(|needed| needed == *scope) || *scope == "admin";
            if allowed {
                assert!(
                    ![401, 403].contains(&answer.status),
                    "{scope} {path}: {answer:?}"
                );
                continue;
            }
            answer.expect_problem(403, "forbidden");
            let challenge = answer.header("www-authenticate").unwrap();
            let lacking = format!("scope=\"{}\"", needed.unwrap());
            assert!(challenge.contains("insufficient_scope"), "{challenge}");
            assert!(challenge.contains(&lacking), "{challenge}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_some_filters_reaches_and_sees_no_other() {
    let limited = new_key("limited", "admin", Some("revoked-jti,mine")).await;
    let root = new_key("root", "admin", None).await;
    let service = start_with(&[&limited, &root]).await;
    wait_live(&service, &limited).await;
    let ask = async |key: &Key, method: Method, path: &str| {
        ask(&service, &method, path, &[("x-api-key", &key.secret)]).await
    };
    for operation in ["check", "check-batch", "add", "add-batch"] {
        let path = format!("/v1/filters/revoked-jti/{operation}");
        ask(&limited, Method::POST, &path).await.expect_status(200);
        // Whether another filter is there at all is not told either.
        for other in [
            "registered-email",
            "nowhere",
            "revoked%2Djti",
            "REVOKED-JTI",
            "-",
        ] {
            let path = format!("/v1/filters/{other}/{operation}");
            let answer = ask(&limited, Method::POST, &path).await;
            answer.expect_problem(403, "forbidden");
        }
    }
    for (method, path) in [
        (Method::GET, "/v1/filters/registered-email"),
        (Method::PUT, "/v1/filters/another"),
        (Method::DELETE, "/v1/filters/registered-email"),
        (Method::POST, "/v1/filters/registered-email/bulk-load"),
    ] {
        let answer = ask(&limited, method, path).await;
        answer.expect_problem(403, "forbidden");
    }
    ask(&limited, Method::PUT, "/v1/filters/mine")
        .await
        .expect_status(201);
    let names = async |key: &Key| -> Vec<String> {
        let listed = ask(key, Method::GET, "/v1/filters")
            .await
            .expect_status(200);
        let filters = listed["filters"].as_array().unwrap().iter();
        filters
            .map(|filter| filter["filter"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&limited).await, ["mine", "revoked-jti"]);
    assert_eq!(
        names(&root).await,
        ["mine", "registered-email", "revoked-jti"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_asks_too_often_gets_429_and_is_told_when_to_come_again() {
    let mut limited = new_key("limited", "check", None).await;
    limited.block += "requests_per_second = 2\n";
    let free = new_key("free", "check", None).await;
    let service = start_with(&[&limited, &free]).await;
    let path = "/v1/filters/revoked-jti/check";
    let ask =
        async |key: &Key| ask(&service, &Method::POST, path, &[("x-api-key", &key.secret)]).await;
    let mut refused = None;
    for _ in 0..50 {
        let answer = ask(&limited).await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("fifty at once are more than two a second");
    refused.expect_problem(429, "too-many-requests");
    let wait_seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&wait_seconds), "{wait_seconds}");
    for _ in 0..50 {
        assert_eq!(ask(&free).await.status, 200);
    }
    tokio::time::sleep(Duration::from_secs(wait_seconds)).await;
    assert_eq!(ask(&limited).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_it_serves_loopback_only_unless_it_is_told_to() {
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = Launch::new()
            .listen(Some(listen))
            .expect_start_failure()
            .await;
        assert!(
            refused.stderr.contains("--insecure-no-keys"),
            "{}",
            refused.stderr
        );
        assert!(
            refused.stderr.contains("bloomgate key new"),
            "{}",
            refused.stderr
        );
    }
    for listen in ["127.0.0.1:0", "127.0.0.9:0"] {
        let service = Launch::new().listen(Some(listen)).start().await;
        assert_eq!(service.get("/livez").await.status, 200);
    }
    let everywhere = Launch::new()
        .listen(Some("0.0.0.0:0"))
        .env("BLOOMGATE_STORE", "sqlite");
    let service = everywhere.clone().flag("--insecure-no-keys").start().await;
    assert_eq!(service.get("/v1/filters").await.status, 200);
    drop(service);

    let key = new_key("gateway", "check", None).await;
    let service = everywhere.config(&key.block).start().await;
    let answer = service.get("/v1/filters").await;
    answer.expect_problem(401, "unauthenticated");
    wait_live(&service, &key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_no_scope_or_a_name_out_of_form_is_not_made() {
    for arguments in [
        &["--id", "a"][..],
        &["--scope", "check"],
        &["--id", "a", "--scope", "chek"],
        &["--id", "a", "--scope", ""],
        &["--id", "a b", "--scope", "check"],
        &["--id", "bg_a", "--scope", "check"],
        &["--id", "a", "--scope", "check", "--filter", "Not-A-Name"],
    ] {
        let refused = key_new(arguments).await;
        assert_ne!(refused.exit_code, Some(0), "{arguments:?}");
        assert!(!refused.stdout.contains("bg_"), "{arguments:?}");
    }
}
