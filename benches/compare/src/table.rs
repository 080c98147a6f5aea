//! The table: what was measured, held against its target.

use std::fmt;
use std::fs;

/// Where the runs are kept that were to be recorded, the newest first.
const RESULTS: &str = "benches/RESULTS.md";
const RESULTS_HEADING: &str = "# Results of `benches/run`\n";

/// What a figure must be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

/// One figure with its target, both in `unit`.
pub(crate) struct Line {
    what: String,
    figure: f64,
    unit: &'static str,
    target: Target,
    /// What the figure is made of.
    from: String,
}

impl Line {
    /// A ratio, from what `from` says.
    pub(crate) fn ratio(
        what: impl Into<String>,
        figure: f64,
        target: Target,
        from: String,
    ) -> Self {
        Self::absolute(what, figure, "×", target, from)
    }

    /// A figure that stands for itself.
    pub(crate) fn absolute(
        what: impl Into<String>,
        figure: f64,
        unit: &'static str,
        target: Target,
        from: String,
    ) -> Self {
        Self {
            what: what.into(),
            figure,
            unit,
            target,
            from,
        }
    }

    fn is_met(&self) -> bool {
        match self.target {
            Target::AtLeast(bound) => self.figure >= bound,
            Target::AtMost(bound) => self.figure <= bound,
        }
    }

    fn with_unit(&self, number: f64) -> String {
        let digits = if number.abs() >= 20.0 { 0 } else { 2 };
        format!("{number:.digits$} {}", self.unit)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bound_word, bound) = match self.target {
            Target::AtLeast(bound) => ("at least", bound),
            Target::AtMost(bound) => ("at most", bound),
        };
        write!(
            formatter,
            "{} | {} | {bound_word} {} | {} | {}",
            self.what,
            self.with_unit(self.figure),
            self.with_unit(bound),
            if self.is_met() { "yes" } else { "**no**" },
            self.from
        )
    }
}

/// The lines that were measured so far.
#[derive(Default)]
pub(crate) struct Table(Vec<Line>);

impl Table {
    /// Adds a line, and shows it: a run takes minutes.
    pub(crate) fn add(&mut self, line: Line) {
        eprintln!("benches/run:   {line}");
        self.0.push(line);
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text =
            "| what | measured | target | met | from |\n|---|---|---|---|---|\n".to_owned();
        for line in &self.0 {
            text += &format!("| {line} |\n");
        }
        text
    }
}

/// Puts a run before those that are recorded.
pub(crate) fn record(text: &str) -> anyhow::Result<()> {
    let earlier = fs::read_to_string(RESULTS).unwrap_or_default();
    let earlier = earlier.strip_prefix(RESULTS_HEADING).unwrap_or(&earlier);
    Ok(fs::write(
        RESULTS,
        format!("{RESULTS_HEADING}\n{text}{earlier}"),
    )?)
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
