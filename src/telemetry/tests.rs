//! What the metrics are called, and that they tell what was recorded.

use std::collections::HashSet;

use metrics_exporter_prometheus::PrometheusRecorder;

use super::scrape::{FilterGauges, render};
use super::*;

fn recorder() -> PrometheusRecorder {
    recorder_builder().unwrap().build_recorder()
}

fn gauges(filter: &str) -> FilterGauges {
    FilterGauges {
        filter: filter.to_owned(),
        capacity: 1_000,
        bits: 9_586,
        ones: 70,
        memory_bytes: 1_200,
        fill_ratio: 0.0073,
        estimated_fp_ratio: 0.0,
        measured_fp_ratio: None,
        estimated_cardinality: 10,
        over_capacity: false,
        states: vec![("loading", false), ("live", true), ("stale", false)],
        staleness_seconds: Some(0.25),
    }
}

#[test]
fn names_are_in_form_and_each_its_own() {
    let names: HashSet<_> = Metric::ALL.iter().map(|metric| metric.name()).collect();
    assert_eq!(names.len(), Metric::ALL.len());
    for metric in Metric::ALL {
        let total = metric.name().ends_with("_total");
        assert_eq!(total, metric.kind() == Kind::Counter, "{}", metric.name());
    }
}

#[test]
fn checks_and_adds_are_counted_under_their_own_labels() {
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, || {
        let meters = FilterMeters::new("f");
        meters.checked(Verdict::DefinitelyNot);
        meters.checked_many(Verdict::Maybe(Reason::Match), 2);
        meters.checked_many(Verdict::Maybe(Reason::Loading), 3);
        meters.checked_many(Verdict::Maybe(Reason::Stale), 4);
        meters.checked_many(Verdict::Maybe(Reason::Behind), 5);
        meters.added(Road::Add, 6);
        meters.added(Road::AddBatch, 7);
        meters.added(Road::BulkLoad, 8);
    });
    let text = recorder.handle().render();
    for line in [
        r#"bloomgate_checks_total{filter="f",verdict="definitely-not",reason=""} 1"#,
        r#"bloomgate_checks_total{filter="f",verdict="maybe",reason="match"} 2"#,
        r#"bloomgate_checks_total{filter="f",verdict="maybe",reason="loading"} 3"#,
        r#"bloomgate_checks_total{filter="f",verdict="maybe",reason="stale"} 4"#,
        r#"bloomgate_checks_total{filter="f",verdict="maybe",reason="behind"} 5"#,
        r#"bloomgate_adds_total{filter="f",road="add"} 6"#,
        r#"bloomgate_adds_total{filter="f",road="add-batch"} 7"#,
        r#"bloomgate_adds_total{filter="f",road="bulk-load"} 8"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn durations_are_buckets_from_a_tenth_of_a_millisecond_and_no_summaries() {
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, || {
        request_duration("POST", "/v1/x", 200).record(0.00005);
        record_poll(0.3);
    });
    let text = recorder.handle().render();
    let labels = r#"http_request_method="POST",http_route="/v1/x",http_response_status_code="200""#;
    let bucket =
        format!(r#"http_server_request_duration_seconds_bucket{{{labels},le="0.0001"}} 1"#);
    assert!(text.contains(&bucket), "{text}");
    assert!(text.contains(r#"bloomgate_store_poll_seconds_bucket{le="0.5"} 1"#));
    assert!(!text.contains("quantile"));
}

#[test]
fn a_filter_that_is_gone_is_gone_from_the_next_scrape() {
    let recorder = recorder();
    let handle = recorder.handle();
    let before = render(&handle, &[gauges("kept"), gauges("deleted")]);
    assert!(before.contains(r#"bloomgate_filter_ones{filter="deleted"} 70"#));
    assert!(before.contains(r#"bloomgate_filter_state{filter="kept",state="live"} 1"#));
    assert!(before.contains(r#"bloomgate_filter_state{filter="kept",state="stale"} 0"#));
    let after = render(&handle, &[gauges("kept")]);
    assert!(after.contains(r#"bloomgate_filter_ones{filter="kept"} 70"#));
    assert!(!after.contains("deleted"));
}

#[test]
fn the_process_is_shown_and_every_family_has_one_type_line() {
    let recorder = recorder();
    metrics::with_local_recorder(&recorder, || {
        record_store_error();
        record_load("f", "store", 3, 0.5);
    });
    let text = render(&recorder.handle(), &[gauges("f")]);
    assert!(text.contains("process_resident_memory_bytes "));
    assert!(text.contains("bloomgate_store_lag_seconds 0.25"));
    assert!(text.contains(r#"bloomgate_load_rows{filter="f",source="store"} 3"#));
    let types: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("# TYPE"))
        .collect();
    let different: HashSet<_> = types.iter().collect();
    assert_eq!(types.len(), different.len(), "{types:?}");
}

#[test]
fn a_panic_that_quotes_what_it_met_is_not_repeated() {
    let item = "seeded.person@example.com";
    let quoting = std::panic::catch_unwind(|| panic!("no such item: {item}")).unwrap_err();
    assert_eq!(panic_message(&*quoting), "not shown");
    let own = std::panic::catch_unwind(|| panic!("a text of ours")).unwrap_err();
    assert_eq!(panic_message(&*own), "a text of ours");
}
