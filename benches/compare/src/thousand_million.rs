//! A data directory with a snapshot of 10^9 items at 1 %, made once and kept for later runs.
//!
//! The program makes the directory and the snapshot of the empty filter; its library reads that,
//! adds the items and writes it back.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use bloomgate::disk::{Snapshots, read_master_key};
use bloomgate::service::snapshot_store::SnapshotStore as _;

use crate::bloomgate_process::Launch;
use crate::process::ALL_CORES;
use crate::stage::Stage;

const ITEMS: u64 = 1_000_000_000;
pub(crate) const FILTER: &str = "large";

/// A UUID as its canonical bytes. Formatting it would take as long as adding it.
fn item(number: u64) -> [u8; 36] {
    let mut item = *b"a0000000-0000-4000-8000-000000000000";
    for (index, digit) in item[24..].iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * index)) as usize % 16];
    }
    item
}

/// A start that finds nothing but the snapshot, in a folder that is gone when this is dropped.
pub(crate) struct Copy {
    pub(crate) launch: Launch,
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.launch.folder);
    }
}

fn launch(stage: &Stage, folder: PathBuf) -> Launch {
    let config = format!(
        "[filters.{FILTER}]\nprofile = \"jti\"\ncapacity = {ITEMS}\nfalse_positive_rate = 0.01\n"
    );
    Launch {
        folder,
        cores: ALL_CORES,
        config,
        ..Launch::new(stage, "")
    }
}

/// The directory as it was made, with its snapshot, however often it was started from: the program
/// replaces files of snapshots and changes none, so that a second name for one is a copy.
pub(crate) fn copy(stage: &Stage) -> anyhow::Result<Copy> {
    let original = original(stage)?;
    let copy = Copy {
        launch: launch(stage, stage.kept.join("thousand-million-copy")),
    };
    let _ = fs::remove_dir_all(&copy.launch.folder);
    let data_dir = copy.launch.data_dir();
    fs::create_dir_all(data_dir.join("snapshots"))?;
    for entry in fs::read_dir(&original)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), data_dir.join(entry.file_name()))?;
        }
    }
    let snapshot = snapshot_file(&original)?;
    let name = snapshot.file_name().context("a file without a name")?;
    fs::hard_link(&snapshot, data_dir.join("snapshots").join(name))?;
    Ok(copy)
}

/// The one file of a snapshot in a data directory.
pub(crate) fn snapshot_file(data_dir: &Path) -> anyhow::Result<PathBuf> {
    let entry = fs::read_dir(data_dir.join("snapshots"))?.next();
    Ok(entry.context("no snapshot")??.path())
}

fn original(stage: &Stage) -> anyhow::Result<PathBuf> {
    let (made, making) = (
        stage.kept.join("thousand-million"),
        stage.kept.join("thousand-million-making"),
    );
    if !made.exists() {
        let _ = fs::remove_dir_all(&making);
        let launch = launch(stage, making.clone());
        launch.start(stage)?.process.stop()?;
        fill(&launch.data_dir())?;
        fs::rename(&making, &made)?;
    }
    Ok(made.join("data"))
}

fn fill(data_dir: &Path) -> anyhow::Result<()> {
    let begun = Instant::now();
    let snapshots = Snapshots::open(data_dir)?;
    let filter = *snapshots
        .filters()?
        .first()
        .context("the program saved nothing")?;
    let saved = snapshots.head(filter)?;
    let key = read_master_key(data_dir, None)?.filter_key(filter.0.as_bytes());
    let bloom = snapshots.restore(&saved, key)?;
    thread::scope(|scope| {
        for half in [0..ITEMS / 2, ITEMS / 2..ITEMS] {
            scope.spawn(|| bloom.add_batch(half.map(item)));
        }
    });
    snapshots.save(&saved.snapshot, &bloom)?;
    eprintln!(
        "benches/run:   made a snapshot of {ITEMS} items in {} s",
        begun.elapsed().as_secs()
    );
    Ok(())
}
