//! Ten million rows of a source, loaded at the start, beside psql copying the same query.

use std::fs::File;
use std::process::Command;
use std::time::Instant;

use crate::bloomgate_process::{Launch, START_DEADLINE};
use crate::postgres;
use crate::process::ALL_CORES;
use crate::rounds::median;
use crate::stage::Stage;
use crate::table::{Line, Table, Target};

const ROUNDS: usize = 3;
const MIB: f64 = 1024.0 * 1024.0;

/// Ten million rows: what they are called, how they are made, and what profile they are for.
pub(crate) struct Rows {
    name: &'static str,
    expression: &'static str,
    profile: &'static str,
}

pub(crate) const TOKENS: Rows = Rows {
    name: "tokens",
    expression: "md5(number::text)::uuid",
    profile: "jti",
};

const ADDRESSES: Rows = Rows {
    name: "addresses",
    expression: "'User.' || md5(number::text) || '@Mail' || number % 1000 || '.example.com'",
    profile: "email",
};

impl Rows {
    pub(crate) const FILTER: &str = "loaded";

    /// Makes the table where it is not there.
    pub(crate) fn prepare(&self, stage: &Stage) -> anyhow::Result<()> {
        let Self {
            name, expression, ..
        } = self;
        let create = format!(
            "SELECT to_regclass('{name}') IS NULL AS missing \\gset
             \\if :missing
             CREATE TABLE {name} AS SELECT {expression} AS item FROM generate_series(1, 10000000) number;
             VACUUM ANALYZE {name};
             CHECKPOINT;
             \\endif"
        );
        postgres::sql(stage, &create)
    }

    fn query(&self) -> String {
        format!("SELECT item FROM {}", self.name)
    }

    /// A start that loads them.
    pub(crate) fn launch(&self, stage: &Stage, name: &str) -> Launch {
        let (filter, profile, query) = (Self::FILTER, self.profile, self.query());
        let config = format!(
            "[filters.{filter}]\nprofile = \"{profile}\"\ncapacity = 10_000_000\nfalse_positive_rate = 0.01\n\
             [[filters.{filter}.sources]]\nname = \"rows\"\nquery = \"{query}\"\nrefresh_interval = \"1h\"\n\
             database_url = \"{}\"\n",
            stage.postgres_url
        );
        Launch {
            cores: ALL_CORES,
            config,
            ..Launch::new(stage, name)
        }
    }

    /// How long psql takes to copy them to nowhere, in seconds.
    fn copy_by_psql(&self, stage: &Stage) -> anyhow::Result<f64> {
        let copy = format!("COPY ({}) TO STDOUT (FORMAT binary)", self.query());
        let mut command = Command::new("psql");
        command.args(["-X", "-q", "-d", &stage.postgres_url, "-c", &copy]);
        let begun = Instant::now();
        let status = command.stdout(File::create("/dev/null")?).status()?;
        anyhow::ensure!(status.success(), "psql ended with {status}");
        Ok(begun.elapsed().as_secs_f64())
    }
}

pub(crate) fn measure(stage: &Stage, table: &mut Table) -> anyhow::Result<()> {
    for (rows, bound) in [(TOKENS, 1.5), (ADDRESSES, 2.0)] {
        rows.prepare(stage)?;
        let (mut loads, mut copies, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
        let mut bits = 0.0;
        for round in 0..ROUNDS {
            copies.push(rows.copy_by_psql(stage)?);
            let launch = rows.launch(stage, &format!("load-{}-{round}", rows.name));
            let bloomgate = launch.spawn(stage)?;
            let ready = bloomgate
                .client
                .wait_for_ok("/readyz", bloomgate.begun, START_DEADLINE)?;
            loads.push(ready.as_secs_f64());
            peaks.push(bloomgate.process.peak_memory_bytes()? as f64 / MIB);
            bits = bloomgate.describe(Rows::FILTER)?["memory_bytes"]
                .as_f64()
                .unwrap_or_default()
                / MIB;
        }
        let (load, copy, peak) = (median(loads), median(copies), median(peaks));
        table.add(Line::ratio(
            format!(
                "a start that loads 10 M {}, of psql's copy to /dev/null",
                rows.name
            ),
            load / copy,
            Target::AtMost(bound),
            format!("{load:.2} of {copy:.2} s"),
        ));
        table.add(Line::absolute(
            format!("its peak memory beside the bits, {}", rows.name),
            peak - bits,
            "MiB",
            Target::AtMost(64.0),
            format!("{peak:.0} MiB, {bits:.0} of them bits"),
        ));
    }
    Ok(())
}
