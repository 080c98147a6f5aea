//! Checks where there is more: of items, and of filters.

use crate::bloomgate_process::{self, Bloomgate, KEY, Launch};
use crate::process::SERVER_CORE;
use crate::rounds::medians;
use crate::rows::http::CHECK_PATH;
use crate::stage::Stage;
use crate::table::{Line, Table, Target, grouped};
use crate::thousand_million::{self, FILTER};
use crate::wrk::Wrk;

const CONNECTIONS: u32 = 32;
const ROUNDS: usize = 5;
const ROUND_SECONDS: u32 = 3;
const FILTERS: u32 = 1_000;

pub(crate) fn measure(stage: &Stage, table: &mut Table) -> anyhow::Result<()> {
    table.add(of_items(stage)?);
    table.add(of_filters(stage)?);
    Ok(())
}

fn requests_a_second(bloomgate: &Bloomgate, script: &str, first: &str) -> anyhow::Result<f64> {
    let wrk = Wrk {
        address: bloomgate.client.address,
        script,
        arguments: vec![first, KEY],
        connections: CONNECTIONS,
        seconds: ROUND_SECONDS,
    };
    Ok(wrk.run()?.requests_a_second)
}

fn of_items(stage: &Stage) -> anyhow::Result<Line> {
    let few = bloomgate_process::start_with_a_million(stage, SERVER_CORE)?;
    let mut copy = thousand_million::copy(stage)?;
    copy.launch.cores = SERVER_CORE;
    let mut many = copy.launch.start(stage)?;
    let path = format!("/v1/filters/{FILTER}/check");
    let [before, after] = medians(ROUNDS, |rival| match rival {
        0 => requests_a_second(&few, "one", CHECK_PATH),
        _ => requests_a_second(&many, "one", &path),
    })?;
    // A stop would save it all again.
    many.process.kill()?;
    Ok(Line::ratio(
        "requests a second of checks among 10⁶ items, of those among 10⁹",
        before / after,
        Target::AtMost(1.15),
        format!("{} of {} a second", grouped(before), grouped(after)),
    ))
}

/// Checks go over all filters in turn.
fn of_filters(stage: &Stage) -> anyhow::Result<Line> {
    let one = with_filters(stage, 1)?;
    let many = with_filters(stage, FILTERS)?;
    let [before, after] = medians(ROUNDS, |rival| match rival {
        0 => requests_a_second(&one, "many", "1"),
        _ => requests_a_second(&many, "many", &FILTERS.to_string()),
    })?;
    Ok(Line::ratio(
        "requests a second of checks with 1 filter, of those over 1,000 in turn",
        before / after,
        Target::AtMost(1.05),
        format!("{} of {} a second", grouped(before), grouped(after)),
    ))
}

fn with_filters(stage: &Stage, filters: u32) -> anyhow::Result<Bloomgate> {
    let declared = |index| {
        format!(
            "[filters.f{index}]\nprofile = \"jti\"\ncapacity = 1000\nfalse_positive_rate = 0.01\n"
        )
    };
    let config = (0..filters).map(declared).collect();
    Launch {
        config,
        ..Launch::new(stage, &format!("growth-filters-{filters}"))
    }
    .start(stage)
}
