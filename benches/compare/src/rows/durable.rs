//! Durable adds, one a request: beside PostgreSQL's own inserts, and beside a commit for each.

use crate::bloomgate_process::{Bloomgate, KEY, Launch};
use crate::postgres;
use crate::process::ALL_CORES;
use crate::rounds::medians;
use crate::stage::Stage;
use crate::table::{Line, Table, Target, grouped};
use crate::wrk::Wrk;

const ADD_PATH: &str = "/v1/filters/revoked-jti/add";
const CLIENTS: u32 = 64;
const ROUNDS: usize = 3;
const ROUND_SECONDS: u32 = 4;

const INSERT: &str = "INSERT INTO inserted VALUES (gen_random_uuid());\n";

pub(crate) fn measure(stage: &Stage, table: &mut Table) -> anyhow::Result<()> {
    table.add(beside_inserts(stage)?);
    table.add(beside_a_commit_each(stage)?);
    Ok(())
}

fn adds(bloomgate: &Bloomgate, clients: u32) -> anyhow::Result<f64> {
    let wrk = Wrk {
        address: bloomgate.client.address,
        script: "one",
        arguments: vec![ADD_PATH, KEY],
        connections: clients,
        seconds: ROUND_SECONDS,
    };
    Ok(wrk.run()?.requests_a_second)
}

fn beside_inserts(stage: &Stage) -> anyhow::Result<Line> {
    let bloomgate = Launch {
        cores: ALL_CORES,
        database_url: Some(stage.postgres_url.clone()),
        ..Launch::new(stage, "durable-postgres")
    }
    .start(stage)?;
    postgres::sql(stage, "CREATE TABLE inserted (id uuid UNIQUE)")?;
    let [adds, inserts] = medians(ROUNDS, |rival| match rival {
        0 => adds(&bloomgate, CLIENTS),
        _ => postgres::pgbench(stage, ALL_CORES, INSERT, CLIENTS, ROUND_SECONDS),
    })?;
    drop(bloomgate);
    postgres::sql(stage, "DROP TABLE inserted; DROP SCHEMA bloomgate CASCADE")?;
    Ok(Line::ratio(
        format!("durable adds of {CLIENTS} clients on PostgreSQL, of its single-row inserts"),
        adds / inserts,
        Target::AtLeast(1.0),
        format!("{} of {} a second", grouped(adds), grouped(inserts)),
    ))
}

/// One client at a time is one commit an add.
fn beside_a_commit_each(stage: &Stage) -> anyhow::Result<Line> {
    let bloomgate = Launch {
        cores: ALL_CORES,
        ..Launch::new(stage, "durable-sqlite")
    }
    .start(stage)?;
    let [many, one] = medians(ROUNDS, |rival| adds(&bloomgate, [CLIENTS, 1][rival]))?;
    Ok(Line::ratio(
        format!("durable adds of {CLIENTS} clients on SQLite, of adds with a commit each"),
        many / one,
        Target::AtLeast(10.0),
        format!("{} of {} a second", grouped(many), grouped(one)),
    ))
}
