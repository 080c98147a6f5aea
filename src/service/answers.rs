//! What the service answers, as domain types. How they look on the wire is not their business.

use jiff::Timestamp;

use super::declaration::{Declaration, DeclaredBy, FilterName};
use super::watermark::Watermark;
use crate::filter::bloom::Statistics;
use crate::filter::verdict::{Reason, Verdict};

/// The answer to a check of one item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CheckAnswer {
    /// What may be said of the item.
    pub verdict: Verdict,
    /// The probability that an absent item checks `maybe`; 1.0 when the filter may not answer.
    pub estimated_fp_rate: f64,
    /// Whether it was looked up, and settled.
    pub confirmed: bool,
}

/// The answer to a check of many items.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckBatchAnswer {
    /// One verdict an item, in the order of the request.
    pub verdicts: Vec<Verdict>,
    /// Why the filter could not answer at all: never `match`.
    pub reason: Option<Reason>,
    /// As in [`CheckAnswer`].
    pub estimated_fp_rate: f64,
}

/// The answer to checks of several filters.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckManyAnswer {
    /// One answer a check, in the order of the request; there is at least one.
    pub answers: Vec<CheckAnswer>,
}

impl CheckManyAnswer {
    /// What may be said of all together: `definitely-not` only where it is said of each, else the
    /// first that is `maybe`.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let mut verdicts = self.answers.iter().map(|answer| answer.verdict);
        let doubt = verdicts.find(|verdict| *verdict != Verdict::DefinitelyNot);
        doubt.unwrap_or(Verdict::DefinitelyNot)
    }
}

/// For what an add waits before it is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wait {
    /// Until it is durable, and effective in this process.
    #[default]
    Local,
    /// Until it is effective in every process on the store as well.
    All,
}

/// The answer to an add: the items are durable and set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AddAnswer {
    /// The place of the add in the store.
    pub watermark: Watermark,
    /// Whether every process on the store that could still say `definitely-not` has the items; none
    /// where nobody waited for it.
    pub visible: Option<bool>,
    /// How many items were accepted.
    pub accepted: u64,
    /// The rate after the add.
    pub estimated_fp_rate: f64,
}

/// The answer to a removal: it is durable, and effective with the next generation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RemoveAnswer {
    /// Whether the store had the item.
    pub removed: bool,
    /// Whether a source has it, or cannot rule it out: then the filter has it again with each load.
    pub still_in_source: bool,
    /// The place of the removal in the store.
    pub watermark: Watermark,
}

/// How far a bulk load came; whatever is accepted is durable and set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BulkLoadAnswer {
    /// Items accepted.
    pub accepted: u64,
    /// Blank items that were passed over.
    pub blank: u64,
    /// The place of the last accepted item in the store.
    pub watermark: Watermark,
    /// The rate after the load.
    pub estimated_fp_rate: f64,
}

/// What a filter can do at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has never been complete since this process started.
    Loading,
    /// It may say `definitely-not`.
    Live,
    /// It was complete once and may have missed something since.
    Stale,
}

impl State {
    /// Every state, for metrics that show one of them.
    pub const ALL: [Self; 3] = [Self::Loading, Self::Live, Self::Stale];

    /// The name on the wire and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Live => "live",
            Self::Stale => "stale",
        }
    }
}

/// How far a load has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Rows taken so far.
    pub rows_done: u64,
    /// Rows that the cut holds.
    pub rows_expected: u64,
    /// What is being loaded: `store`, or `source` and its name.
    pub phase: String,
}

/// What is known of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceDescription {
    /// Its name.
    pub name: String,
    /// Whether it was loaded, and within its bound.
    pub state: State,
    /// Rows of the last complete load, blank and expired ones included.
    pub rows_loaded: u64,
    /// NULL and blank rows among them.
    pub rows_blank: u64,
    /// Rows that took a fallback, such as what is no address.
    pub rows_odd: u64,
    /// Rows past their expiry and the leeway: not in the filter.
    pub rows_expired: u64,
    /// How long the last complete load took.
    pub load_seconds: f64,
    /// The moment that the last complete load stands for.
    pub as_of: Option<Timestamp>,
    /// Why the latest attempt failed, or why it cannot be asked for one item though it should.
    pub error: Option<String>,
}

/// Everything that is known of a filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Its name.
    pub filter: FilterName,
    /// What it can do at the moment.
    pub state: State,
    /// As declared.
    pub declaration: Declaration,
    /// Who declared it.
    pub declared_by: DeclaredBy,
    /// Measured from the bits. Before the first bit is allocated: those of an empty filter.
    pub statistics: Statistics,
    /// The share of the matches that were looked up and were false; none before the first.
    pub measured_fp_rate: Option<f64>,
    /// Items that the bits are sized for: as declared, or more where the filter has grown.
    pub capacity: u64,
    /// Bytes of the bits.
    pub memory_bytes: u64,
    /// Whether the bits estimate more items than the filter is sized for.
    pub over_capacity: bool,
    /// Counts the generations since this process started.
    pub generation: u64,
    /// The moment up to which the filter has followed its store.
    pub as_of: Option<Timestamp>,
    /// How long ago that is, in seconds, by whichever clock says more.
    pub staleness_seconds: Option<f64>,
    /// Its sources.
    pub sources: Vec<SourceDescription>,
    /// The load that is under way.
    pub progress: Option<Progress>,
    /// What an operator should know: why it must not answer, or why a rebuild that is due did not
    /// begin.
    pub problem: Option<String>,
}

/// What a rebuild that was asked for finds.
#[derive(Debug, Clone, PartialEq)]
pub struct RebuildAnswer {
    /// What the filter can do meanwhile.
    pub state: State,
    /// How far the building has come.
    pub progress: Progress,
}

/// What a PUT did.
#[derive(Debug, Clone, PartialEq)]
pub enum PutOutcome {
    /// The filter was made.
    Made(Description),
    /// It was there, declared the same.
    SameAlready(Description),
}

/// Whether traffic should come, and the state of each filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// Every filter was complete once, and the process is not draining.
    pub ready: bool,
    /// Each filter's state, by name.
    pub filters: Vec<(FilterName, State)>,
}
