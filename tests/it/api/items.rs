//! Items: which are refused, and what is said of the others from their first second on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{pointer, send};
use crate::support::{Bloomgate, Launch, eventually};

const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJqdGkiOiI3ZjBjIn0.c2lnbmF0dXJl";

const FILTERS: &str = "
[filters.jti]
profile = \"jti\"
capacity = 10000
false_positive_rate = 0.01
[filters.email]
profile = \"email\"
capacity = 10000
false_positive_rate = 0.01
[filters.text]
profile = \"text\"
capacity = 10000
false_positive_rate = 0.01
";

async fn live_filters() -> Bloomgate {
    let service = Bloomgate::start(FILTERS).await;
    for filter in ["jti", "email", "text"] {
        service.wait_live(filter).await;
    }
    service
}

/// Sends an item by every road that refuses it whole. Each refusal points to it.
async fn refused_by_every_road(service: &Bloomgate, filter: &str, item: &str) -> Vec<Value> {
    let mut problems = Vec::new();
    for (operation, body, at) in [
        ("check", json!({"item": item}), "/item"),
        ("check-batch", json!({"items": ["ok", item]}), "/items/1"),
        ("add", json!({"item": item}), "/item"),
        (
            "add-batch",
            json!({"items": [{"item": "ok"}, {"item": item}]}),
            "/items/1/item",
        ),
    ] {
        let path = format!("/v1/filters/{filter}/{operation}");
        let answer = service.post(&path, &body).await;
        let problem = answer.expect_problem(422, "invalid-item");
        assert_eq!(pointer(&problem), at);
        problems.push(problem);
    }
    problems
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_token_is_refused_with_a_hint_on_add_and_on_check() {
    let service = live_filters().await;
    let bearer = format!("Bearer {TOKEN}");
    let with_lower_case_scheme = format!("bearer {TOKEN}");
    let long = format!("{TOKEN}{}", "x".repeat(2_000));
    for item in [
        TOKEN,
        &bearer,
        &with_lower_case_scheme,
        &long,
        "Bearer 7f0c",
    ] {
        for problem in refused_by_every_road(&service, "jti", item).await {
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("`jti` claim"), "{detail}");
        }
        let load = "/v1/filters/jti/bulk-load";
        let answer = service.post_text(load, "text/plain", item.to_owned()).await;
        answer.expect_problem(422, "invalid-item");
    }
    assert_eq!(service.describe("jti").await["fill_ratio"], 0.0);
    service.add("text", TOKEN).await;
    assert!(service.check("text", TOKEN).await.is_match());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blank_item_one_over_the_limit_and_one_with_u_0000_are_refused() {
    let service = live_filters().await;
    for (filter, limit_bytes) in [("jti", 1_024), ("email", 4_096), ("text", 4_096)] {
        let longest = "é".repeat(limit_bytes / 2);
        let too_long = format!("{longest}x");
        for item in [
            "", " ", "  \t\r\n", "\u{a0}", "\u{3000}", "a\0b", "\0", &too_long,
        ] {
            refused_by_every_road(&service, filter, item).await;
        }
        assert_eq!(service.describe(filter).await["fill_ratio"], 0.0);
        service.add(filter, &longest).await;
        assert!(service.check(filter, &longest).await.is_match());
    }
    for ignorable in ["\u{200b}", "\u{feff} \u{ad}"] {
        refused_by_every_road(&service, "email", ignorable).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_filter_is_ready_at_once_and_answers_within_10_ms() {
    let service = Bloomgate::start("").await;
    let described = service.wait_live("revoked-jti").await;
    assert_eq!(described["estimated_cardinality"], 0);
    eventually(
        "the service is ready",
        Duration::from_secs(10),
        async || (service.get("/readyz").await.status == 200).then_some(()),
    )
    .await;
    // The machine is busy with other tests: the fastest of many is what the program takes.
    let mut fastest = Duration::MAX;
    for number in 0..200 {
        let begun = Instant::now();
        let checked = service
            .check("revoked-jti", &format!("absent-{number}"))
            .await;
        fastest = fastest.min(begun.elapsed());
        assert_eq!(checked.verdict, "definitely-not");
        assert!(checked.estimated_fp_rate.abs() < f64::EPSILON);
    }
    assert!(fastest < Duration::from_millis(10), "{fastest:?}");
    service.add("revoked-jti", "7f0c").await;
    assert!(service.check("revoked-jti", "7f0c").await.is_match());
}

#[tokio::test(flavor = "multi_thread")]
async fn items_added_a_thousand_times_over_are_counted_once_also_after_a_restart() {
    let config = FILTERS.replace("10000", "20");
    let mut service = Bloomgate::start(&config).await;
    service.wait_live("jti").await;
    let items: Vec<_> = (0..10)
        .map(|number| json!({"item": format!("id-{number}")}))
        .collect();
    let batch: Vec<_> = items.iter().cycle().take(10_000).collect();
    let add = "/v1/filters/jti/add-batch";
    let answer = service.post(add, &json!({ "items": batch })).await;
    assert_eq!(answer.expect_status(200)["accepted"], 10_000);
    let told = async |service: &Bloomgate| {
        let described = service.wait_live("jti").await;
        assert_eq!(described["over_capacity"], false, "{described}");
        let cardinality = described["estimated_cardinality"].as_i64().unwrap();
        assert!((9..=11).contains(&cardinality), "{described}");
        (cardinality, described["fill_ratio"].clone())
    };
    let before = told(&service).await;
    service.restart().await;
    assert_eq!(told(&service).await, before);
    for number in 0..10 {
        assert!(
            service
                .check("jti", &format!("id-{number}"))
                .await
                .is_match()
        );
    }
    for item in items.iter().cycle().take(200) {
        service
            .post("/v1/filters/jti/add", item)
            .await
            .expect_status(200);
    }
    assert_eq!(told(&service).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_an_item_added_with_several_expiries_the_longest_holds() {
    let launch = Launch::new().config(&format!("expiry_leeway = \"0s\"\n{FILTERS}"));
    let mut service = launch.start().await;
    service.wait_live("jti").await;
    let past = Some("2001-01-01T00:00:00Z");
    let future = Some("2199-01-01T00:00:00+02:00");
    let add = async |item: &str, expires_at: Option<&str>| {
        let body = match expires_at {
            Some(at) => json!({"item": item, "expires_at": at}),
            None => json!({"item": item}),
        };
        service
            .post("/v1/filters/jti/add", &body)
            .await
            .expect_status(200);
    };
    for (item, expiries) in [
        ("past", vec![past]),
        ("past-future", vec![past, future]),
        ("future-past", vec![future, past]),
        ("never-past", vec![None, past]),
        ("past-never", vec![past, None]),
        ("future-never-past", vec![future, None, past]),
    ] {
        for expires_at in expiries {
            add(item, expires_at).await;
        }
    }
    let items = json!({"items": [
        {"item": "in-one-batch", "expires_at": future},
        {"item": "in-one-batch", "expires_at": past},
    ]});
    let answer = service.post("/v1/filters/jti/add-batch", &items).await;
    answer.expect_status(200);
    let lines = "{\"item\":\"in-one-load\"}\n{\"item\":\"in-one-load\",\"expires_at\":\"2001-01-01T00:00:00Z\"}\n";
    let load = "/v1/filters/jti/bulk-load";
    let answer = service.post_text(load, "application/x-ndjson", lines).await;
    answer.expect_status(200);
    // What was acknowledged is found until the bits are built anew, its expiry notwithstanding.
    assert!(service.check("jti", "past").await.is_match());

    service.restart().await;
    service.wait_live("jti").await;
    for kept in [
        "past-future",
        "future-past",
        "never-past",
        "past-never",
        "future-never-past",
        "in-one-batch",
        "in-one-load",
    ] {
        assert!(service.check("jti", kept).await.is_match(), "{kept}");
    }
    assert!(!service.check("jti", "past").await.is_maybe());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_100_000_items_added_by_64_clients_each_is_found_right_after_its_answer() {
    const CLIENTS: usize = 64;
    const ITEMS: usize = 100_000;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let config = FILTERS.replace("10000", "200000");
    let service = std::sync::Arc::new(Bloomgate::start(&config).await);
    service.wait_live("jti").await;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let service = std::sync::Arc::clone(&service);
        clients.spawn(async move {
            let post = async |operation: &str, item: &str| {
                let path = format!("/v1/filters/jti/{operation}");
                let request = service.request(reqwest::Method::POST, &path);
                send(request.json(&json!({"item": item}))).await
            };
            loop {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                if number >= ITEMS {
                    return;
                }
                let item = format!("id-{number}");
                post("add", &item).await.expect_status(200);
                let checked = post("check", &item).await.expect_status(200);
                assert_eq!(checked["verdict"], "maybe", "{item}");
                assert_eq!(checked["reason"], "match");
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    let cardinality = &service.describe("jti").await["estimated_cardinality"];
    let cardinality = cardinality.as_i64().unwrap();
    assert!((99_000..=101_000).contains(&cardinality), "{cardinality}");
}
