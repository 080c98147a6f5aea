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

use anyhow::Context as _;
use stage::Stage;

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
    let mut lines = Vec::new();
    for row in rows::chosen(&arguments)? {
        let begun = std::time::Instant::now();
        eprintln!("benches/run: {}", row.name);
        let measured = (row.measure)(&stage).with_context(|| format!("row {}", row.name))?;
        for line in &measured {
            eprintln!("benches/run:   {line}");
        }
        eprintln!("benches/run:   took {} s", begun.elapsed().as_secs());
        lines.extend(measured.into_iter().map(|line| (row.name, line)));
    }
    let text = format!("{}\n{}", machine::description()?, table::markdown(&lines));
    print!("{text}");
    if record {
        table::record(&text)?;
    }
    Ok(())
}
