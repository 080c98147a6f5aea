//! Bulk loads: a stream of any length, made durable part by part.

use serde_json::json;

use super::{fields, pointer};
use crate::support::{Answer, Bloomgate};

const LOAD: &str = "/v1/filters/revoked-jti/bulk-load";
const NDJSON: &str = "application/x-ndjson";
const PLAIN: &str = "text/plain";

async fn live() -> Bloomgate {
    let service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    service
}

async fn load(service: &Bloomgate, media_type: &str, body: impl Into<Vec<u8>>) -> Answer {
    service.post_text(LOAD, media_type, body.into()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_strings_objects_or_plain_items_and_blank_ones_are_counted() {
    let service = live().await;
    let lines = "\"one\"\n\n{\"item\":\"two\"}\r\n\"  \"\n\
                 {\"expires_at\":\"2199-01-01T00:00:00Z\",\"item\":\"three\"}\n{\"item\":\"\"}\n\"four\"";
    let answer = load(&service, NDJSON, lines).await.expect_status(200);
    assert_eq!(
        fields(&answer),
        [
            "accepted",
            "blank",
            "estimated_fp_rate",
            "filter",
            "watermark"
        ]
    );
    assert_eq!(answer["filter"], "revoked-jti");
    assert_eq!(
        (&answer["accepted"], &answer["blank"]),
        (&json!(4), &json!(3))
    );

    let lines = "\u{feff}five\r\n  \nsix \n\n\"seven\"\r\n";
    let answer = load(&service, PLAIN, lines).await.expect_status(200);
    assert_eq!(
        (&answer["accepted"], &answer["blank"]),
        (&json!(3), &json!(2))
    );
    let items = [
        "one",
        "two",
        "three",
        "four",
        "five",
        "six ",
        "\"seven\"",
        "six",
        "seven",
    ];
    let found = service.check_batch("revoked-jti", &items).await;
    assert_eq!(
        found,
        [true, true, true, true, true, true, true, false, false]
    );

    let metrics = service.get("/metrics").await.text;
    let counted = "bloomgate_adds_total{filter=\"revoked-jti\",road=\"bulk-load\"} 7";
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    let nothing = load(&service, PLAIN, "").await.expect_status(200);
    assert_eq!(
        (&nothing["accepted"], &nothing["blank"]),
        (&json!(0), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_refused_ends_the_load_and_what_came_before_it_is_durable() {
    let mut service = live().await;
    for (name, media_type, refused, kind, at) in [
        (
            "token",
            PLAIN,
            "eyJhbGciOiJub25lIn0.e30.c2ln",
            "invalid-item",
            "/item",
        ),
        ("json", NDJSON, "}", "invalid-field", ""),
        ("number", NDJSON, "7", "invalid-field", ""),
        ("array", NDJSON, "[\"a\"]", "invalid-field", ""),
        (
            "field",
            NDJSON,
            "{\"item\":\"a\",\"ttl\":1}",
            "invalid-field",
            "/ttl",
        ),
        (
            "expiry",
            NDJSON,
            "{\"item\":\"a\",\"expires_at\":\"x\"}",
            "invalid-field",
            "/expires_at",
        ),
        ("nul", NDJSON, "\"a\\u0000b\"", "invalid-item", "/item"),
    ] {
        let quote = if media_type == NDJSON { "\"" } else { "" };
        let before: String = (0..4_999)
            .map(|n| format!("{quote}{name}-{n}{quote}\n"))
            .collect();
        let body = format!("{before}\n{refused}\n{quote}{name}-after{quote}\n");
        let answer = load(&service, media_type, body).await;
        let problem = answer.expect_problem(422, kind);
        assert_eq!(problem["line"], 5_001, "{problem}");
        assert_eq!(problem["accepted"], 4_999, "{problem}");
        assert_eq!(problem["blank"], 1, "{problem}");
        assert!(problem["watermark"].is_string(), "{problem}");
        assert_eq!(pointer(&problem), at);
        let items = [0, 1_999, 4_998].map(|n| format!("{name}-{n}"));
        let after = [format!("{name}-after")];
        assert_eq!(service.check_batch("revoked-jti", &items).await, [true; 3]);
        service.restart().await;
        service.wait_live("revoked-jti").await;
        assert_eq!(service.check_batch("revoked-jti", &items).await, [true; 3]);
        assert_eq!(service.check_batch("revoked-jti", &after).await, [false]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_no_utf8_or_too_long_is_refused() {
    let service = live().await;
    for refused in [&b"\xC1R"[..], &[b'a'; 70_000]] {
        let body = [&b"first\n"[..], refused, b"\n"].concat();
        let problem = load(&service, PLAIN, body)
            .await
            .expect_problem(422, "invalid-field");
        assert_eq!(
            (&problem["line"], &problem["accepted"]),
            (&json!(2), &json!(1))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_past_every_common_limit_are_streamed_in_constant_memory() {
    const LINE_BYTES: usize = 4_001;
    let config = "[filters.long]
                  profile = \"text\"
                  capacity = 60000
                  false_positive_rate = 0.01";
    let service = Bloomgate::start(config).await;
    service.wait_live("long").await;
    let before_bytes = service.peak_memory_bytes();
    for megabytes_10th in [19, 21, 500, 1_500] {
        let lines = megabytes_10th * 100_000 / LINE_BYTES;
        let item = move |n: usize| format!("{megabytes_10th}-{n:0>width$}", width = 3_990);
        let chunks = (0..lines).map(move |n| Ok::<_, std::io::Error>(item(n) + "\n"));
        let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
        let answer = service
            .post_text("/v1/filters/long/bulk-load", PLAIN, body)
            .await;
        assert_eq!(answer.expect_status(200)["accepted"], lines);
        let found = service
            .check_batch("long", &[item(0), item(lines - 1), item(lines)])
            .await;
        assert_eq!(found, [true, true, false]);
    }
    // Two parts of 2,000 such lines, 16 MB, are in hand at a time, in a few copies on their way;
    // the last body alone has 150 MB.
    let grown_bytes = service.peak_memory_bytes() - before_bytes;
    assert!(grown_bytes < 128 << 20, "{grown_bytes}");
}
