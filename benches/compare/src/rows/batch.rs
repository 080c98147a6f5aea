//! A batch of 1,000 checks: beside single ones, and beside Redis.
//!
//! Both servers may use all cores, as far as they can, and who asks them has one of them.

use std::time::Duration;

use crate::bloomgate_process::{self, KEY};
use crate::process::{ALL_CORES, LOAD_CORE, move_to_cores};
use crate::redis::Redis;
use crate::rounds::medians;
use crate::rows::http::CHECK_PATH;
use crate::stage::Stage;
use crate::table::{Line, Table, Target, grouped};
use crate::wrk::Wrk;

const BATCH_ITEMS: f64 = 1_000.0;
const BATCH_PATH: &str = "/v1/filters/revoked-jti/check-batch";
const CONNECTIONS: u32 = 8;
const ROUNDS: usize = 5;
const ROUND_SECONDS: u32 = 3;

pub(crate) fn measure(stage: &Stage, table: &mut Table) -> anyhow::Result<()> {
    let bloomgate = bloomgate_process::start_with_a_million(stage, ALL_CORES)?;
    let redis = Redis::start(stage)?;
    let wrk = |script, path, connections| Wrk {
        address: bloomgate.client.address,
        script,
        arguments: vec![path, KEY],
        connections,
        seconds: ROUND_SECONDS,
    };
    // Redis' client is this program.
    move_to_cores(LOAD_CORE, std::process::id())?;
    let [batch, single, bits] = medians(ROUNDS, |rival| match rival {
        0 => Ok(wrk("batch", BATCH_PATH, CONNECTIONS)
            .run()?
            .requests_a_second
            * BATCH_ITEMS),
        1 => Ok(wrk("one", CHECK_PATH, 32).run()?.requests_a_second),
        _ => redis.items_a_second(
            CONNECTIONS.into(),
            Duration::from_secs(ROUND_SECONDS.into()),
        ),
    })?;
    move_to_cores(ALL_CORES, std::process::id())?;
    table.add(Line::ratio(
        "check-batch of 1,000: items a second, of single checks'",
        batch / single,
        Target::AtLeast(70.0),
        format!("{} of {} a second", grouped(batch), grouped(single)),
    ));
    table.add(Line::ratio(
        "check-batch of 1,000: items a second, of Redis' with 7 pipelined GETBITs each",
        batch / bits,
        Target::AtLeast(50.0),
        format!("{} of {} a second", grouped(batch), grouped(bits)),
    ));
    Ok(())
}
