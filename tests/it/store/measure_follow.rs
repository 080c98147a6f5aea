//! What a trigger costs who writes. Not a test of a promise: run by hand, with
//! `tests/run measure_follow -- --ignored --nocapture --test-threads 1`, on a machine at rest.

use std::process::Command;

use super::followed_tables::follow;
use crate::support::environment::postgres_program;
use crate::support::{Cluster, Database};

/// Rounds of runs with and without the trigger, one after the other: the machine's mood changes.
const ROUNDS: usize = 9;

const SECONDS: &str = "2";

/// Inserts a second of single rows.
fn inserts_a_second(database: &Database, table: &str, clients: usize) -> f64 {
    let script = tempfile::NamedTempFile::new().unwrap();
    let insert = format!(
        "INSERT INTO {table} (jti, expires_at) \
         VALUES (gen_random_uuid()::text, now() + interval '1 hour');\n"
    );
    std::fs::write(script.path(), insert).unwrap();
    let output = Command::new(postgres_program("pgbench"))
        .args(["--no-vacuum", "--time", SECONDS, "--jobs", "2"])
        .args(["--client", &clients.to_string()])
        .arg("--file")
        .arg(script.path())
        .arg(database.url())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rate = text
        .split("tps = ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    rate.unwrap().parse().unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn measure(name: &str, database: &Database) {
    database
        .execute(
            "CREATE TABLE plain (id bigserial PRIMARY KEY, jti text NOT NULL UNIQUE,
                                 expires_at timestamptz);
             CREATE TABLE followed (LIKE plain INCLUDING ALL)",
        )
        .await;
    let arguments = [
        "--table",
        "public.followed",
        "--item",
        "jti",
        "--expires",
        "expires_at",
    ];
    follow(database, &arguments).await;
    for clients in [1, 4, 16] {
        let (mut plain, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            database
                .execute("TRUNCATE plain, followed, bloomgate_follow.change; CHECKPOINT")
                .await;
            let without = inserts_a_second(database, "plain", clients);
            let with = inserts_a_second(database, "followed", clients);
            plain.push(without);
            ratios.push(with / without);
        }
        eprintln!(
            "{name}, {clients} clients: {:.0} inserts/s without a trigger, with it {:.1} %",
            median(plain),
            100.0 * median(ratios)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_follow() {
    for fsync in ["on", "off"] {
        let cluster = Cluster::start_with(&[("fsync", fsync)]).await;
        let database = cluster.create_database().await;
        measure(&format!("fsync {fsync}"), &database).await;
    }
}
