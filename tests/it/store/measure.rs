//! How fast the stores are. Not a test of a promise: run by hand, with
//! `tests/run --release measure -- --ignored --nocapture --test-threads 1`.

use std::time::Instant;

use bloomgate::service::ports::{FilterId, NewRow, RowSink, Store};
use bloomgate::store::SqliteStore;
use jiff::Timestamp;
use uuid::Uuid;

use super::rows::{declared, open_postgres, row};
use crate::support::Database;

/// A sink that keeps nothing but the number of rows.
#[derive(Default)]
struct Rows(u64);

impl RowSink for Rows {
    fn begin(&mut self, _rows_expected: u64, _database_now: Timestamp) {}

    fn row(&mut self, _item: Option<&[u8]>, _expires_at: Option<Timestamp>) {
        self.0 += 1;
    }
}

fn batch(filter: FilterId, rows: usize) -> Vec<NewRow> {
    (0..rows)
        .map(|_| row(filter, &Uuid::new_v4().to_string()))
        .collect()
}

async fn measure_adds(name: &str, store: &dyn Store) {
    let filter = declared(store, "f").await.id;
    for (rows_a_call, calls) in [(1, 500), (1_000, 50), (10_000, 10)] {
        let batches: Vec<_> = (0..calls).map(|_| batch(filter, rows_a_call)).collect();
        let start = Instant::now();
        for rows in &batches {
            store.add(rows).await.unwrap();
        }
        let seconds = start.elapsed().as_secs_f64();
        eprintln!(
            "{name}: {rows_a_call} rows a call: {:.2} ms a call, {:.0} rows/s",
            1_000.0 * seconds / f64::from(calls),
            rows_a_call as f64 * f64::from(calls) / seconds
        );
    }
    for _ in 0..90 {
        store.add(&batch(filter, 10_000)).await.unwrap();
    }
    for _ in 0..3 {
        let start = Instant::now();
        let mut rows = Rows::default();
        store.load(filter, None, &mut rows).await.unwrap();
        eprintln!("{name}: load of {} rows: {:?}", rows.0, start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_postgres() {
    let database = Database::create().await;
    let store = open_postgres(database.url()).await;
    measure_adds("Postgres", &store).await;
    for _ in 0..3 {
        let start = Instant::now();
        let copied = std::process::Command::new("psql")
            .args([database.url(), "-qc"])
            .arg("COPY (SELECT item, expires_at FROM bloomgate.item) TO STDOUT (FORMAT binary)")
            .stdout(std::process::Stdio::null())
            .status();
        assert!(copied.unwrap().success());
        eprintln!("psql COPY to /dev/null: {:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_sqlite() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let store = SqliteStore::new(folder.path());
    store.open().await.unwrap();
    measure_adds("SQLite", &store).await;
    store.close().await;
}
