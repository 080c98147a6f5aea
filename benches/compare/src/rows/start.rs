//! A start with nothing there.

use crate::bloomgate_process::{Launch, START_DEADLINE};
use crate::process::ALL_CORES;
use crate::rounds::medians;
use crate::stage::Stage;
use crate::table::{Line, Table, Target};

const STARTS: usize = 15;

pub(crate) fn measure(stage: &Stage, table: &mut Table) -> anyhow::Result<()> {
    let mut number = 0;
    let [milliseconds] = medians(STARTS, |_| {
        number += 1;
        let launch = Launch {
            cores: ALL_CORES,
            ..Launch::new(stage, &format!("start-{number}"))
        };
        let bloomgate = launch.spawn(stage)?;
        let listening = bloomgate
            .client
            .wait_for_ok("/livez", bloomgate.begun, START_DEADLINE)?;
        Ok(listening.as_secs_f64() * 1e3)
    })?;
    table.add(Line::absolute(
        "a start with nothing there, from exec to the first answer",
        milliseconds,
        "ms",
        Target::AtMost(50.0),
        format!("median of {STARTS}"),
    ));
    Ok(())
}
