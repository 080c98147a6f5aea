//! Bulk loads: streams of any length, and where they end.

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use futures_util::stream;

use super::{Answer, App};
use crate::http::lines::MAX_LINE_BYTES;

const PATH: &str = "/v1/filters/registered-email/bulk-load";

async fn load(app: &App, media_type: &str, body: impl Into<Body>) -> Answer {
    app.ask("POST", PATH, &[("content-type", media_type)], body)
        .await
}

#[tokio::test]
async fn ndjson_takes_strings_and_objects_a_line() {
    let app = App::start().await;
    let body = "\"one@example.com\"\r\n\n{\"item\":\"two@example.com\",\"expires_at\":\
                \"2130-01-01T00:00:00Z\"}\n\"  \"\n\"thr\\u0065e@example.com\"";
    let answer = load(&app, "application/x-ndjson", body).await;
    assert_eq!(answer.status, 200);
    let body = answer.json();
    assert_eq!((&body["accepted"], &body["blank"]), (&3.into(), &2.into()));
    assert!(body["watermark"].is_string());
    for item in ["one@example.com", "two@example.com", "three@example.com"] {
        assert_eq!(app.verdict("registered-email", item).await, "maybe");
    }
}

#[tokio::test]
async fn plain_text_takes_an_item_a_line_without_mark_and_carriage_return() {
    let app = App::start().await;
    let body = "\u{feff}one@example.com\r\n\r\ntwo@example.com";
    let answer = load(&app, "text/plain; charset=utf-8", body).await.json();
    assert_eq!(
        (&answer["accepted"], &answer["blank"]),
        (&2.into(), &1.into())
    );
    for item in ["one@example.com", "two@example.com"] {
        assert_eq!(app.verdict("registered-email", item).await, "maybe");
    }
}

#[tokio::test]
async fn a_line_at_fault_ends_the_load_and_what_was_before_it_is_durable() {
    let app = App::start().await;
    let long_line = format!("\"{}\"", "a".repeat(MAX_LINE_BYTES));
    for (line, kind, pointer) in [
        (&b"\"a\\u0000b\""[..], "invalid-item", "/item"),
        (b"5", "invalid-field", ""),
        (b"[\"a\"]", "invalid-field", ""),
        (b"null", "invalid-field", ""),
        (b"seeded@example.com", "invalid-field", ""),
        (b"{\"item\":5}", "invalid-field", "/item"),
        (
            b"{\"item\":\"a\",\"expires_at\":\"x\"}",
            "invalid-field",
            "/expires_at",
        ),
        (b"{\"seeded@example.com\":1}", "invalid-field", ""),
        (b"\"\xC1R\"", "invalid-field", ""),
        (long_line.as_bytes(), "invalid-field", ""),
    ] {
        let mut body = b"\"one@example.com\"\n\n".to_vec();
        body.extend_from_slice(line);
        body.extend_from_slice(b"\n\"never@example.com\"\n");
        let answer = load(&app, "application/x-ndjson", body).await;
        let shown = String::from_utf8_lossy(line);
        assert_eq!(
            (answer.status, answer.problem().as_str()),
            (422, kind),
            "{shown}"
        );
        assert_eq!(answer.pointer(), pointer, "{shown}");
        let problem = answer.json();
        assert_eq!(problem["line"], 3, "{shown}");
        assert_eq!(
            (&problem["accepted"], &problem["blank"]),
            (&1.into(), &1.into())
        );
        assert!(problem["watermark"].is_string());
        assert!(!problem.to_string().contains("seeded"), "{problem}");
    }
    assert_eq!(
        app.verdict("registered-email", "one@example.com").await,
        "maybe"
    );
    assert_eq!(
        app.verdict("registered-email", "never@example.com").await,
        "definitely-not"
    );
}

#[tokio::test]
async fn a_stream_longer_than_any_body_may_be_is_taken_in_chunks_that_end_anywhere() {
    let app = App::start().await;
    // 12 MB: past the 8 MiB of an ordinary body.
    let line = Bytes::from(format!("\"{}@example.com\"\n", "a".repeat(1_000)));
    let chunks = (0..12_000).flat_map(move |_| [line.slice(..500), line.slice(500..)]);
    let body = Body::from_stream(stream::iter(chunks.map(Ok::<_, std::io::Error>)));
    let answer = load(&app, "application/x-ndjson", body).await;
    assert_eq!(answer.json()["accepted"], 12_000);
}

#[tokio::test]
async fn a_stream_that_breaks_off_says_how_much_of_it_is_durable() {
    let app = App::start().await;
    let chunks = vec![
        Ok(Bytes::from("\"one@example.com\"\n\"tw")),
        Err(std::io::Error::other("connection reset")),
    ];
    let request = Request::post(PATH)
        .header("content-type", "application/x-ndjson")
        .body(Body::from_stream(stream::iter(chunks)))
        .unwrap();
    let answer = app.send(request).await;
    assert_eq!(
        (answer.status, answer.problem()),
        (400, "malformed-body".into())
    );
    assert_eq!(answer.json()["accepted"], 1);
}

#[tokio::test]
async fn an_empty_stream_loads_nothing_and_other_media_types_are_refused() {
    let app = App::start().await;
    let answer = load(&app, "application/x-ndjson", "").await;
    assert_eq!(
        (answer.status, &answer.json()["accepted"]),
        (200, &0.into())
    );
    for media_type in ["application/json", "application/octet-stream", "text/csv"] {
        let answer = load(&app, media_type, "\"a\"\n").await;
        assert_eq!(answer.problem(), "unsupported-media-type");
    }
    let answer = app
        .ask(
            "POST",
            "/v1/filters/nowhere/bulk-load",
            &[("content-type", "text/plain")],
            "a",
        )
        .await;
    assert_eq!(answer.problem(), "unknown-filter");
}
