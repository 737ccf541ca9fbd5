//! Metrics of calls by gRPC code, recorded without locks.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use mixer_adapter_core::framework::log_limit::FailureLogLimit;
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};
use tonic::Code;

/// The upper bounds of the latency buckets, in seconds.
const BOUNDS: [f64; 14] =
    [0.000_025, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// The number of gRPC codes.
const CODES: usize = 17;

/// The calls of one template to one adapter.
#[derive(Debug, Default)]
pub struct CallMetrics {
    codes: [AtomicU64; CODES],
    latency: Latency,
    /// Limits the lines about failed calls.
    pub(crate) failure_log: FailureLogLimit,
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl CallMetrics {
    /// Records a call that ended.
    pub fn record(&self, code: Code, took: Duration) {
        self.codes[code as usize].fetch_add(1, Relaxed);
        self.latency.record(took);
    }

    /// The latency of all calls.
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    /// Returns the numbers of calls by code, without codes that no call ended with.
    pub fn codes(&self) -> impl Iterator<Item = (Code, u64)> {
        let counts = (0..CODES as i32).map(Code::from_i32).map(|code| (code, self.count(code)));
        counts.filter(|(_, count)| *count > 0)
    }

    /// Returns how many calls ended with a code.
    pub fn count(&self, code: Code) -> u64 {
        self.codes[code as usize].load(Relaxed)
    }
}

impl Latency {
    /// Records one duration.
    pub fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the mean of all durations; `None` if there was none.
    pub fn mean(&self) -> Option<Duration> {
        let count: u64 = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum();
        self.nanos.load(Relaxed).checked_div(count).map(Duration::from_nanos)
    }
}

impl EncodeMetric for &Latency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let bounds = BOUNDS.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
        let sum = Duration::from_nanos(self.nanos.load(Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
