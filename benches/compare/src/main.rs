//! Measures bloomgate beside its peers and prints one table of ratios. `benches/run` starts it,
//! from the repository's root, with everything in place that [`stage::Stage`] names.
//!
//! Invariants: every figure comes from this run; rivals take turns, and what counts is the median of
//! their rounds; an answer that is not what was asked for ends the run.

#![forbid(unsafe_code)]

mod bare;
mod bloomgate_process;
mod http;
mod machine;
mod postgres;
mod process;
mod redis;
mod rounds;
mod rows;
mod stage;
mod table;
mod thousand_million;
mod wrk;

use std::time::Instant;

use anyhow::Context as _;
use stage::Stage;
use table::Table;

fn main() -> anyhow::Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "bare") {
        let [_, port, answer] = arguments.as_slice() else {
            anyhow::bail!("expected: bare PORT ANSWER");
        };
        return bare::serve(port.parse().context("the port")?, answer);
    }
    let record = arguments.iter().position(|argument| argument == "--record");
    let record = record.map(|at| arguments.remove(at)).is_some();
    let stage = Stage::from_environment()?;
    let mut table = Table::default();
    let mut failed = Vec::new();
    for row in rows::chosen(&arguments)? {
        let begun = Instant::now();
        eprintln!("benches/run: {}", row.name);
        if let Err(error) = (row.measure)(&stage, &mut table) {
            eprintln!("benches/run: {} cannot be measured: {error:#}", row.name);
            failed.push(row.name);
        }
        eprintln!("benches/run:   took {} s", begun.elapsed().as_secs());
    }
    let text = format!("{}\n{}", machine::description()?, table.markdown());
    print!("{text}");
    if record {
        table::record(&text)?;
    }
    anyhow::ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}
