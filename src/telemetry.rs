//! What the process tells of itself: structured logs and metrics.
//!
//! Every name of a metric stands in [`Metric`], with its labels and its help text. A label is the
//! name of a filter, a source or a route, or one of a few words of ours; never anything that a
//! caller sent. This module knows verdicts and nothing else of bloomgate.

pub mod scrape;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::time::Duration;

use metrics::{Counter, Histogram, Unit, counter, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::filter::verdict::{Reason, Verdict};

/// How often recorded durations are gathered into their buckets.
pub const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// From 0.1 ms to 10 s: a check takes tenths of a millisecond, a load seconds.
const DURATION_BUCKETS_SECONDS: [f64; 16] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Every metric. [`Metric::help`] documents each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "their help texts document each")]
pub enum Metric {
    Checks,
    Adds,
    FilterCapacity,
    FilterBits,
    FilterOnes,
    FilterMemoryBytes,
    FilterFillRatio,
    FilterEstimatedFpRatio,
    FilterMeasuredFpRatio,
    FilterEstimatedCardinality,
    FilterOverCapacity,
    FilterState,
    FilterStalenessSeconds,
    LoadRows,
    LoadSeconds,
    StorePollSeconds,
    StoreLagSeconds,
    StoreErrors,
    Rebuilds,
    RequestDuration,
}

impl Metric {
    /// Every metric of ours; `process_*` come beside them.
    pub const ALL: [Self; 20] = [
        Self::Checks,
        Self::Adds,
        Self::FilterCapacity,
        Self::FilterBits,
        Self::FilterOnes,
        Self::FilterMemoryBytes,
        Self::FilterFillRatio,
        Self::FilterEstimatedFpRatio,
        Self::FilterMeasuredFpRatio,
        Self::FilterEstimatedCardinality,
        Self::FilterOverCapacity,
        Self::FilterState,
        Self::FilterStalenessSeconds,
        Self::LoadRows,
        Self::LoadSeconds,
        Self::StorePollSeconds,
        Self::StoreLagSeconds,
        Self::StoreErrors,
        Self::Rebuilds,
        Self::RequestDuration,
    ];

    /// Its name, and its labels in the comment beside it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checks => "bloomgate_checks_total", // filter, verdict, reason
            Self::Adds => "bloomgate_adds_total",     // filter, road
            Self::FilterCapacity => "bloomgate_filter_capacity", // filter
            Self::FilterBits => "bloomgate_filter_bits", // filter
            Self::FilterOnes => "bloomgate_filter_ones", // filter
            Self::FilterMemoryBytes => "bloomgate_filter_memory_bytes", // filter
            Self::FilterFillRatio => "bloomgate_filter_fill_ratio", // filter
            Self::FilterEstimatedFpRatio => "bloomgate_filter_estimated_fp_ratio", // filter
            Self::FilterMeasuredFpRatio => "bloomgate_filter_measured_fp_ratio", // filter
            Self::FilterEstimatedCardinality => "bloomgate_filter_estimated_cardinality", // filter
            Self::FilterOverCapacity => "bloomgate_filter_over_capacity", // filter
            Self::FilterState => "bloomgate_filter_state", // filter, state
            Self::FilterStalenessSeconds => "bloomgate_filter_staleness_seconds", // filter
            Self::LoadRows => "bloomgate_load_rows",  // filter, source
            Self::LoadSeconds => "bloomgate_load_seconds", // filter, source
            Self::StorePollSeconds => "bloomgate_store_poll_seconds",
            Self::StoreLagSeconds => "bloomgate_store_lag_seconds",
            Self::StoreErrors => "bloomgate_store_errors_total",
            Self::Rebuilds => "bloomgate_rebuilds_total", // filter, cause, outcome
            // http_request_method, http_route, http_response_status_code
            Self::RequestDuration => "http_server_request_duration_seconds",
        }
    }

    /// What it says, for whoever reads `/metrics`.
    #[must_use]
    pub const fn help(self) -> &'static str {
        match self {
            Self::Checks => "Items checked, by what was said of them and why.",
            Self::Adds => "Items acknowledged, by the operation that brought them.",
            Self::FilterCapacity => "Items that the filter is sized for.",
            Self::FilterBits => "Bits of the filter.",
            Self::FilterOnes => "Bits that are set.",
            Self::FilterMemoryBytes => "Bytes of the bits.",
            Self::FilterFillRatio => "The part of the bits that is set.",
            Self::FilterEstimatedFpRatio => {
                "How probably an absent item checks maybe, from the bits that are set."
            }
            Self::FilterMeasuredFpRatio => {
                "The share of the matches that were looked up and were false; absent before the first."
            }
            Self::FilterEstimatedCardinality => {
                "How many different items are in, from the bits that are set."
            }
            Self::FilterOverCapacity => {
                "1 when more items are in than the filter is sized for, else 0."
            }
            Self::FilterState => "1 for the state that the filter is in, 0 for the others.",
            Self::FilterStalenessSeconds => {
                "Seconds since the filter last followed its store; absent before the first time."
            }
            Self::LoadRows => "Rows of the last complete load.",
            Self::LoadSeconds => "Seconds that the last complete load took.",
            Self::StorePollSeconds => "Seconds that the store took to answer a poll.",
            Self::StoreLagSeconds => {
                "Seconds since the store was last followed, by the filter for which that is longest ago."
            }
            Self::StoreErrors => "Failures of the store and of sources.",
            Self::Rebuilds => {
                "Rebuilds that took their place, or did not begin for want of memory."
            }
            Self::RequestDuration => "Seconds from a request's headers to its answer's.",
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Self::Checks | Self::Adds | Self::StoreErrors | Self::Rebuilds => Kind::Counter,
            Self::StorePollSeconds | Self::RequestDuration => Kind::Histogram,
            Self::FilterCapacity
            | Self::FilterBits
            | Self::FilterOnes
            | Self::FilterMemoryBytes
            | Self::FilterFillRatio
            | Self::FilterEstimatedFpRatio
            | Self::FilterMeasuredFpRatio
            | Self::FilterEstimatedCardinality
            | Self::FilterOverCapacity
            | Self::FilterState
            | Self::FilterStalenessSeconds
            | Self::LoadRows
            | Self::LoadSeconds
            | Self::StoreLagSeconds => Kind::Gauge,
        }
    }

    fn unit(self) -> Unit {
        if self.name().ends_with("_seconds") {
            Unit::Seconds
        } else if self.name().ends_with("_bytes") {
            Unit::Bytes
        } else {
            Unit::Count
        }
    }

    fn describe(self) {
        match self.kind() {
            Kind::Counter => metrics::describe_counter!(self.name(), self.unit(), self.help()),
            Kind::Gauge => metrics::describe_gauge!(self.name(), self.unit(), self.help()),
            Kind::Histogram => metrics::describe_histogram!(self.name(), self.unit(), self.help()),
        }
    }
}

/// This part of sqlx quotes a line of the password file that it cannot read.
const NEVER_LOGGED: &str = "sqlx_postgres::options::pgpass=off";

/// Sets logs up: JSON lines on stderr, or plain text when that is a terminal. `BLOOMGATE_LOG` or
/// `RUST_LOG` choose what is logged; `info` without them. Panics are logged as well.
///
/// # Errors
/// When logs were set up before in this process.
pub fn install_logs() -> Result<(), TryInitError> {
    let directives = ["BLOOMGATE_LOG", "RUST_LOG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let filter = EnvFilter::new(format!(
        "{},{NEVER_LOGGED}",
        directives.as_deref().unwrap_or("info")
    ));
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // It would complain on the same stream, and panic where that cannot be written: a log on a
        // full disk must not end what the log is about.
        .log_internal_errors(false);
    if std::io::stderr().is_terminal() {
        registry.with(layer).try_init()?;
    } else {
        registry.with(layer.json().flatten_event(true)).try_init()?;
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Says where a panic was, and what it said only where that is a text of the program's own: one
/// that was put together may quote an item, as that of a slice in the middle of a character does.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string);
    tracing::error!(
        location = location.as_deref().unwrap_or("unknown"),
        said = panic_message(panic.payload()),
        "panicked"
    );
}

fn panic_message(payload: &(dyn Any + Send)) -> &'static str {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .unwrap_or("not shown")
}

/// Installs the recorder of this process. To be called before any [`FilterMeters`] is made, for
/// a handle that was made earlier records nothing.
///
/// # Errors
/// When a recorder was installed before in this process.
pub fn install_metrics() -> Result<PrometheusHandle, BuildError> {
    let handle = recorder_builder()?.install_recorder()?;
    for metric in Metric::ALL {
        metric.describe();
    }
    counter!(Metric::StoreErrors.name()).increment(0);
    Ok(handle)
}

fn recorder_builder() -> Result<PrometheusBuilder, BuildError> {
    let durations = [Metric::RequestDuration, Metric::StorePollSeconds];
    durations
        .into_iter()
        .try_fold(PrometheusBuilder::new(), |builder, metric| {
            let matcher = Matcher::Full(metric.name().to_owned());
            builder.set_buckets_for_metric(matcher, &DURATION_BUCKETS_SECONDS)
        })
}

/// Gathers recorded durations until `stop`. Each request leaves some 20 bytes behind until its
/// duration is gathered, here or by a scrape: without this, memory grows with every request.
pub async fn keep_metrics_small(handle: PrometheusHandle, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(UPKEEP_INTERVAL) => handle.run_upkeep(),
        }
    }
}

/// By which road items came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Road {
    /// One at a time.
    Add,
    /// In a batch.
    AddBatch,
    /// In a stream.
    BulkLoad,
}

/// The counters of a filter, as handles: recording is one atomic addition.
pub struct FilterMeters {
    definitely_not: Counter,
    loading: Counter,
    stale: Counter,
    behind: Counter,
    matches: Counter,
    add: Counter,
    add_batch: Counter,
    bulk_load: Counter,
}

impl FilterMeters {
    /// The counters of the filter of that name.
    #[must_use]
    pub fn new(filter: &str) -> Self {
        let checks = |verdict: &'static str, reason: &'static str| {
            let filter = filter.to_owned();
            counter!(Metric::Checks.name(), "filter" => filter, "verdict" => verdict, "reason" => reason)
        };
        let adds = |road: &'static str| counter!(Metric::Adds.name(), "filter" => filter.to_owned(), "road" => road);
        Self {
            definitely_not: checks("definitely-not", ""),
            loading: checks("maybe", "loading"),
            stale: checks("maybe", "stale"),
            behind: checks("maybe", "behind"),
            matches: checks("maybe", "match"),
            add: adds("add"),
            add_batch: adds("add-batch"),
            bulk_load: adds("bulk-load"),
        }
    }

    /// One item was checked.
    pub fn checked(&self, verdict: Verdict) {
        self.checked_many(verdict, 1);
    }

    /// So many items were checked and got the same verdict.
    pub fn checked_many(&self, verdict: Verdict, items: u64) {
        let counter = match verdict {
            Verdict::DefinitelyNot => &self.definitely_not,
            Verdict::Maybe(Reason::Loading) => &self.loading,
            Verdict::Maybe(Reason::Stale) => &self.stale,
            Verdict::Maybe(Reason::Behind) => &self.behind,
            Verdict::Maybe(Reason::Match) => &self.matches,
        };
        counter.increment(items);
    }

    /// So many items were acknowledged.
    pub fn added(&self, road: Road, items: u64) {
        let counter = match road {
            Road::Add => &self.add,
            Road::AddBatch => &self.add_batch,
            Road::BulkLoad => &self.bulk_load,
        };
        counter.increment(items);
    }
}

/// A load is complete. `source` is the source's name, or `store`.
#[expect(clippy::cast_precision_loss, reason = "a gauge is an f64")]
pub fn record_load(filter: &str, source: &str, rows: u64, seconds: f64) {
    let labels = [("filter", filter.to_owned()), ("source", source.to_owned())];
    gauge!(Metric::LoadRows.name(), &labels).set(rows as f64);
    gauge!(Metric::LoadSeconds.name(), &labels).set(seconds);
}

/// Why a filter is rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebuildCause {
    /// It was time.
    Schedule,
    /// More items are in than it is sized for.
    Growth,
    /// Too much of what is in has expired or was removed.
    Forgotten,
    /// Somebody asked for it.
    Operator,
}

impl RebuildCause {
    /// The name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Growth => "growth",
            Self::Forgotten => "forgotten",
            Self::Operator => "operator",
        }
    }
}

/// How a rebuild ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebuildOutcome {
    /// The new generation has taken its place.
    Done,
    /// There was no memory for it.
    Refused,
}

/// A rebuild has ended.
pub fn record_rebuild(filter: &str, cause: RebuildCause, outcome: RebuildOutcome) {
    let outcome = match outcome {
        RebuildOutcome::Done => "done",
        RebuildOutcome::Refused => "refused",
    };
    counter!(
        Metric::Rebuilds.name(),
        "filter" => filter.to_owned(),
        "cause" => cause.as_str(),
        "outcome" => outcome,
    )
    .increment(1);
}

/// The store has answered a poll.
pub fn record_poll(seconds: f64) {
    histogram!(Metric::StorePollSeconds.name()).record(seconds);
}

/// The store or a source has failed.
pub fn record_store_error() {
    counter!(Metric::StoreErrors.name()).increment(1);
}

/// The durations of requests with these labels, as a handle to keep.
pub fn request_duration(method: &'static str, route: &str, status: u16) -> Histogram {
    histogram!(
        Metric::RequestDuration.name(),
        "http_request_method" => method,
        "http_route" => route.to_owned(),
        "http_response_status_code" => status.to_string(),
    )
}
