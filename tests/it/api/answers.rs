//! Every field of every answer.

use serde_json::{Value, json};

use super::{fields, send};
use crate::support::{Bloomgate, Database, Launch};

/// Panics where anything in an answer is null: what does not apply is left out.
#[track_caller]
fn assert_no_null(answer: &Value) {
    match answer {
        Value::Null => panic!("a null in an answer"),
        Value::Object(members) => members.values().for_each(assert_no_null),
        Value::Array(elements) => elements.iter().for_each(assert_no_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[track_caller]
fn assert_watermark(answer: &Value) {
    let watermark = answer["watermark"].as_str().unwrap();
    let is_url_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    assert!((1..=128).contains(&watermark.len()), "{answer}");
    assert!(watermark.bytes().all(is_url_safe), "{answer}");
}

/// A moment of RFC 3339 in UTC.
#[track_caller]
fn assert_moment(value: &Value) {
    let text = value.as_str().unwrap();
    assert!(text.ends_with('Z'), "{text} is not in UTC");
    assert!(text.parse::<jiff::Timestamp>().is_ok(), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_gives_its_verdict_and_a_reason_exactly_when_it_is_maybe() {
    let service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    let path = "/v1/filters/revoked-jti/check";
    let absent = service.post(path, &json!({"item": "7f0c"})).await;
    assert_eq!(
        absent.expect_status(200),
        json!({"filter": "revoked-jti", "verdict": "definitely-not", "estimated_fp_rate": 0.0})
    );
    assert_eq!(absent.header("content-type"), Some("application/json"));

    service.add("revoked-jti", "7f0c").await;
    let present = service.post(path, &json!({"item": "7f0c"})).await;
    let mut present = present.expect_status(200);
    let rate = present["estimated_fp_rate"].take().as_f64().unwrap();
    assert!(rate > 0.0 && rate < 1e-30, "{rate}");
    let expected = json!({
        "filter": "revoked-jti", "verdict": "maybe", "reason": "match", "estimated_fp_rate": null,
    });
    assert_eq!(present, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_checks_gives_one_verdict_an_item_in_the_order_of_the_request() {
    let service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    service.add("revoked-jti", "in-1").await;
    service.add("revoked-jti", "in-2").await;
    let items = json!({"items": ["in-1", "out-1", "in-2", "out-2", "in-1"]});
    let answer = service
        .post("/v1/filters/revoked-jti/check-batch", &items)
        .await;
    let answer = answer.expect_status(200);
    assert_eq!(fields(&answer), ["estimated_fp_rate", "filter", "verdicts"]);
    assert_eq!(answer["filter"], "revoked-jti");
    assert_eq!(
        answer["verdicts"],
        json!([
            "maybe",
            "definitely-not",
            "maybe",
            "definitely-not",
            "maybe"
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn adds_give_a_watermark_and_the_rate_and_batches_say_how_many_were_accepted() {
    let service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    let added = service.add("revoked-jti", "7f0c").await;
    assert_eq!(fields(&added), ["estimated_fp_rate", "filter", "watermark"]);
    assert_eq!(added["filter"], "revoked-jti");
    assert_watermark(&added);

    let items = json!({"items": [
        {"item": "a"}, {"item": "b", "expires_at": "2199-01-01T00:00:00+01:00"},
    ]});
    let added = service
        .post("/v1/filters/revoked-jti/add-batch", &items)
        .await;
    let added = added.expect_status(200);
    assert_eq!(
        fields(&added),
        ["accepted", "estimated_fp_rate", "filter", "watermark"]
    );
    assert_eq!(added["filter"], "revoked-jti");
    assert_eq!(added["accepted"], 2);
    assert!(added["estimated_fp_rate"].as_f64().unwrap() > 0.0);
    assert_watermark(&added);
}

/// The fields of a description without those that come and go.
const DESCRIPTION: [&str; 18] = [
    "as_of",
    "bit_count",
    "capacity",
    "declared_by",
    "estimated_cardinality",
    "estimated_fp_rate",
    "false_positive_rate",
    "fill_ratio",
    "filter",
    "generation",
    "hash_count",
    "memory_bytes",
    "over_capacity",
    "profile",
    "profile_options",
    "profile_version",
    "sources",
    "state",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_description_says_what_was_declared_what_it_takes_and_what_the_bits_tell() {
    let service = Bloomgate::start("").await;
    service.wait_live("registered-email").await;
    service.wait_live("revoked-jti").await;
    service.add("revoked-jti", "7f0c").await;
    let mut described = service.describe("revoked-jti").await;
    assert_eq!(fields(&described), DESCRIPTION);
    assert_moment(&described["as_of"].take());
    let fill_ratio = described["fill_ratio"].take().as_f64().unwrap();
    assert!(
        (fill_ratio - 7.0 / 9_585_059.0).abs() < 1e-12,
        "{fill_ratio}"
    );
    let rate = described["estimated_fp_rate"].take().as_f64().unwrap();
    assert!((rate / fill_ratio.powi(7) - 1.0).abs() < 1e-9, "{rate}");
    let expected = json!({
        "filter": "revoked-jti", "state": "live", "declared_by": "config", "generation": 1,
        "profile": "jti", "profile_version": 1, "profile_options": {}, "sources": [],
        "capacity": 1_000_000, "false_positive_rate": 0.01,
        "bit_count": 9_585_059, "hash_count": 7, "memory_bytes": described["memory_bytes"],
        "estimated_cardinality": 1, "over_capacity": false,
        "as_of": null, "fill_ratio": null, "estimated_fp_rate": null,
    });
    assert_eq!(described, expected);
    let memory_bytes = described["memory_bytes"].as_i64().unwrap();
    assert!(
        (1_198_133..1_200_000).contains(&memory_bytes),
        "{memory_bytes}"
    );

    let listed = service.get("/v1/filters").await.expect_status(200);
    assert_no_null(&listed);
    assert_eq!(fields(&listed), ["filters"]);
    let listed = listed["filters"].as_array().unwrap();
    let names: Vec<_> = listed.iter().map(|filter| &filter["filter"]).collect();
    assert_eq!(names, ["registered-email", "revoked-jti"]);
    assert_eq!(fields(&listed[0]), DESCRIPTION);
    assert_eq!(listed[0]["profile"], "email");
    assert_eq!(
        listed[0]["profile_options"],
        json!({"gmail_dots": false, "googlemail": false, "plus_tags": false})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_is_described_by_what_its_last_load_brought() {
    let database = Database::create().await;
    database
        .execute(
            "CREATE TABLE account (email text, gone timestamptz);
             INSERT INTO account VALUES ('ann@x.com', NULL), ('BOB@x.com', NULL), (NULL, NULL),
                ('  ', NULL), ('not-an-email', NULL), ('old@x.com', now() - interval '1 day')",
        )
        .await;
    let config = format!(
        "database_url = \"{}\"
         [filters.taken]
         profile = \"email\"
         capacity = 1000
         false_positive_rate = 0.01
         [[filters.taken.sources]]
         name = \"accounts\"
         query = \"SELECT email, gone FROM account\"",
        database.url()
    );
    let service = Launch::new().config(&config).start().await;
    let described = service.wait_live("taken").await;
    assert_no_null(&described);
    let mut source = described["sources"][0].clone();
    assert_moment(&source["as_of"].take());
    assert!(source["load_seconds"].take().as_f64().unwrap() >= 0.0);
    assert_eq!(
        source,
        json!({
            "name": "accounts", "state": "live", "as_of": null, "load_seconds": null,
            "rows_loaded": 6, "rows_blank": 2, "rows_odd": 1, "rows_expired": 1,
        })
    );
    let found = service
        .check_batch(
            "taken",
            &["ANN@X.COM", "bob@x.com", "not-an-email", "eve@x.com"],
        )
        .await;
    assert_eq!(found, [true, true, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_gives_the_bits_and_what_becomes_of_an_overfilled_filter() {
    let service = Bloomgate::start("").await;
    for (capacity, rate, bit_count, hash_count) in [
        (1_000_i64, "0.001", 14_378_i64, 10),
        (1_000_000, "0.01", 9_585_059, 7),
        (5_000_000, "1e-3", 71_887_938, 10),
        (1_000_000_000, "0.01", 9_585_058_378, 7),
        (1_000_000_000_000, "0.01", 9_585_058_377_368, 7),
    ] {
        let path = format!("/v1/plan?capacity={capacity}&false_positive_rate={rate}");
        let plan = service.get(&path).await.expect_status(200);
        let expected = [
            "bit_count",
            "fp_rate_at_10x",
            "fp_rate_at_2x",
            "hash_count",
            "memory_bytes",
        ];
        assert_eq!(fields(&plan), expected);
        assert_eq!(plan["bit_count"], bit_count);
        assert_eq!(plan["hash_count"], hash_count);
        assert!(plan["memory_bytes"].as_i64().unwrap() * 8 >= bit_count);
        if hash_count == 7 {
            let at_2x = plan["fp_rate_at_2x"].as_f64().unwrap();
            let at_10x = plan["fp_rate_at_10x"].as_f64().unwrap();
            assert!((at_2x - 0.157).abs() < 0.002, "{at_2x}");
            assert!((at_10x - 0.995).abs() < 0.001, "{at_10x}");
        }
    }
    let filters = service.get("/v1/filters").await.json();
    assert_eq!(filters["filters"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_probes_name_each_filter_and_its_state() {
    let service = Bloomgate::start("").await;
    service.wait_live("registered-email").await;
    service.wait_live("revoked-jti").await;
    for probe in ["/livez", "/readyz"] {
        let answer = service.get(probe).await.expect_status(200);
        let expected = json!({"status": "ok", "filters": [
            {"filter": "registered-email", "state": "live"},
            {"filter": "revoked-jti", "state": "live"},
        ]});
        assert_eq!(answer, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_carry_the_promised_names_and_labels() {
    let service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    service.add("revoked-jti", "7f0c").await;
    service.check("revoked-jti", "7f0c").await;
    service.check("revoked-jti", "absent").await;
    service.get("/nowhere").await;
    let answer = service.get("/metrics").await;
    assert_eq!(answer.status, 200);
    let media_type = answer.header("content-type").unwrap();
    assert!(media_type.starts_with("text/plain"), "{media_type}");
    let text = answer.text;
    for line in [
        "bloomgate_checks_total{filter=\"revoked-jti\",verdict=\"maybe\",reason=\"match\"} 1",
        "bloomgate_checks_total{filter=\"revoked-jti\",verdict=\"definitely-not\",reason=\"\"} 1",
        "bloomgate_adds_total{filter=\"revoked-jti\",road=\"add\"} 1",
        "bloomgate_filter_capacity{filter=\"revoked-jti\"} 1000000",
        "bloomgate_filter_bits{filter=\"revoked-jti\"} 9585059",
        "bloomgate_filter_ones{filter=\"revoked-jti\"} 7",
        "bloomgate_filter_estimated_cardinality{filter=\"revoked-jti\"} 1",
        "bloomgate_filter_over_capacity{filter=\"revoked-jti\"} 0",
        "bloomgate_filter_state{filter=\"revoked-jti\",state=\"live\"} 1",
        "bloomgate_filter_state{filter=\"revoked-jti\",state=\"stale\"} 0",
        "bloomgate_load_rows{filter=\"revoked-jti\",source=\"store\"} 0",
        "bloomgate_store_errors_total 0",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line}\nin\n{text}"
        );
    }
    for name in [
        "bloomgate_filter_memory_bytes{filter=\"revoked-jti\"}",
        "bloomgate_filter_fill_ratio{filter=\"revoked-jti\"}",
        "bloomgate_filter_estimated_fp_ratio{filter=\"revoked-jti\"}",
        "bloomgate_filter_staleness_seconds{filter=\"revoked-jti\"}",
        "bloomgate_load_seconds{filter=\"revoked-jti\",source=\"store\"}",
        "bloomgate_store_poll_seconds_bucket{le=\"0.0001\"}",
        "bloomgate_store_lag_seconds",
        "http_server_request_duration_seconds_bucket{http_request_method=\"POST\",\
         http_route=\"/v1/filters/{filter}/check\",http_response_status_code=\"200\",le=\"0.0001\"}",
        "http_server_request_duration_seconds_count{http_request_method=\"GET\",\
         http_route=\"unmatched\",http_response_status_code=\"404\"}",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
    ] {
        let found = text.lines().any(|line| line.starts_with(name));
        assert!(found, "{name}\nin\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_docs_page_and_a_page_for_each_kind_of_problem_are_served() {
    let service = Bloomgate::start("").await;
    let docs = service.get("/docs/").await;
    assert_eq!(docs.status, 200);
    assert!(docs.text.contains("swagger"), "{docs:?}");
    for name in [
        "malformed-body",
        "invalid-field",
        "invalid-item",
        "over-memory-budget",
        "unknown-filter",
        "unauthenticated",
        "forbidden",
        "not-found",
        "method-not-allowed",
        "body-too-large",
        "unsupported-media-type",
        "store-unavailable",
    ] {
        let page = service.get(&format!("/problems/{name}")).await;
        assert_eq!(page.status, 200, "{name}");
        assert!(
            page.header("content-type")
                .unwrap()
                .starts_with("text/html")
        );
        assert!(page.text.contains(name), "{name}");
    }
    let other = service.get("/problems/no-such-kind").await;
    other.expect_problem(404, "not-found");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_of_the_caller_comes_back_and_any_other_is_made() {
    let service = Launch::new().env("BLOOMGATE_LOG", "debug").start().await;
    let ask = async |id: Option<&str>| {
        let mut request = service.request(reqwest::Method::GET, "/nowhere");
        if let Some(id) = id {
            request = request.header("x-request-id", id);
        }
        let answer = send(request).await;
        let problem = answer.expect_problem(404, "not-found");
        let in_header = answer.header("x-request-id").unwrap().to_owned();
        assert_eq!(problem["request_id"], in_header);
        in_header
    };
    let longest = "x".repeat(128);
    for given in ["a", "9b2f-Trace_1.x", &longest] {
        assert_eq!(ask(Some(given)).await, given);
    }
    let too_long = "x".repeat(129);
    let mut made = vec![ask(None).await];
    for given in ["ann@x.com", "a b", "", &too_long] {
        made.push(ask(Some(given)).await);
    }
    let distinct: std::collections::HashSet<_> = made.iter().collect();
    assert_eq!(distinct.len(), made.len(), "{made:?}");
    for id in &made {
        let logged = format!("\"request_id\":\"{id}\"");
        assert!(service.logs().contains(&logged), "{logged}");
    }
    service.wait_live("revoked-jti").await;
    let fine = service.get("/livez").await;
    assert!(fine.header("x-request-id").is_some());
}
