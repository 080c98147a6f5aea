//! Every road that an item can come by, each into a filter of its own, so that none covers for
//! another.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::{Bloomgate, Database, Launch, eventually};

/// How long a source may take until it is loaded again.
const REFRESH_DEADLINE: Duration = Duration::from_secs(30);

/// The road that goes through the user's own table.
const SOURCE: &str = "source";

/// The road on which an item is a line of text.
const TEXT: &str = "text";

const ROADS: [&str; 5] = ["add", "add-batch", "ndjson", TEXT, SOURCE];

/// The program over a PostgreSQL store, with a filter for each road. They are sized so that an
/// item which never came is not `maybe` by chance.
pub(crate) struct Roads {
    database: Database,
    service: Bloomgate,
}

impl Roads {
    /// Filters of this profile, with these `profile_options` in TOML, over a fresh database.
    pub(crate) async fn start(profile: &str, profile_options: &str) -> Self {
        Self::start_over(Database::create().await, profile, profile_options).await
    }

    /// The same over a database without tables.
    pub(crate) async fn start_over(
        database: Database,
        profile: &str,
        profile_options: &str,
    ) -> Self {
        database.execute("CREATE TABLE arrival (item text)").await;
        let launch = Launch::new()
            .database_url(database.url())
            .config(&config(profile, profile_options));
        let service = launch.start().await;
        let roads = Self { database, service };
        roads.wait_live().await;
        roads
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn service(&self) -> &Bloomgate {
        &self.service
    }

    /// The name of the filter at the end of the road through the table.
    pub(crate) fn filter_of_source() -> String {
        filter(SOURCE)
    }

    /// Kills the program and starts it with other options. What came through the API is loaded from
    /// the store then.
    pub(crate) async fn restart_as(&mut self, profile: &str, profile_options: &str) {
        let config = config(profile, profile_options);
        self.service
            .restart_as(|launch| launch.config(&config))
            .await;
        self.wait_live().await;
    }

    /// Brings items by every road. Each must be acknowledged or loaded.
    pub(crate) async fn bring(&self, items: &[impl AsRef<str>]) {
        let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
        for item in &items {
            self.service.add(&filter("add"), item).await;
        }
        let batch: Vec<_> = items.iter().map(|item| json!({ "item": item })).collect();
        let path = format!("/v1/filters/{}/add-batch", filter("add-batch"));
        let answer = self.service.post(&path, &json!({ "items": batch })).await;
        assert_eq!(answer.expect_status(200)["accepted"], items.len());

        let lines = items.iter().map(|item| json!(item).to_string());
        self.bulk_load("ndjson", "application/x-ndjson", lines.collect())
            .await;
        let lines = items.iter().filter(|item| is_line(item));
        let lines = lines.map(|item| (*item).to_owned()).collect();
        self.bulk_load(TEXT, "text/plain", lines).await;

        sqlx::query("INSERT INTO arrival SELECT unnest($1::text[])")
            .bind(&items)
            .execute(self.database.pool())
            .await
            .unwrap();
        self.wait_refresh(Timestamp::now()).await;
    }

    /// The roads whose filter answers anything but `maybe` for an item that was brought, or `maybe`
    /// for one that never was; by check and by check-batch.
    pub(crate) async fn missed_on(&self, brought: &str, item: &str) -> Vec<&'static str> {
        let mut missed = Vec::new();
        for road in roads_of(brought) {
            let checked = self.service.check(&filter(road), item).await;
            let batch = [item, "never-brought@elsewhere.example"];
            let verdicts = self.service.check_batch(&filter(road), &batch).await;
            if !checked.is_match() || verdicts != [true, false] {
                missed.push(road);
            }
        }
        missed
    }

    /// Fails unless `item` is `maybe` at the end of every road that `brought` came by.
    pub(crate) async fn assert_found(&self, brought: &str, item: &str) {
        let missed = self.missed_on(brought, item).await;
        assert!(
            missed.is_empty(),
            "{brought:?} came, {item:?} is missed on {missed:?}"
        );
    }

    /// Fails unless an item is `definitely-not` at the end of every road.
    pub(crate) async fn assert_absent(&self, item: &str) {
        for road in ROADS {
            let checked = self.service.check(&filter(road), item).await;
            assert_eq!(checked.verdict, "definitely-not", "{item:?} on {road}");
        }
    }

    async fn wait_live(&self) {
        for road in ROADS {
            self.service.wait_live(&filter(road)).await;
        }
    }

    async fn bulk_load(&self, road: &str, media_type: &str, lines: Vec<String>) {
        let path = format!("/v1/filters/{}/bulk-load", filter(road));
        let body = lines.join("\n");
        let answer = self.service.post_text(&path, media_type, body).await;
        let body = answer.expect_status(200);
        assert_eq!(
            (&body["accepted"], &body["blank"]),
            (&json!(lines.len()), &json!(0))
        );
    }

    /// Waits for a load that began after `moment`.
    async fn wait_refresh(&self, moment: Timestamp) {
        eventually("the source is loaded again", REFRESH_DEADLINE, async || {
            let description = self.service.describe(&filter(SOURCE)).await;
            let as_of = description["sources"][0]["as_of"].as_str()?;
            (as_of.parse::<Timestamp>().unwrap() > moment).then_some(())
        })
        .await;
    }
}

/// Whether a line of text stands for the item as it is.
fn is_line(item: &str) -> bool {
    !item.contains('\n') && !item.ends_with('\r') && !item.starts_with('\u{feff}')
}

fn roads_of(item: &str) -> impl Iterator<Item = &'static str> {
    let is_line = is_line(item);
    ROADS
        .into_iter()
        .filter(move |road| is_line || *road != TEXT)
}

fn filter(road: &str) -> String {
    format!("by-{road}")
}

fn config(profile: &str, profile_options: &str) -> String {
    let filter = |road: &str| {
        format!(
            "[filters.by-{road}]\nprofile = \"{profile}\"\ncapacity = 10000\n\
             false_positive_rate = 1e-10\nprofile_options = {{ {profile_options} }}\n"
        )
    };
    let filters: String = ROADS.into_iter().map(filter).collect();
    // The source's is the last, so that this table is its.
    format!(
        "{filters}[[filters.by-{SOURCE}.sources]]\nname = \"arrivals\"\n\
         query = \"SELECT item FROM arrival\"\nrefresh_interval = \"100ms\"\n\
         max_staleness = \"1h\"\n"
    )
}
