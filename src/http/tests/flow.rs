//! What works: the operations, answered as documented.

use serde_json::json;

use super::App;

#[tokio::test]
async fn what_is_added_checks_maybe_and_what_is_not_checks_definitely_not() {
    let app = App::start().await;
    let path = "/v1/filters/revoked-jti";
    let absent = app
        .post(&format!("{path}/check"), json!({"item": "t1"}))
        .await;
    assert_eq!(
        absent.json(),
        json!({"filter": "revoked-jti", "verdict": "definitely-not", "estimated_fp_rate": 0.0})
    );
    assert_eq!(absent.header("cache-control"), Some("no-store"));

    let expiring = json!({"item": "t1", "expires_at": "2130-01-01T00:00:00+02:00"});
    let added = app.post(&format!("{path}/add"), expiring).await;
    assert_eq!(added.status, 200);
    let watermark = added.json()["watermark"].as_str().unwrap().to_owned();

    let asked = json!({"item": "t1", "min_watermark": watermark});
    let present = app.post(&format!("{path}/check"), asked).await.json();
    assert_eq!(present["verdict"], "maybe");
    assert_eq!(present["reason"], "match");
    assert!(present["estimated_fp_rate"].as_f64().unwrap() < 0.01);
}

#[tokio::test]
async fn batches_answer_in_order_and_say_how_many_they_took() {
    let app = App::start().await;
    let path = "/v1/filters/registered-email";
    let items = json!({"items": [{"item": "Ann@Example.COM"}, {"item": "bob@example.com"}]});
    let added = app.post(&format!("{path}/add-batch"), items).await.json();
    assert_eq!(added["accepted"], 2);
    assert!(added["watermark"].is_string());
    let asked = json!({"items": ["eve@example.com", "ann@example.com", "BOB@example.com"]});
    let checked = app.post(&format!("{path}/check-batch"), asked).await.json();
    assert_eq!(
        checked["verdicts"],
        json!(["definitely-not", "maybe", "maybe"])
    );
    assert!(checked.get("reason").is_none());
}

#[tokio::test]
async fn a_watermark_of_another_store_is_behind_and_a_malformed_one_is_refused() {
    let app = App::start().await;
    let other = "AQEjRWeJq83vASNFZ4mrze8AAAAAAAAC2w";
    let path = "/v1/filters/revoked-jti/check";
    let asked = json!({"item": "t1", "min_watermark": other});
    let answer = app.post(path, asked).await.json();
    assert_eq!(answer["reason"], "behind");
    assert_eq!(answer["estimated_fp_rate"], 1.0);
    let malformed = json!({"item": "t1", "min_watermark": "ann@example.com"});
    let refused = app.post(path, malformed).await;
    assert_eq!(refused.problem(), "invalid-field");
    assert_eq!(refused.pointer(), "/min_watermark");
}

#[tokio::test]
async fn a_filter_is_made_described_and_deleted() {
    let app = App::start().await;
    let path = "/v1/filters/mine";
    let wanted = json!({
        "profile": "email", "capacity": 1000, "false_positive_rate": 0.01,
        "profile_options": {"plus_tags": true}
    });
    assert_eq!(app.json("PUT", path, wanted.to_string()).await.status, 201);
    let again = app.json("PUT", path, wanted.to_string()).await;
    assert_eq!(again.status, 200);
    let description = app.get(path).await.json();
    assert_eq!(description["declared_by"], "api");
    assert_eq!(description["state"], "live");
    assert_eq!(description["capacity"], 1000);
    assert_eq!(description["sources"], json!([]));
    assert_eq!(
        description["profile_options"],
        json!({"gmail_dots": false, "googlemail": false, "plus_tags": true})
    );
    assert!(!description.to_string().contains("null"), "{description}");

    let mut other = wanted.clone();
    other["capacity"] = json!(1001);
    let refused = app.json("PUT", path, other.to_string()).await;
    assert_eq!(
        (refused.status, refused.problem()),
        (409, "declared-otherwise".into())
    );

    let listed = app.get("/v1/filters").await.json();
    let names: Vec<_> = listed["filters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|filter| filter["filter"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["mine", "registered-email", "revoked-jti"]);

    let deleted = app.json("DELETE", path, "").await;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    assert_eq!(app.get(path).await.problem(), "unknown-filter");
    let refused = app.json("DELETE", "/v1/filters/revoked-jti", "").await;
    assert_eq!(
        (refused.status, refused.problem()),
        (409, "declared-by-config".into())
    );
}

#[tokio::test]
async fn a_filter_that_does_not_fit_says_by_how_much() {
    let app = App::start().await;
    let wanted = json!({"profile": "text", "capacity": 1_000_000_000, "false_positive_rate": 0.01});
    let refused = app.json("PUT", "/v1/filters/big", wanted.to_string()).await;
    assert_eq!(
        (refused.status, refused.problem()),
        (422, "over-memory-budget".into())
    );
    let body = refused.json();
    assert!(body["needed_bytes"].as_i64().unwrap() > body["left_bytes"].as_i64().unwrap());
}

#[tokio::test]
async fn a_plan_says_what_a_filter_would_take() {
    let app = App::start().await;
    let plan = app
        .get("/v1/plan?capacity=1000000&false_positive_rate=0.01")
        .await
        .json();
    assert_eq!(plan["bit_count"], 9_585_059);
    assert_eq!(plan["hash_count"], 7);
    let at_2x = plan["fp_rate_at_2x"].as_f64().unwrap();
    let at_10x = plan["fp_rate_at_10x"].as_f64().unwrap();
    assert!(
        (at_2x - 0.157).abs() < 0.001 && (at_10x - 0.995).abs() < 0.001,
        "{plan}"
    );
}

#[tokio::test]
async fn probes_name_the_filters_and_their_states() {
    let app = App::start().await;
    for path in ["/livez", "/readyz"] {
        let answer = app.get(path).await;
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.json(),
            json!({"status": "ok", "filters": [
                {"filter": "registered-email", "state": "live"},
                {"filter": "revoked-jti", "state": "live"}
            ]})
        );
    }
}

#[tokio::test]
async fn metrics_document_and_page_are_served() {
    let app = App::start().await;
    let metrics = app.get("/metrics").await;
    let text = String::from_utf8(metrics.body.clone()).unwrap();
    assert!(text.contains(r#"bloomgate_filter_capacity{filter="revoked-jti"} 10000"#));
    let document = app.get("/openapi.json").await;
    assert_eq!(document.header("content-type"), Some("application/json"));
    assert_eq!(document.json()["info"]["title"], "bloomgate");
    let page = app.get("/docs/").await;
    assert_eq!(page.status, 200);
    assert!(String::from_utf8_lossy(&page.body).contains("swagger"));
}
