//! Rebuilding: nothing is missed while a new generation takes the place of the old one, what has
//! expired is gone behind it, and memory stays where it was.

use std::cell::Cell;
use std::time::Duration;

use serde_json::json;

use crate::support::{Bloomgate, Database, Launch, eventually};

const DEADLINE: Duration = Duration::from_secs(120);

const BOUNDS: &str = "max_staleness = \"5s\"\npoll_interval = \"50ms\"\n";

fn config(more: &str, capacity: u64, of_filter: &str) -> String {
    format!(
        "{BOUNDS}{more}\n[filters.f]\nprofile = \"text\"\ncapacity = {capacity}\n\
         false_positive_rate = 1e-9\n{of_filter}\n"
    )
}

fn source(database: &Database, bounds: &str) -> String {
    format!(
        "[[filters.f.sources]]\nname = \"rows\"\ndatabase_url = \"{}\"\n\
         query = \"SELECT item FROM rows\"\n{bounds}\n",
        database.url()
    )
}

fn items(name: &str, items: usize) -> Vec<String> {
    (0..items).map(|item| format!("{name} {item}")).collect()
}

async fn bulk_load(service: &Bloomgate, items: &[String]) {
    let path = "/v1/filters/f/bulk-load";
    let answer = service
        .post_text(path, "text/plain", items.join("\n"))
        .await;
    answer.expect_status(200);
}

/// Checks items again and again until `done`, and once more; each is `maybe` every time.
async fn keep_checking(service: &Bloomgate, items: &[String], done: &Cell<bool>) -> usize {
    let mut checks = 0;
    loop {
        let is_last = done.get();
        for items in items.chunks(1_000) {
            let verdicts = service.check_batch("f", items).await;
            assert!(verdicts.into_iter().all(|is_maybe| is_maybe));
            checks += 1;
        }
        if is_last {
            return checks;
        }
    }
}

/// Does something while items are checked.
async fn checked_meanwhile<T>(
    service: &Bloomgate,
    items: &[String],
    doing: impl Future<Output = T>,
) -> T {
    let done = Cell::new(false);
    let doing = async {
        let outcome = doing.await;
        done.set(true);
        outcome
    };
    let (outcome, _checks) = tokio::join!(doing, keep_checking(service, items, &done));
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_that_is_asked_for_answers_with_its_state_and_progress() {
    let service = Bloomgate::start(&config("", 100_000, "")).await;
    service.wait_live("f").await;
    let loaded = items("item", 20_000);
    bulk_load(&service, &loaded).await;
    let begun = service.post("/v1/filters/f/rebuild", &json!({})).await;
    let begun = begun.expect_status(202);
    assert_eq!(begun["filter"], "f");
    assert_eq!(begun["state"], "live");
    let progress = &begun["progress"];
    assert!(progress["rows_done"].is_i64() && progress["rows_expected"].is_i64());
    assert!(progress["phase"].is_string(), "{begun}");
    checked_meanwhile(&service, &loaded[..1_000], async {
        eventually("the filter is rebuilt", DEADLINE, async || {
            let description = service.describe("f").await;
            (description["generation"] == 2).then_some(())
        })
        .await;
    })
    .await;
    let rebuilds = "bloomgate_rebuilds_total{filter=\"f\",cause=\"operator\",outcome=\"done\"} 1";
    assert!(service.get("/metrics").await.text.contains(rebuilds));
    service
        .post("/v1/filters/unknown/rebuild", &json!({}))
        .await
        .expect_problem(404, "unknown-filter");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_rebuilt_at_every_rebuild_interval() {
    let service = Bloomgate::start(&config("rebuild_interval = \"1s\"", 1_000, "")).await;
    service.wait_live("f").await;
    let loaded = items("item", 100);
    bulk_load(&service, &loaded).await;
    checked_meanwhile(&service, &loaded, async {
        eventually("the filter was rebuilt twice", DEADLINE, async || {
            let description = service.describe("f").await;
            (description["generation"].as_i64().unwrap() >= 3).then_some(())
        })
        .await;
    })
    .await;
    let rebuilds = "bloomgate_rebuilds_total{filter=\"f\",cause=\"schedule\",outcome=\"done\"}";
    assert!(service.get("/metrics").await.text.contains(rebuilds));
}

#[tokio::test(flavor = "multi_thread")]
async fn past_its_expiry_and_the_leeway_an_item_is_gone_behind_a_rebuild_until_it_is_added_again() {
    let database = Database::create().await;
    let config = config("expiry_leeway = \"60s\"", 1_000, "");
    let launch = || Launch::new().config(&config).database_url(database.url());
    let (one, other) = (launch().start().await, launch().start().await);
    one.wait_live("f").await;
    other.wait_live("f").await;
    let added = ["expired", "within the leeway", "never expires"];
    for item in added {
        other.add("f", item).await;
    }
    for (item, ago) in [
        ("expired", "90 seconds"),
        ("within the leeway", "30 seconds"),
    ] {
        let statement = format!(
            "UPDATE bloomgate.item SET expires_at = now() - interval '{ago}'
              WHERE item = convert_to('{item}', 'UTF8')"
        );
        database.execute(&statement).await;
    }
    assert_eq!(other.check_batch("f", &added).await, [true; 3]);
    other.rebuild("f").await;
    assert_eq!(other.check_batch("f", &added).await, [false, true, true]);
    // The one that was not rebuilt has it still; the one that was hears of it again.
    one.add("f", "expired").await;
    eventually("the item is there again", DEADLINE, async || {
        other.check("f", "expired").await.is_match().then_some(())
    })
    .await;
    assert_eq!(other.check("f", "absent").await.verdict, "definitely-not");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_loaded_is_maybe_through_load_rebuild_growth_and_restart() {
    let database = Database::create().await;
    database
        .execute(
            "CREATE TABLE rows AS SELECT 'row ' || n AS item FROM generate_series(0, 29999) AS n",
        )
        .await;
    let long = "refresh_interval = \"1h\"";
    let config = config("", 60_000, &source(&database, long));
    let launch = Launch::new().config(&config).database_url(database.url());
    let mut service = launch.start().await;
    let mut loaded: Vec<_> = items("row", 30_000).into_iter().step_by(30).collect();
    // From the first moment on, before anything is loaded.
    checked_meanwhile(&service, &loaded, service.wait_live("f")).await;
    let added = items("added", 10_000);
    bulk_load(&service, &added).await;
    loaded.extend(added.into_iter().step_by(10));
    checked_meanwhile(&service, &loaded, service.rebuild("f")).await;
    // Half as much again as it was declared for.
    let more = items("more", 50_000);
    checked_meanwhile(&service, &loaded, async {
        bulk_load(&service, &more).await;
        eventually("the filter has grown", DEADLINE, async || {
            let description = service.describe("f").await;
            let has_grown = description["capacity"].as_i64().unwrap() >= 90_000;
            (has_grown && description["over_capacity"] == false).then_some(())
        })
        .await;
    })
    .await;
    loaded.extend(more.into_iter().step_by(50));
    for _ in 0..2 {
        service.restart().await;
        checked_meanwhile(&service, &loaded, service.wait_live("f")).await;
    }
    assert_eq!(service.check("f", "absent").await.verdict, "definitely-not");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_a_source_has_shown_is_not_lost_when_a_new_generation_takes_over() {
    let database = Database::create().await;
    database
        .execute("CREATE TABLE rows AS SELECT 'first' AS item")
        .await;
    // Between two polls, and so before each swap, the source is read more than once.
    let bounds = "refresh_interval = \"300ms\"\nmax_staleness = \"1h\"";
    let config = config("", 10_000, &source(&database, bounds)).replace("50ms", "1s");
    let service = Bloomgate::start(&config).await;
    service.wait_live("f").await;
    let mut found = vec!["first".to_owned()];
    for round in 0..5 {
        let is_rebuilt = Cell::new(false);
        let rebuild = async {
            service.rebuild("f").await;
            is_rebuilt.set(true);
        };
        let insert = async {
            while !is_rebuilt.get() {
                let item = format!("row {round} {}", found.len());
                let statement = format!("INSERT INTO rows VALUES ('{item}')");
                database.execute(&statement).await;
                eventually("the new row is found", DEADLINE, async || {
                    let verdicts = service.check_batch("f", &found).await;
                    let stay = verdicts.into_iter().all(|is_maybe| is_maybe);
                    assert!(stay, "a row that was found is lost");
                    service.check("f", &item).await.is_match().then_some(())
                })
                .await;
                found.push(item);
            }
        };
        tokio::join!(rebuild, insert);
    }
}

/// Rebuilds so many times, each time until the new generation is saved as well: while it is, it
/// lives on, and beside the next two it would be a third in memory.
async fn rebuild_and_save(service: &Bloomgate, rebuilds: usize) {
    for _ in 0..rebuilds {
        let saved = saved_generations(service);
        service.rebuild("f").await;
        eventually("the new generation is saved", DEADLINE, async || {
            (saved_generations(service) > saved).then_some(())
        })
        .await;
    }
}

fn saved_generations(service: &Bloomgate) -> usize {
    service.logs().matches("\"message\":\"saved\"").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_rebuilds_leave_memory_where_it_was() {
    // 40 MiB of bits: more than the allocator keeps for later, so that every generation is memory
    // of its own, and what threads and buffers take is little beside it. Of two generations in
    // memory one that was left behind would be half.
    let launch = Launch::new()
        .config(&config("", 7_800_000, ""))
        .env("BLOOMGATE_LOG", "info,bloomgate=debug");
    let service = launch.start().await;
    service.wait_live("f").await;
    bulk_load(&service, &items("item", 10_000)).await;
    let bits_bytes = service.describe("f").await["memory_bytes"]
        .as_i64()
        .unwrap();
    assert!((40 << 20..41 << 20).contains(&bits_bytes), "{bits_bytes}");
    let mut peaks = Vec::new();
    for _ in 0..5 {
        service.forget_peak_memory();
        rebuild_and_save(&service, 10).await;
        peaks.push(service.peak_memory_bytes());
    }
    let (first, last) = (peaks[0], peaks[4]);
    eprintln!("peak memory of each ten rebuilds: {peaks:?}");
    assert!(last * 100 <= first * 105, "{peaks:?}");
    assert!(first > 2 * bits_bytes.unsigned_abs(), "{peaks:?}");
}
