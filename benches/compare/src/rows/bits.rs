//! The bits that a description tells, beside the formula.

use anyhow::Context as _;

use crate::bloomgate_process::Launch;
use crate::stage::Stage;
use crate::table::{Line, Table, Target};

const DECLARED: [(u64, f64); 6] = [
    (1_000, 0.001),
    (1_000_000, 0.01),
    (1_000_000, 0.000_001),
    (5_000_000, 0.001),
    (100_000_000, 0.001),
    (1_000_000_000, 0.01),
];

pub(crate) fn measure(stage: &Stage, table: &mut Table) -> anyhow::Result<()> {
    let bloomgate = Launch::new(stage, "bits").start(stage)?;
    let mut deviations = Vec::new();
    for (index, (capacity, rate)) in DECLARED.into_iter().enumerate() {
        let path = format!("/v1/filters/f{index}");
        let declared = format!(
            "{{\"profile\":\"text\",\"capacity\":{capacity},\"false_positive_rate\":{rate}}}"
        );
        let put = bloomgate
            .client
            .ask("PUT", &path, "application/json", declared.as_bytes())?;
        let described: serde_json::Value = serde_json::from_str(&put)?;
        let bit_count = described["bit_count"].as_f64().context("no bit_count")?;
        let formula = (-(capacity as f64) * rate.ln() / std::f64::consts::LN_2.powi(2)).ceil();
        deviations.push((bit_count - formula).abs() / formula * 100.0);
    }
    table.add(Line::absolute(
        format!(
            "bit_count of {} declared filters, furthest from ⌈−n·ln p / (ln 2)²⌉",
            DECLARED.len()
        ),
        deviations.into_iter().fold(0.0, f64::max),
        "%",
        Target::AtMost(0.1),
        "1,000 to 10⁹ items, 1 % to 0.0001 %".to_owned(),
    ));
    Ok(())
}
