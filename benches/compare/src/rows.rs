//! The rows of the table, each measured by a module of its own.

mod batch;
mod bits;
mod core;
mod durable;
mod growth;
mod http;
mod load;
mod rebuild;
mod restore;
mod start;

use crate::stage::Stage;
use crate::table::Table;

/// A row, or a family of them.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) measure: fn(&Stage, &mut Table) -> anyhow::Result<()>,
}

const ROWS: &[Row] = &[
    Row {
        name: "http",
        measure: http::measure,
    },
    Row {
        name: "batch",
        measure: batch::measure,
    },
    Row {
        name: "core",
        measure: core::measure,
    },
    Row {
        name: "load",
        measure: load::measure,
    },
    Row {
        name: "durable",
        measure: durable::measure,
    },
    Row {
        name: "rebuild",
        measure: rebuild::measure,
    },
    Row {
        name: "growth",
        measure: growth::measure,
    },
    Row {
        name: "start",
        measure: start::measure,
    },
    Row {
        name: "restore",
        measure: restore::measure,
    },
    Row {
        name: "bits",
        measure: bits::measure,
    },
];

/// The rows with these names; all of them where none is given.
pub(crate) fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Row>> {
    let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    for name in names {
        anyhow::ensure!(
            known.contains(&name.as_str()),
            "no row '{name}'; there are {}",
            known.join(", ")
        );
    }
    let is_chosen = |row: &&Row| names.is_empty() || names.iter().any(|name| name == row.name);
    Ok(ROWS.iter().filter(is_chosen).collect())
}
