//! What is only known at the moment of a scrape: the filters as they are, and the process.
//!
//! These are written by a recorder that lives for one scrape. So what is gone from the service is
//! gone from the next scrape too; a gauge in the recorder of the process would stay for ever.

use metrics::gauge;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use super::Metric;

/// A filter at the moment of a scrape.
#[derive(Debug, Clone)]
pub struct FilterGauges {
    /// Its name.
    pub filter: String,
    /// Items that it is sized for.
    pub capacity: u64,
    /// Bits.
    pub bits: u64,
    /// Bits that are set.
    pub ones: u64,
    /// Bytes of the bits.
    pub memory_bytes: u64,
    /// The part of the bits that is set.
    pub fill_ratio: f64,
    /// The rate that the bits give.
    pub estimated_fp_ratio: f64,
    /// The share of the matches that were looked up and were false; none before the first.
    pub measured_fp_ratio: Option<f64>,
    /// The number of items that the bits give.
    pub estimated_cardinality: u64,
    /// Whether that is more than the capacity.
    pub over_capacity: bool,
    /// Every state and whether it is the one.
    pub states: Vec<(&'static str, bool)>,
    /// Seconds since it followed its store; none before the first time.
    pub staleness_seconds: Option<f64>,
}

impl FilterGauges {
    #[expect(clippy::cast_precision_loss, reason = "a gauge is an f64")]
    fn record(&self) {
        let values = [
            (Metric::FilterCapacity, self.capacity as f64),
            (Metric::FilterBits, self.bits as f64),
            (Metric::FilterOnes, self.ones as f64),
            (Metric::FilterMemoryBytes, self.memory_bytes as f64),
            (Metric::FilterFillRatio, self.fill_ratio),
            (Metric::FilterEstimatedFpRatio, self.estimated_fp_ratio),
            (
                Metric::FilterEstimatedCardinality,
                self.estimated_cardinality as f64,
            ),
            (
                Metric::FilterOverCapacity,
                f64::from(u8::from(self.over_capacity)),
            ),
        ];
        let staleness = self.staleness_seconds;
        let staleness = staleness.map(|seconds| (Metric::FilterStalenessSeconds, seconds));
        let measured = self.measured_fp_ratio;
        let measured = measured.map(|ratio| (Metric::FilterMeasuredFpRatio, ratio));
        for (metric, value) in values.into_iter().chain(staleness).chain(measured) {
            gauge!(metric.name(), "filter" => self.filter.clone()).set(value);
        }
        for (state, is_this) in &self.states {
            gauge!(Metric::FilterState.name(), "filter" => self.filter.clone(), "state" => *state)
                .set(f64::from(u8::from(*is_this)));
        }
    }
}

/// Everything that the process tells, in the text format of Prometheus.
#[must_use]
pub fn render(of_the_process: &PrometheusHandle, filters: &[FilterGauges]) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || record(filters));
    let mut text = of_the_process.render();
    text.push_str(&recorder.handle().render());
    text
}

fn record(filters: &[FilterGauges]) {
    let process = metrics_process::Collector::default();
    process.describe();
    process.collect();
    for metric in Metric::ALL {
        metric.describe();
    }
    for filter in filters {
        filter.record();
    }
    let lags = filters.iter().filter_map(|filter| filter.staleness_seconds);
    if let Some(lag) = lags.reduce(f64::max) {
        gauge!(Metric::StoreLagSeconds.name()).set(lag);
    }
}
