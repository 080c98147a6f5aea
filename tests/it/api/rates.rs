//! The rate is told honestly: from the bits, finite, and however full the filter is.

use serde_json::{Value, json};

use super::DEADLINE;
use crate::support::{Bloomgate, eventually};

/// The third filter leaves no room for a second generation of the others, so that they do not grow.
const SMALL: &str = "
memory_budget = \"1MiB\"
[filters.ballast]
profile = \"text\"
capacity = 870167
false_positive_rate = 0.01
[filters.small]
profile = \"text\"
capacity = 5000
false_positive_rate = 0.01
[filters.tiny]
profile = \"text\"
capacity = 10
false_positive_rate = 0.5
";

async fn fill(service: &Bloomgate, filter: &str, items: std::ops::Range<usize>) -> Value {
    let lines: String = items.map(|number| format!("item-{number}\n")).collect();
    let load = format!("/v1/filters/{filter}/bulk-load");
    let answer = service.post_text(&load, "text/plain", lines).await;
    answer.expect_status(200)
}

async fn metric(service: &Bloomgate, name: &str, filter: &str) -> f64 {
    let text = service.get("/metrics").await.text;
    let line = format!("{name}{{filter=\"{filter}\"}} ");
    let value = text.lines().find_map(|found| found.strip_prefix(&line));
    value
        .unwrap_or_else(|| panic!("no {name}"))
        .parse()
        .unwrap()
}

/// The share of `maybe` among items that were never added.
async fn measured_rate(service: &Bloomgate, filter: &str) -> f64 {
    let mut maybes = 0;
    for batch in 0..10 {
        let absent: Vec<_> = (0..10_000).map(|n| format!("absent-{batch}-{n}")).collect();
        let found = service.check_batch(filter, &absent).await;
        maybes += found.iter().filter(|is_maybe| **is_maybe).count();
    }
    f64::from(u32::try_from(maybes).unwrap()) / 100_000.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_at_twenty_times_its_capacity_says_so_in_every_answer() {
    let service = Bloomgate::start(SMALL).await;
    service.wait_live("small").await;
    fill(&service, "small", 0..5_000).await;
    let described = service.describe("small").await;
    let rate = described["estimated_fp_rate"].as_f64().unwrap();
    let measured = measured_rate(&service, "small").await;
    assert!((0.009..0.011).contains(&rate), "{rate}");
    // Four standard deviations of the measurement.
    assert!(
        (measured - rate).abs() < 0.0013,
        "{measured}, said to be {rate}"
    );
    let cardinality = described["estimated_cardinality"].as_i64().unwrap();
    assert!((4_900..=5_100).contains(&cardinality), "{cardinality}");
    let cardinality = metric(&service, "bloomgate_filter_estimated_cardinality", "small").await;
    assert!((4_900.0..=5_100.0).contains(&cardinality), "{cardinality}");

    let loaded = fill(&service, "small", 5_000..100_000).await;
    let added = service.add("small", "one-more").await;
    let checked = service.check("small", "item-7").await;
    let described = service.describe("small").await;
    let in_metrics = metric(&service, "bloomgate_filter_estimated_fp_ratio", "small").await;
    let measured = measured_rate(&service, "small").await;
    for rate in [
        loaded["estimated_fp_rate"].as_f64().unwrap(),
        added["estimated_fp_rate"].as_f64().unwrap(),
        described["estimated_fp_rate"].as_f64().unwrap(),
        checked.estimated_fp_rate,
        in_metrics,
        measured,
    ] {
        assert!((0.99..=1.0).contains(&rate), "{rate}");
    }
    assert_eq!(described["false_positive_rate"], 0.01);
    assert_eq!(described["over_capacity"], true);
    assert!(metric(&service, "bloomgate_filter_over_capacity", "small").await > 0.5);
    assert_growth_is_refused(&service).await;
    for batch in 0..10 {
        let items: Vec<_> = (0..10_000)
            .map(|n| format!("item-{}", batch * 10_000 + n))
            .collect();
        let found = service.check_batch("small", &items).await;
        assert!(found.into_iter().all(|is_maybe| is_maybe));
    }
}

/// Without memory for two generations the old one answers on, and whoever looks is told.
async fn assert_growth_is_refused(service: &Bloomgate) {
    let refusal = eventually("the growth is refused", DEADLINE, async || {
        let described = service.describe("small").await;
        described["problem"].as_str().map(str::to_owned)
    })
    .await;
    assert!(refusal.contains("memory_budget"), "{refusal}");
    let refused =
        "bloomgate_rebuilds_total{filter=\"small\",cause=\"growth\",outcome=\"refused\"} 1";
    assert!(service.get("/metrics").await.text.contains(refused));
    assert!(service.logs().contains("a rebuild is refused"));
    let asked = service.post("/v1/filters/small/rebuild", &json!({})).await;
    let problem = asked.expect_problem(422, "over-memory-budget");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("memory_budget")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_grows_twenty_fold_comes_back_to_its_rate_and_misses_nothing_meanwhile() {
    let service = Bloomgate::start(&SMALL.replace("1MiB", "64MiB")).await;
    service.wait_live("small").await;
    fill(&service, "small", 0..100_000).await;
    let loaded: Vec<_> = (0..100_000)
        .step_by(100)
        .map(|n| format!("item-{n}"))
        .collect();
    let grown = eventually("the filter has grown", DEADLINE, async || {
        let found = service.check_batch("small", &loaded).await;
        assert!(found.into_iter().all(|is_maybe| is_maybe));
        let described = service.describe("small").await;
        (described["over_capacity"] == false).then_some(described)
    })
    .await;
    assert!(grown["capacity"].as_i64().unwrap() >= 100_000, "{grown}");
    assert!(grown["generation"].as_i64().unwrap() > 1, "{grown}");
    assert_eq!(grown["false_positive_rate"], 0.01);
    let measured = measured_rate(&service, "small").await;
    assert!(measured <= 0.012, "{measured}");
    // As declared, not as grown.
    let declaration = json!({"profile": "text", "capacity": 5_000, "false_positive_rate": 0.01});
    let same = service.put("/v1/filters/small", &declaration).await;
    same.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_number_is_finite_from_the_empty_filter_to_the_saturated_one() {
    let service = Bloomgate::start(SMALL).await;
    service.wait_live("tiny").await;
    let empty = service.describe("tiny").await;
    assert_eq!(empty["fill_ratio"], 0.0);
    assert_eq!(empty["estimated_fp_rate"], 0.0);
    assert_eq!(empty["estimated_cardinality"], 0);
    assert_eq!(empty["over_capacity"], false);

    let loaded = fill(&service, "tiny", 0..1_000).await;
    assert_eq!(loaded["estimated_fp_rate"], 1.0);
    let full = service.describe("tiny").await;
    assert_eq!(full["fill_ratio"], 1.0);
    assert_eq!(full["estimated_fp_rate"], 1.0);
    assert_eq!(full["over_capacity"], true);
    let cardinality = full["estimated_cardinality"].as_i64().unwrap();
    assert!((1..1_000).contains(&cardinality), "{cardinality}");
    let checked = service.check("tiny", "absent").await;
    assert!(checked.is_match());
    assert!((checked.estimated_fp_rate - 1.0).abs() < f64::EPSILON);
    let added = service
        .post("/v1/filters/tiny/add", &json!({"item": "a"}))
        .await;
    assert_eq!(added.expect_status(200)["estimated_fp_rate"], 1.0);
    for line in service.get("/metrics").await.text.lines() {
        let value = line.rsplit(' ').next().unwrap();
        let is_sample = !line.is_empty() && !line.starts_with('#');
        assert!(
            !is_sample || value.parse::<f64>().unwrap().is_finite(),
            "{line}"
        );
    }
}
