//! A check can demand to be at least as fresh as an add.

use serde_json::{Value, json};

use super::{DEADLINE, pointer};
use crate::support::{Bloomgate, Database, Launch, eventually};

const CHECK: &str = "/v1/filters/revoked-jti/check";
const CHECK_BATCH: &str = "/v1/filters/revoked-jti/check-batch";

async fn watermark_of_add(service: &Bloomgate) -> Value {
    service.wait_live("revoked-jti").await;
    service.add("revoked-jti", "7f0c").await["watermark"].clone()
}

async fn verdict_for(service: &Bloomgate, watermark: &Value) -> Value {
    let body = json!({"item": "absent", "min_watermark": watermark});
    service.post(CHECK, &body).await.expect_status(200)
}

/// Others may have written before the add: that is known with the next poll.
async fn until_reached(service: &Bloomgate, watermark: &Value) {
    eventually("the watermark is reached", DEADLINE, async || {
        let answer = verdict_for(service, watermark).await;
        (answer["verdict"] == "definitely-not").then_some(())
    })
    .await;
}

async fn assert_behind(service: &Bloomgate, watermark: &Value) {
    let expected = json!({
        "filter": "revoked-jti", "verdict": "maybe", "reason": "behind", "estimated_fp_rate": 1.0,
    });
    assert_eq!(verdict_for(service, watermark).await, expected);
    let body = json!({"items": ["absent", "7f0c"], "min_watermark": watermark});
    let expected = json!({
        "filter": "revoked-jti", "verdicts": ["maybe", "maybe"], "reason": "behind",
        "estimated_fp_rate": 1.0,
    });
    let answer = service.post(CHECK_BATCH, &body).await;
    assert_eq!(answer.expect_status(200), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_watermark_is_422() {
    let service = Bloomgate::start("").await;
    let valid = watermark_of_add(&service).await;
    let valid = valid.as_str().unwrap();
    let (cut, lengthened) = (&valid[1..], format!("{valid}A"));
    let too_long = "A".repeat(129);
    for malformed in [
        json!(""),
        json!("x"),
        json!("731"),
        json!("not a watermark"),
        json!(cut),
        json!(lengthened),
        json!(too_long),
        json!(7),
        json!(null),
        json!([valid]),
    ] {
        for (path, mut body) in [
            (CHECK, json!({"item": "a"})),
            (CHECK_BATCH, json!({"items": ["a"]})),
        ] {
            body["min_watermark"] = malformed.clone();
            let problem = service
                .post(path, &body)
                .await
                .expect_problem(422, "invalid-field");
            let at = pointer(&problem);
            // Within an array the fault is the array's, wherever it is noticed.
            assert_eq!(at, "/min_watermark", "{malformed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watermark_of_its_own_store_is_reached_in_a_moment_and_after_a_restart() {
    let database = Database::create().await;
    for launch in [Launch::new(), Launch::new().database_url(database.url())] {
        let mut service = launch.start().await;
        let watermark = watermark_of_add(&service).await;
        until_reached(&service, &watermark).await;
        service.restart().await;
        service.wait_live("revoked-jti").await;
        until_reached(&service, &watermark).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watermark_of_another_store_is_behind() {
    let database = Database::create().await;
    let here = Bloomgate::start("").await;
    watermark_of_add(&here).await;
    for other in [Launch::new(), Launch::new().database_url(database.url())] {
        let watermark = watermark_of_add(&other.start().await).await;
        assert_behind(&here, &watermark).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watermark_past_what_the_filter_has_followed_is_behind() {
    let mut first = Bloomgate::start("").await;
    let early = watermark_of_add(&first).await;
    assert!(first.terminate(DEADLINE).await.success());
    // A copy of the store is the same store at an earlier moment.
    let launch = Launch::new();
    copy_folder(&first.launched_as().data_dir(), &launch.data_dir());
    let copy = launch.start().await;
    copy.wait_live("revoked-jti").await;
    first.restart().await;
    let late = watermark_of_add(&first).await;
    let answer = verdict_for(&copy, &early).await;
    assert_eq!(answer["verdict"], "definitely-not", "{answer}");
    assert_behind(&copy, &late).await;
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        // Snapshots, which the copy of the store does well without.
        if entry.file_type().unwrap().is_dir() {
            continue;
        }
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
