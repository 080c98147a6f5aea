//! Checks while ten million rows are rebuilt beside them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bloomgate_process::{Bloomgate, KEY};
use crate::rounds::medians;
use crate::rows::load::{Rows, TOKENS};
use crate::stage::Stage;
use crate::table::{Line, Table, Target};
use crate::wrk::Wrk;

/// Each asks, waits 2 ms after the answer, and asks again.
const CONNECTIONS: u32 = 4;
const ROUNDS: usize = 5;
/// A rebuild must take longer than this, which is looked at.
const ROUND_SECONDS: u32 = 2;
const REBUILD_DEADLINE: Duration = Duration::from_secs(120);

pub(crate) fn measure(stage: &Stage, table: &mut Table) -> anyhow::Result<()> {
    TOKENS.prepare(stage)?;
    let bloomgate = TOKENS.launch(stage, "rebuild").start(stage)?;
    let mut requests_a_second = 0.0;
    let [idle, beside] = medians(ROUNDS, |rival| {
        let load = if rival == 0 {
            checks(&bloomgate)?
        } else {
            checks_beside_a_rebuild(&bloomgate)?
        };
        requests_a_second = load.requests_a_second;
        Ok(load.p99_ms)
    })?;
    table.add(Line::ratio(
        "p99 of checks while 10 M rows are rebuilt, of its idle p99",
        beside / idle,
        Target::AtMost(3.0),
        format!(
            "{beside:.2} of {idle:.2} ms; {CONNECTIONS} connections, {requests_a_second:.0} requests a second"
        ),
    ));
    Ok(())
}

fn checks(bloomgate: &Bloomgate) -> anyhow::Result<crate::wrk::Load> {
    let path = format!("/v1/filters/{}/check", Rows::FILTER);
    Wrk {
        address: bloomgate.client.address,
        script: "gentle",
        arguments: vec![&path, KEY],
        connections: CONNECTIONS,
        seconds: ROUND_SECONDS,
    }
    .run()
}

fn checks_beside_a_rebuild(bloomgate: &Bloomgate) -> anyhow::Result<crate::wrk::Load> {
    let generation = || anyhow::Ok(bloomgate.describe(Rows::FILTER)?["generation"].as_u64());
    let before = generation()?;
    bloomgate
        .client
        .post_json(&format!("/v1/filters/{}/rebuild", Rows::FILTER), "")?;
    let load = checks(bloomgate)?;
    anyhow::ensure!(
        generation()? == before,
        "the rebuild ended before the checks"
    );
    let begun = Instant::now();
    while generation()? == before {
        anyhow::ensure!(
            begun.elapsed() < REBUILD_DEADLINE,
            "the rebuild did not end"
        );
        sleep(Duration::from_millis(50));
    }
    // What is saved after a rebuild is not what is measured when idle.
    sleep(Duration::from_secs(1));
    Ok(load)
}
