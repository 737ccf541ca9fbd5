//! Metrics of calls by gRPC code, recorded without locks.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use mixer_adapter_core::framework::{log_limit::FailureLogLimit, log_text::log_text};
use parking_lot::Mutex;
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
    last_failure: Mutex<Option<CallFailure>>,
    /// Limits the lines about failed calls.
    pub(crate) failure_log: FailureLogLimit,
}

/// The reason that a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallFailure {
    /// The code.
    pub code: Code,
    /// The first KiB of the message.
    pub message: String,
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

    /// Remembers why a call failed.
    pub fn set_last_failure(&self, code: Code, message: impl fmt::Display) {
        // Another failure at the same time is as good.
        if let Some(mut last) = self.last_failure.try_lock() {
            *last = Some(CallFailure { code, message: log_text(message) });
        }
    }

    /// Returns why the last failed call failed; `None` if none did.
    pub fn last_failure(&self) -> Option<CallFailure> {
        self.last_failure.lock().clone()
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
        let count: u64 = self.counts().0.iter().sum();
        self.nanos.load(Relaxed).checked_div(count).map(Duration::from_nanos)
    }

    /// Returns the number of durations in each bucket.
    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts(self.buckets.each_ref().map(|bucket| bucket.load(Relaxed)))
    }
}

/// The durations of a [`Latency`] at a time, or between two times.
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencyCounts([u64; BOUNDS.len() + 1]);

impl LatencyCounts {
    /// Returns the durations since an earlier time.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.0;
        counts.iter_mut().zip(earlier.0).for_each(|(count, earlier)| *count = count.saturating_sub(earlier));
        Self(counts)
    }

    /// Estimates a quantile from 0 to 1 within its bucket; `None` without durations. Durations over 5 s count as 5 s.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let count: u64 = self.0.iter().sum();
        let rank = quantile * count as f64;
        let (mut before, mut lower) = (0.0, 0.0);
        for (count, upper) in self.0.iter().zip(BOUNDS) {
            let within = *count as f64;
            if within > 0.0 && before + within >= rank {
                return Some(Duration::from_secs_f64(lower + (upper - lower) * (rank - before) / within));
            }
            (before, lower) = (before + within, upper);
        }
        (count > 0).then(|| Duration::from_secs_f64(lower))
    }
}

impl EncodeMetric for &Latency {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let LatencyCounts(counts) = self.counts();
        let bounds = BOUNDS.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let sum = Duration::from_nanos(self.nanos.load(Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_estimated_within_its_bucket() {
        let latency = Latency::default();
        assert_eq!(latency.counts().quantile(0.5), None);
        (0..10).for_each(|_| latency.record(Duration::from_micros(200)));
        let earlier = latency.counts();
        // In the bucket from 100 to 250 µs.
        assert_eq!(earlier.quantile(0.5), Some(Duration::from_micros(175)));
        latency.record(Duration::from_secs(60));
        assert_eq!(latency.counts().since(&earlier).quantile(0.5), Some(Duration::from_secs(5)));
        assert_eq!(latency.counts().since(&latency.counts()).quantile(0.5), None);
    }
}
