//! Counts of calls, by adapter, template and gRPC code, recorded without locks.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
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

/// The codes of gRPC, by number.
const CODES: usize = 17;

/// The calls of one template to one adapter.
#[derive(Debug, Default)]
pub struct CallMetrics {
    codes: [AtomicU64; CODES],
    latency: Latency,
}

#[derive(Debug, Default)]
struct Latency {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl CallMetrics {
    /// Counts a call that ended.
    pub fn record(&self, code: Code, took: Duration) {
        self.codes[code as usize].fetch_add(1, Relaxed);
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.latency.buckets[bucket].fetch_add(1, Relaxed);
        self.latency.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How many calls ended with that code.
    pub fn count(&self, code: Code) -> u64 {
        self.codes[code as usize].load(Relaxed)
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

/// All calls, for the metrics page.
#[derive(Debug)]
pub struct Calls {
    /// Adapter (empty where a call reached none), template, counts.
    pub series: Vec<(&'static str, &'static str, Arc<CallMetrics>)>,
}

impl Collector for Calls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut calls = encoder.encode_descriptor(
            "adapter_calls",
            "Calls that ended, by adapter (empty where none was reached), template and gRPC code",
            None,
            MetricType::Counter,
        )?;
        for (adapter, template, metrics) in &self.series {
            for code in (0..CODES as i32).map(Code::from_i32) {
                let count = metrics.count(code);
                // Codes that never came up are left out, but for OK, which shows that the series exists.
                if count > 0 || code == Code::Ok {
                    let labels = [("adapter", *adapter), ("template", *template), ("code", code_name(code))];
                    ConstCounter::new(count).encode(calls.encode_family(&labels)?)?;
                }
            }
        }
        let mut events = encoder.encode_descriptor(
            "adapter_events",
            "What adapters count: things dropped, refused or failed, by adapter and event",
            None,
            MetricType::Counter,
        )?;
        for ((adapter, event), count) in &*EVENTS.lock().unwrap_or_else(PoisonError::into_inner) {
            let labels = [("adapter", *adapter), ("event", *event)];
            ConstCounter::new(count.count()).encode(events.encode_family(&labels)?)?;
        }
        let mut latency = encoder.encode_descriptor(
            "adapter_handle_duration",
            "Time from a decoded request to its answer",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (adapter, template, metrics) in &self.series {
            let labels = [("adapter", *adapter), ("template", *template)];
            (&metrics.latency).encode(latency.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// A code as gRPC writes it, `PERMISSION_DENIED`.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Counts something that an adapter wants to be seen on the metrics page: what it dropped, refused or could not fetch.
///
/// It is `adapter_events_total{adapter, event}`, one count a process however many handlers there are, so that it never
/// goes back when a handler closes. Ask for it once, when a handler is opened.
///
/// ```
/// let lost = mixer_adapter::metrics::events("stdio", "lines_lost");
/// lost.add(3);
/// assert_eq!(mixer_adapter::metrics::events("stdio", "lines_lost").count(), 3);
/// ```
pub fn events(adapter: &'static str, event: &'static str) -> Events {
    let mut known = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry((adapter, event)).or_default().clone()
}

/// A count of events; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<AtomicU64>);

impl Events {
    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

static EVENTS: Mutex<BTreeMap<(&'static str, &'static str), Events>> = Mutex::new(BTreeMap::new());
