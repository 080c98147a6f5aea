//! Which time holds of an item that was added under several, and how exactly.

use serde_json::{Value, json};

use super::{EARLY, LATE, NOT, REVOKED, SUBJECT, add, assert_revoked, item, on_each_store, said};
use crate::support::Bloomgate;

/// Brings items, one after the other or, where the road is of that kind, all at once.
async fn bring(service: &Bloomgate, road: &str, items: &[Value]) {
    let path = |verb: &str| format!("/v1/filters/{SUBJECT}/{verb}");
    let batch = async |items: &[Value]| {
        let body = json!({ "items": items });
        let answer = service.post(&path("add-batch"), &body).await;
        assert_eq!(answer.expect_status(200)["accepted"], items.len());
    };
    let load = async |items: &[Value]| {
        let lines: Vec<_> = items.iter().map(Value::to_string).collect();
        let lines = lines.join("\n");
        let (path, media_type) = (path("bulk-load"), "application/x-ndjson");
        let answer = service.post_text(&path, media_type, lines).await;
        assert_eq!(answer.expect_status(200)["accepted"], items.len());
    };
    match road {
        "one batch" => batch(items).await,
        "one load" => load(items).await,
        "side by side" => {
            let path = path("add");
            let adds = items.iter().map(|item| service.post(&path, item));
            for answer in futures_util::future::join_all(adds).await {
                answer.expect_status(200);
            }
        }
        _ => {
            for item in items {
                let item = std::slice::from_ref(item);
                match road {
                    "add" => {
                        let answer = service.post(&path("add"), &item[0]).await;
                        answer.expect_status(200);
                    }
                    "add-batch" => batch(item).await,
                    "bulk-load" => load(item).await,
                    other => panic!("{other} is no road"),
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_moves_forward_and_never_back_and_all_tokens_beat_any_by_every_road() {
    let (services, _database) = on_each_store().await;
    let (early, late) = (Some(EARLY), Some(LATE));
    for service in &services {
        for road in [
            "add",
            "add-batch",
            "bulk-load",
            "one batch",
            "one load",
            "side by side",
        ] {
            for (number, (times, until)) in [
                (&[early][..], early),
                (&[early, late], late),
                (&[late, early], late),
                (&[late, early, early], late),
                (&[early, None], None),
                (&[None, late], None),
                (&[late, None, early], None),
                (&[None], None),
            ]
            .into_iter()
            .enumerate()
            {
                let name = format!("{road} {number}");
                let items: Vec<_> = times.iter().map(|until| item(&name, *until)).collect();
                bring(service, road, &items).await;
                assert_revoked(service, SUBJECT, &name, until).await;
            }
        }
        // By one road after another.
        bring(service, "bulk-load", &[item("mixed", late)]).await;
        bring(service, "add", &[item("mixed", early)]).await;
        assert_revoked(service, SUBJECT, "mixed", late).await;
        let plain = format!("/v1/filters/{SUBJECT}/bulk-load");
        let loaded = service.post_text(&plain, "text/plain", "mixed").await;
        loaded.expect_status(200);
        assert_revoked(service, SUBJECT, "mixed", None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_rounding_lets_a_token_in_and_the_ends_of_time_are_times() {
    let (services, _database) = on_each_store().await;
    for service in &services {
        for (until, issued_at, expected) in [
            (
                "2030-01-01T00:00:00.0000001Z",
                "2030-01-01T00:00:00.000001Z",
                REVOKED,
            ),
            (
                "2030-01-01T00:00:00.0000001Z",
                "2030-01-01T00:00:00.000002Z",
                NOT,
            ),
            (
                "2030-01-01T00:00:00.000001Z",
                "2030-01-01T00:00:00.000001999Z",
                REVOKED,
            ),
            (
                "1960-01-01T00:00:00.0000001Z",
                "1960-01-01T00:00:00.000001999Z",
                REVOKED,
            ),
            (
                "1960-01-01T00:00:00.0000001Z",
                "1960-01-01T00:00:00.000002Z",
                NOT,
            ),
            (
                "2030-01-01T02:00:00+02:00",
                "2030-01-01T00:00:00.000001Z",
                NOT,
            ),
            ("2030-01-01T00:00:00Z", "2030-01-01T02:00:00+02:00", REVOKED),
            (
                "-009999-01-02T02:00:00Z",
                "-009999-01-02T02:00:00Z",
                REVOKED,
            ),
            ("-009999-01-02T02:00:00Z", "2030-01-01T00:00:00Z", NOT),
            // Past the last moment that there is, it is for all tokens.
            (
                "9999-12-30T22:00:00.999999999Z",
                "9999-12-30T22:00:00.999999999Z",
                REVOKED,
            ),
            (
                "9999-12-30T21:00:00Z",
                "9999-12-30T22:00:00.999999999Z",
                NOT,
            ),
        ] {
            let name = format!("{until} {issued_at}");
            add(service, SUBJECT, &name, Some(until)).await;
            let found = said(service, SUBJECT, &name, Some(issued_at)).await;
            assert_eq!(found, expected, "{name}");
        }
    }
}
