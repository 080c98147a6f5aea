//! A start from a snapshot of 10^9 items, beside `cat` of its file.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::bloomgate_process::START_DEADLINE;
use crate::rounds::median;
use crate::stage::Stage;
use crate::table::{Line, Table, Target};
use crate::thousand_million::{self, FILTER};

const ROUNDS: usize = 3;

pub(crate) fn measure(stage: &Stage, table: &mut Table) -> anyhow::Result<()> {
    let (mut starts, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let copy = thousand_million::copy(stage)?;
        let file = thousand_million::snapshot_file(&copy.launch.data_dir())?;
        cat(&file)?;
        reads.push(cat(&file)?);
        let mut bloomgate = copy.launch.spawn(stage)?;
        bloomgate
            .client
            .wait_for_ok("/readyz", bloomgate.begun, START_DEADLINE)?;
        // A filter that was taken back is ready, and stale until the store was asked.
        let mut described = bloomgate.describe(FILTER)?;
        while described["state"] != "live" && bloomgate.begun.elapsed() < START_DEADLINE {
            described = bloomgate.describe(FILTER)?;
        }
        let live = bloomgate.begun.elapsed();
        let items = described["estimated_cardinality"]
            .as_f64()
            .unwrap_or_default();
        anyhow::ensure!(described["state"] == "live" && items > 9.9e8, "{described}");
        starts.push(live.as_secs_f64());
        // A stop would save it all again.
        bloomgate.process.kill()?;
    }
    let (start, read) = (median(starts), median(reads));
    table.add(Line::ratio(
        "a start from a snapshot of 10⁹ items, exec to live, of `cat FILE > /dev/null`",
        start / read,
        Target::AtMost(4.0),
        format!("{start:.2} of {read:.2} s, in the page cache"),
    ));
    table.add(Line::absolute(
        "that start",
        start,
        "s",
        Target::AtMost(10.0),
        format!("median of {ROUNDS}"),
    ));
    Ok(())
}

/// How long it takes, in seconds.
fn cat(file: &Path) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let status = Command::new("cat")
        .arg(file)
        .stdout(File::create("/dev/null")?)
        .status()?;
    anyhow::ensure!(status.success(), "cat ended with {status}");
    Ok(begun.elapsed().as_secs_f64())
}
