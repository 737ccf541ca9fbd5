//! Metrics of calls by adapter, template and gRPC code, recorded without locks; names of these metrics.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use mixer_adapter_core::{
    framework::{log_limit::FailureLogLimit, status::status_name},
    metrics::event_counts,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, counter::ConstCounter},
    registry::Unit,
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

/// Exports the metrics of all calls and the events of adapters. Templates that were not called have no series.
#[derive(Debug)]
pub struct Calls {
    /// Adapter (empty for calls that reached none), template, metrics.
    pub series: Vec<(&'static str, &'static str, Arc<CallMetrics>)>,
}

impl Collector for Calls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut calls = encoder.encode_descriptor(
            "mixer_adapter_calls",
            "Calls that ended, by adapter (empty where none was reached), template and gRPC code",
            None,
            MetricType::Counter,
        )?;
        for (adapter, template, metrics) in &self.series {
            for (code, count) in metrics.codes() {
                let code = status_name(code as i32);
                let labels = [("adapter", *adapter), ("template", *template), ("code", &*code)];
                ConstCounter::new(count).encode(calls.encode_family(&labels)?)?;
            }
        }
        let mut events = encoder.encode_descriptor(
            "mixer_adapter_events",
            "What adapters count: things dropped, refused or failed, by adapter and event",
            None,
            MetricType::Counter,
        )?;
        for (adapter, event, count) in event_counts() {
            let labels = [("adapter", adapter), ("event", event)];
            ConstCounter::new(count).encode(events.encode_family(&labels)?)?;
        }
        let mut latency = encoder.encode_descriptor(
            "mixer_adapter_handle_duration",
            "Time from a decoded request to its answer",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (adapter, template, metrics) in &self.series {
            if metrics.codes().next().is_none() {
                continue;
            }
            let labels = [("adapter", *adapter), ("template", *template)];
            (&metrics.latency).encode(latency.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
