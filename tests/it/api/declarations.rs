//! Filters that are made and deleted through the API.

use reqwest::Method;
use serde_json::{Value, json};

use super::{DEADLINE, fields, pointer, send};
use crate::support::{Answer, Bloomgate, Database, Launch, eventually};

const SESSIONS: &str = "/v1/filters/sessions";

fn declaration(profile: &str, capacity: i64, rate: f64) -> Value {
    json!({"profile": profile, "capacity": capacity, "false_positive_rate": rate})
}

/// PUTs a body as it stands.
async fn put_text(service: &Bloomgate, body: &str) -> Answer {
    let request = service
        .request(Method::PUT, SESSIONS)
        .header("content-type", "application/json");
    send(request.body(body.to_owned())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declaration_that_is_not_as_it_must_be_is_422_and_pointed_to() {
    let service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    put_text(&service, "}")
        .await
        .expect_problem(400, "malformed-body");
    for (body, at) in [
        ("{}", "/profile"),
        (r#"{"profile":"jti","capacity":1}"#, "/false_positive_rate"),
        (
            r#"{"profile":"jti","false_positive_rate":0.01}"#,
            "/capacity",
        ),
        (
            r#"{"profile":"uuid","capacity":1,"false_positive_rate":0.01}"#,
            "/profile",
        ),
        (
            r#"{"profile":["jti"],"capacity":1,"false_positive_rate":0.01}"#,
            "/profile",
        ),
        (
            r#"{"profile":"jti","capacity":0,"false_positive_rate":0.01}"#,
            "/capacity",
        ),
        (
            r#"{"profile":"jti","capacity":-1,"false_positive_rate":0.01}"#,
            "/capacity",
        ),
        (
            r#"{"profile":"jti","capacity":1.5,"false_positive_rate":0.01}"#,
            "/capacity",
        ),
        (
            r#"{"profile":"jti","capacity":"1","false_positive_rate":0.01}"#,
            "/capacity",
        ),
        (
            r#"{"profile":"jti","capacity":18446744073709551615,"false_positive_rate":0.01}"#,
            "/capacity",
        ),
        (
            r#"{"profile":"jti","capacity":1,"false_positive_rate":0}"#,
            "/false_positive_rate",
        ),
        (
            r#"{"profile":"jti","capacity":1,"false_positive_rate":1}"#,
            "/false_positive_rate",
        ),
        (
            r#"{"profile":"jti","capacity":1,"false_positive_rate":-0.1}"#,
            "/false_positive_rate",
        ),
        (
            r#"{"profile":"jti","capacity":1,"false_positive_rate":"1"}"#,
            "/false_positive_rate",
        ),
        (
            r#"{"profile":"jti","capacity":1,"false_positive_rate":0.1,"p":1}"#,
            "/p",
        ),
        (
            r#"{"profile":"jti","capacity":1,"false_positive_rate":0.1,
                "profile_options":{"plus_tags":true}}"#,
            "/profile_options",
        ),
        (
            r#"{"profile":"email","capacity":1,"false_positive_rate":0.1,
                "profile_options":{"dots":true}}"#,
            "/profile_options/dots",
        ),
        (
            r#"{"profile":"email","capacity":1,"false_positive_rate":0.1,
                "profile_options":{"plus_tags":"yes"}}"#,
            "/profile_options/plus_tags",
        ),
    ] {
        let problem = put_text(&service, body)
            .await
            .expect_problem(422, "invalid-field");
        assert_eq!(pointer(&problem), at, "{body}: {problem}");
    }
    let described = service.get(SESSIONS).await;
    described.expect_problem(404, "unknown-filter");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_made_once_is_the_same_again_and_is_not_changed_in_place() {
    let mut service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    let wanted = declaration("text", 5_000, 0.01);
    let made = service.put(SESSIONS, &wanted).await.expect_status(201);
    assert_eq!(made["filter"], "sessions");
    assert_eq!(made["declared_by"], "api");
    let described = service.wait_live("sessions").await;
    assert_eq!(fields(&described).len(), 18, "{described}");
    service.add("sessions", "one").await;

    let same = service.put(SESSIONS, &wanted).await.expect_status(200);
    assert_eq!(same["capacity"], 5_000);
    for other in [
        declaration("jti", 5_000, 0.01),
        declaration("email", 5_000, 0.01),
        declaration("text", 5_001, 0.01),
        declaration("text", 5_000, 0.02),
    ] {
        let answer = service.put(SESSIONS, &other).await;
        answer.expect_problem(409, "declared-otherwise");
    }
    assert!(service.check("sessions", "one").await.is_match());

    service.restart().await;
    let described = service.wait_live("sessions").await;
    assert_eq!(described["declared_by"], "api");
    assert!(service.check("sessions", "one").await.is_match());
    service.put(SESSIONS, &wanted).await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_the_email_profile_hold_and_another_set_of_them_differs() {
    let service = Bloomgate::start("").await;
    service.wait_live("registered-email").await;
    let path = "/v1/filters/addresses";
    let mut wanted = declaration("email", 1_000, 0.01);
    wanted["profile_options"] = json!({"plus_tags": true, "gmail_dots": true});
    service.put(path, &wanted).await.expect_status(201);
    let described = service.wait_live("addresses").await;
    assert_eq!(
        described["profile_options"],
        json!({"gmail_dots": true, "googlemail": false, "plus_tags": true})
    );
    service.add("addresses", "a.nn+news@gmail.com").await;
    assert!(service.check("addresses", "ANN@gmail.com").await.is_match());
    service.put(path, &wanted).await.expect_status(200);
    let answer = service.put(path, &declaration("email", 1_000, 0.01)).await;
    answer.expect_problem(409, "declared-otherwise");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_configuration_declares_can_be_put_the_same_and_not_deleted() {
    let service = Bloomgate::start("").await;
    service.wait_live("revoked-jti").await;
    let path = "/v1/filters/revoked-jti";
    let same = declaration("jti", 1_000_000, 0.01);
    service.put(path, &same).await.expect_status(200);
    let answer = service.put(path, &declaration("jti", 1_000, 0.01)).await;
    answer.expect_problem(409, "declared-otherwise");
    service.add("revoked-jti", "7f0c").await;
    let answer = service.delete(path).await;
    answer.expect_problem(409, "declared-by-config");
    assert!(service.check("revoked-jti", "7f0c").await.is_match());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_over_the_memory_budget_is_refused_with_what_it_needs_and_what_is_left() {
    let config = "memory_budget = \"4MiB\"
                  [filters.revoked-jti]
                  profile = \"jti\"
                  capacity = 1000000
                  false_positive_rate = 0.01";
    let service = Bloomgate::start(config).await;
    service.wait_live("revoked-jti").await;
    let answer = service
        .put(SESSIONS, &declaration("text", 3_000_000, 0.01))
        .await;
    let problem = answer.expect_problem(422, "over-memory-budget");
    let needed_bytes = problem["needed_bytes"].as_i64().unwrap();
    let left_bytes = problem["left_bytes"].as_i64().unwrap();
    assert!((3_594_397..3_600_000).contains(&needed_bytes), "{problem}");
    assert!((2_990_000..2_997_000).contains(&left_bytes), "{problem}");
    let absurd = declaration("text", 1_000_000_000_000, 0.01);
    let problem = service.put(SESSIONS, &absurd).await;
    let problem = problem.expect_problem(422, "over-memory-budget");
    assert!(problem["needed_bytes"].as_i64().unwrap() > 1_198_000_000_000);
    service
        .get(SESSIONS)
        .await
        .expect_problem(404, "unknown-filter");

    // What is deleted gives its bytes back, as soon as nothing reads or loads it any more.
    let fits = declaration("text", 2_000_000, 0.01);
    for _ in 0..5 {
        eventually("the filter fits again", DEADLINE, async || {
            let answer = service.put(SESSIONS, &fits).await;
            (answer.status == 201).then_some(())
        })
        .await;
        service.delete(SESSIONS).await.expect_status(204);
    }
}

/// Makes, fills and deletes a filter, and makes it again under its name.
async fn made_again(mut service: Bloomgate) {
    let wanted = declaration("text", 1_000, 0.01);
    service.wait_live("revoked-jti").await;
    service.put(SESSIONS, &wanted).await.expect_status(201);
    service.wait_live("sessions").await;
    let of_the_old = service.add("sessions", "old").await["watermark"].clone();
    let deleted = service.delete(SESSIONS).await;
    assert_eq!((deleted.status, deleted.text.as_str()), (204, ""));

    let late = service.try_add("sessions", "late").await.unwrap();
    late.expect_problem(404, "unknown-filter");
    let check = format!("{SESSIONS}/check");
    let answer = service.post(&check, &json!({"item": "old"})).await;
    answer.expect_problem(404, "unknown-filter");
    service
        .delete(SESSIONS)
        .await
        .expect_problem(404, "unknown-filter");

    // Another declaration is none of the old one's business.
    let wanted = declaration("text", 2_000, 0.02);
    service.put(SESSIONS, &wanted).await.expect_status(201);
    let described = service.wait_live("sessions").await;
    assert_eq!(described["fill_ratio"], 0.0);
    let with_old_watermark = json!({"item": "old", "min_watermark": of_the_old});
    let answer = service.post(&check, &with_old_watermark).await;
    assert_eq!(answer.expect_status(200)["verdict"], "definitely-not");
    service.add("sessions", "new").await;

    service.restart().await;
    service.wait_live("sessions").await;
    let found = service
        .check_batch("sessions", &["old", "late", "new"])
        .await;
    assert_eq!(found, [false, false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_deleted_filter_reaches_the_one_made_again_under_its_name_on_sqlite() {
    made_again(Bloomgate::start("").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_deleted_filter_reaches_the_one_made_again_under_its_name_on_postgres() {
    let database = Database::create().await;
    made_again(Launch::new().database_url(database.url()).start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adds_that_meet_a_delete_are_acknowledged_before_it_or_404() {
    let database = Database::create().await;
    let service = Launch::new().database_url(database.url()).start().await;
    service.wait_live("revoked-jti").await;
    let wanted = declaration("text", 1_000, 0.01);
    let add = async |number: usize| {
        let answer = service.try_add("sessions", &format!("item-{number}")).await;
        answer.unwrap().status
    };
    for _ in 0..10 {
        service.put(SESSIONS, &wanted).await.expect_status(201);
        let adding = futures_util::future::join_all((0..20).map(add));
        let (statuses, deleted) = tokio::join!(adding, service.delete(SESSIONS));
        deleted.expect_status(204);
        let is_expected = |status: &u16| [200, 404].contains(status);
        assert!(statuses.iter().all(is_expected), "{statuses:?}");
        assert_eq!(add(0).await, 404);
    }
    service.put(SESSIONS, &wanted).await.expect_status(201);
    assert_eq!(service.wait_live("sessions").await["fill_ratio"], 0.0);
}
