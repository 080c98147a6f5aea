//! A single check over HTTP: beside a bare handler, another crate's server, and PostgreSQL.

use std::time::{Duration, Instant};

use crate::bloomgate_process::{self, Bloomgate, KEY, MILLION};
use crate::http::{Client, free_address};
use crate::postgres;
use crate::process::{ALL_CORES, LOAD_CORE, Process, SERVER_CORE, on_cores};
use crate::rounds::{median, medians};
use crate::stage::Stage;
use crate::table::{Line, Table, Target, grouped};
use crate::wrk::{Load, Wrk};

pub(crate) const CHECK_PATH: &str = "/v1/filters/revoked-jti/check";
const CONNECTIONS: u32 = 32;
const ROUNDS: usize = 5;
const ROUND_SECONDS: u32 = 3;

/// A look-up of a row by its key, as a client prepares it.
const LOOK_UP: &str = "\\set number random(1, 1000000)\n\
     SELECT 1 FROM looked_up WHERE id = md5(:number::text)::uuid;\n";

pub(crate) fn measure(stage: &Stage, table: &mut Table) -> anyhow::Result<()> {
    let bloomgate = bloomgate_process::start_with_a_million(stage, SERVER_CORE)?;
    let checks = beside_a_bare_handler(&bloomgate, table)?;
    table.add(beside_bloomsrv(stage, &bloomgate)?);
    table.add(beside_postgres(stage, checks)?);
    Ok(())
}

/// Load and what it cost the server, in microseconds a request.
fn round(
    client: &Client,
    process: &Process,
    script: &str,
    path: &str,
) -> anyhow::Result<(Load, f64)> {
    let mut arguments = vec![path];
    arguments.extend(client.key.as_deref());
    let wrk = Wrk {
        address: client.address,
        script,
        arguments,
        connections: CONNECTIONS,
        seconds: ROUND_SECONDS,
    };
    let before = process.cpu_seconds()?;
    let load = wrk.run()?;
    Ok((
        load,
        (process.cpu_seconds()? - before) / load.requests * 1e6,
    ))
}

/// Gives the checks a second.
fn beside_a_bare_handler(bloomgate: &Bloomgate, table: &mut Table) -> anyhow::Result<f64> {
    let body = format!(
        "{{\"item\":\"{}\"}}",
        bloomgate_process::item(u64::MAX >> 16)
    );
    let answer = bloomgate.client.post_json(CHECK_PATH, &body)?;
    let address = free_address()?;
    let mut command = on_cores(SERVER_CORE, std::env::current_exe()?);
    command.args(["bare", &address.port().to_string(), &answer]);
    let bare = Process::start(&mut command)?;
    // Both get the same bytes, the key included.
    let client = Client {
        address,
        key: Some(KEY.to_owned()),
    };
    wait_until_it_listens(&client)?;
    let mut costs: [Vec<f64>; 2] = Default::default();
    let [checks, bare_requests] = medians(ROUNDS, |rival| {
        let (load, cost) = match rival {
            0 => round(&bloomgate.client, &bloomgate.process, "one", CHECK_PATH)?,
            _ => round(&client, &bare, "one", "/check")?,
        };
        costs[rival].push(cost);
        Ok(load.requests_a_second)
    })?;
    let [cost, bare_cost] = costs.map(median);
    table.add(Line::ratio(
        "a check's requests a second, of a bare axum handler's",
        checks / bare_requests,
        Target::AtLeast(0.85),
        format!("{} of {} a second", grouped(checks), grouped(bare_requests)),
    ));
    table.add(Line::ratio(
        "the bare handler's processor time a request, of a check's",
        bare_cost / cost,
        Target::AtLeast(0.85),
        format!("{bare_cost:.2} of {cost:.2} µs"),
    ));
    Ok(checks)
}

fn wait_until_it_listens(client: &Client) -> anyhow::Result<()> {
    let begun = Instant::now();
    while std::net::TcpStream::connect(client.address).is_err() {
        anyhow::ensure!(
            begun.elapsed() < Duration::from_secs(20),
            "a peer did not start"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The released program as it is: no key, no limits, no metrics, nothing on disk. Its filter is
/// sized alike and empty, which makes its look-ups no slower.
fn beside_bloomsrv(stage: &Stage, bloomgate: &Bloomgate) -> anyhow::Result<Line> {
    let client = Client {
        address: free_address()?,
        key: None,
    };
    let mut command = on_cores(SERVER_CORE, &stage.bloomsrv);
    command.args(["--port", &client.address.port().to_string()]);
    let process = Process::start(&mut command)?;
    wait_until_it_listens(&client)?;
    let filter =
        format!("{{\"name\":\"f\",\"item_count\":{MILLION},\"false_positive_rate\":0.01}}");
    client.post_json("/filters", &filter)?;
    let [checks, other] = medians(ROUNDS, |rival| {
        let (load, _) = match rival {
            0 => round(&bloomgate.client, &bloomgate.process, "one", CHECK_PATH)?,
            _ => round(&client, &process, "plain", "/filters/f/items")?,
        };
        Ok(load.requests_a_second)
    })?;
    Ok(Line::ratio(
        "a check's requests a second, of the `bloomsrv` crate's look-ups",
        checks / other,
        Target::AtLeast(1.0),
        format!("{} of {} a second", grouped(checks), grouped(other)),
    ))
}

/// The better of two arrangements: the server and its clients on a core each, as above, or both
/// wherever the kernel puts them.
fn beside_postgres(stage: &Stage, checks: f64) -> anyhow::Result<Line> {
    postgres::sql(
        stage,
        "CREATE TABLE looked_up (id uuid PRIMARY KEY);
         INSERT INTO looked_up SELECT md5(number::text)::uuid FROM generate_series(1, 1000000) number;
         VACUUM ANALYZE looked_up;",
    )?;
    let [placed, unplaced] = medians(3, |arrangement| match arrangement {
        0 => postgres::placed(stage, SERVER_CORE, || {
            postgres::pgbench(stage, LOAD_CORE, LOOK_UP, CONNECTIONS, ROUND_SECONDS)
        }),
        _ => postgres::pgbench(stage, ALL_CORES, LOOK_UP, CONNECTIONS, ROUND_SECONDS),
    })?;
    postgres::sql(stage, "DROP TABLE looked_up")?;
    let look_ups = placed.max(unplaced);
    Ok(Line::ratio(
        "a check's requests a second, of PostgreSQL's prepared point look-ups",
        checks / look_ups,
        Target::AtLeast(2.0),
        format!("{} of {} a second", grouped(checks), grouped(look_ups)),
    ))
}
