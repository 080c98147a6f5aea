//! A store that cannot be reached: a check never fails for its sake, and nothing is acknowledged.

use serde_json::{Value, json};

use super::DEADLINE;
use crate::support::{Bloomgate, Conduct, Database, Launch, Proxy, eventually};

async fn assert_in_doubt(service: &Bloomgate, filter: &str, reason: &str) {
    let path = format!("/v1/filters/{filter}");
    let answer = service
        .post(&format!("{path}/check"), &json!({"item": "7f0c"}))
        .await;
    let expected = json!({
        "filter": filter, "verdict": "maybe", "reason": reason, "estimated_fp_rate": 1.0,
    });
    assert_eq!(answer.expect_status(200), expected);
    let items = json!({"items": ["7f0c", "absent"]});
    let answer = service.post(&format!("{path}/check-batch"), &items).await;
    let expected = json!({
        "filter": filter, "verdicts": ["maybe", "maybe"], "reason": reason,
        "estimated_fp_rate": 1.0,
    });
    assert_eq!(answer.expect_status(200), expected);
}

/// Everything that has to be written is refused as 503, and says when to come again.
async fn assert_nothing_is_acknowledged(service: &Bloomgate) {
    let filter = "/v1/filters/revoked-jti";
    let new = json!({"profile": "text", "capacity": 10, "false_positive_rate": 0.1});
    let lost = json!({"item": "lost"});
    for answer in [
        service.post(&format!("{filter}/add"), &lost).await,
        service
            .post(&format!("{filter}/add-batch"), &json!({"items": [lost]}))
            .await,
        service
            .post_text(&format!("{filter}/bulk-load"), "text/plain", "lost\n")
            .await,
        service.put("/v1/filters/new", &new).await,
    ] {
        let problem = answer.expect_problem(503, "store-unavailable");
        assert_eq!(problem.get("watermark"), None);
        assert!(
            problem.get("accepted").is_none_or(|accepted| accepted == 0),
            "{problem}"
        );
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    // What no profile takes is the caller's fault, whatever the store does.
    let answer = service
        .post(&format!("{filter}/add"), &json!({"item": " "}))
        .await;
    answer.expect_problem(422, "invalid-item");
}

async fn probe(service: &Bloomgate, path: &str, status: u16) -> Value {
    service.get(path).await.expect_status(status)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_store_the_service_starts_and_every_check_is_loading() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    proxy.switch(Conduct::Refuse);
    let url = database.url_at(&proxy.address());
    eventually("connections are refused", DEADLINE, async || {
        tokio::net::TcpStream::connect(proxy.address()).await.err()
    })
    .await;
    let service = Launch::new().database_url(&url).start().await;
    // A filter that nobody knows here may be one of those that the store records.
    for filter in ["revoked-jti", "perhaps-in-the-store"] {
        assert_in_doubt(&service, filter, "loading").await;
    }
    assert_nothing_is_acknowledged(&service).await;
    assert_eq!(service.describe("revoked-jti").await["state"], "loading");
    assert_eq!(probe(&service, "/livez", 200).await["status"], "ok");
    let readiness = probe(&service, "/readyz", 503).await;
    let expected = json!({"status": "unready", "filters": [
        {"filter": "registered-email", "state": "loading"},
        {"filter": "revoked-jti", "state": "loading"},
    ]});
    assert_eq!(readiness, expected);

    proxy.switch(Conduct::Pass);
    service.wait_live("revoked-jti").await;
    service.add("revoked-jti", "7f0c").await;
    let path = "/v1/filters/perhaps-in-the-store/check";
    let answer = service.post(path, &json!({"item": "7f0c"})).await;
    answer.expect_problem(404, "unknown-filter");
}

#[tokio::test(flavor = "multi_thread")]
async fn once_its_store_is_out_of_reach_for_too_long_every_check_is_stale() {
    let database = Database::create().await;
    let proxy = Proxy::start(database.address()).await;
    let launch = Launch::new().database_url(&database.url_at(&proxy.address()));
    let config = "max_staleness = \"2s\"\npoll_interval = \"100ms\"";
    let service = launch.config(config).start().await;
    service.wait_live("registered-email").await;
    service.wait_live("revoked-jti").await;
    service.add("revoked-jti", "7f0c").await;
    assert!(!service.check("revoked-jti", "absent").await.is_maybe());

    proxy.switch(Conduct::Refuse);
    proxy.cut();
    eventually("the filter is stale", DEADLINE, async || {
        let checked = service.check("revoked-jti", "absent").await;
        (checked.reason.as_deref() == Some("stale")).then_some(())
    })
    .await;
    assert_in_doubt(&service, "revoked-jti", "stale").await;
    assert_nothing_is_acknowledged(&service).await;
    let readiness = probe(&service, "/readyz", 200).await;
    assert_eq!(
        readiness["filters"][1],
        json!({"filter": "revoked-jti", "state": "stale"})
    );
    let metrics = service.get("/metrics").await.text;
    let stale = "bloomgate_filter_state{filter=\"revoked-jti\",state=\"stale\"} 1";
    assert!(metrics.lines().any(|line| line == stale), "{metrics}");

    proxy.switch(Conduct::Pass);
    service.wait_live("revoked-jti").await;
    assert!(service.check("revoked-jti", "7f0c").await.is_match());
    let absent = eventually("a verdict is given again", DEADLINE, async || {
        let checked = service.check("revoked-jti", "absent").await;
        (!checked.is_maybe()).then_some(checked)
    });
    absent.await;
}
