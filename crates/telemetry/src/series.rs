//! The series of a metric. Not from a crate: prometheus and prometheus-client neither expire series nor round sums as the Go client does.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of series of a metric. Updates that would create more are dropped and counted, so that a label with an
/// unbounded number of values does not exhaust the memory.
pub const MAX_SERIES: usize = 10_000;

/// The maximum number of buckets; each takes a counter in every series.
pub const MAX_BUCKETS: usize = 1_000;

/// The default bounds of buckets, as in the Go client of Prometheus.
pub const DEFAULT_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The bytes of a series without its labels and buckets.
const SERIES_BYTES: usize = size_of::<(Arc<str>, Series)>() + 4 * size_of::<usize>();

/// Whole increments of this size and above are added like fractions.
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// The type of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// The last value.
    Gauge,
    /// The sum of the values.
    Counter,
    /// The values by size, with the upper bounds of the buckets, without the last one, which is infinite.
    Distribution(Vec<f64>),
}

// Bounds are numbers.
impl Eq for Kind {}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        mem::discriminant(self).hash(state);
        if let Self::Distribution(bounds) = self {
            // A negative zero equals zero.
            bounds.iter().for_each(|bound| (bound + 0.0).to_bits().hash(state));
        }
    }
}

impl Kind {
    /// Returns the memory of the buckets of a series in bytes.
    fn bucket_bytes(&self) -> usize {
        match self {
            Self::Distribution(bounds) => (bounds.len() + 1) * size_of::<u64>(),
            Self::Counter | Self::Gauge => 0,
        }
    }
}

/// Bounds of buckets that are not valid.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum BoundsError {
    /// More than [`MAX_BUCKETS`].
    #[error("{0} bounds are more than {MAX_BUCKETS}")]
    TooMany(usize),
    /// A bound that no value can be compared with.
    #[error("a bound is infinite or not a number")]
    NotFinite,
    /// Two bounds in the wrong order.
    #[error("bounds must ascend, and {0} comes before {1}")]
    Order(f64, f64),
}

/// Checks the upper bounds of buckets, and removes an infinite last one, which is implied.
///
/// # Errors
/// Bounds that are too many, not finite, or not in ascending order.
pub fn check_bounds(mut bounds: Vec<f64>) -> Result<Vec<f64>, BoundsError> {
    if bounds.last() == Some(&f64::INFINITY) {
        bounds.pop();
    }
    if bounds.len() > MAX_BUCKETS {
        return Err(BoundsError::TooMany(bounds.len()));
    }
    if !bounds.iter().all(|bound| bound.is_finite()) {
        return Err(BoundsError::NotFinite);
    }
    match bounds.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(BoundsError::Order(pair[0], pair[1])),
        None => Ok(bounds),
    }
}

/// The series of a metric by their labels, in a format of the adapter's.
#[derive(Debug)]
pub struct SeriesSet<L: ?Sized> {
    name: String,
    kind: Kind,
    max_series: usize,
    /// The bytes that further series may have, of all metrics together.
    free_bytes: Arc<Semaphore>,
    series: Mutex<HashMap<Arc<L>, Series>>,
    dropped: [AtomicU64; Dropped::ALL.len()],
}

#[derive(Debug)]
struct Series {
    sample: Sample,
    /// When it expires unless it is updated.
    expires: Option<Instant>,
    /// Its bytes.
    _bytes: OwnedSemaphorePermit,
}

/// The current value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Sample {
    /// The last value.
    Gauge(f64),
    /// Whole increments are added separately from others, as in the Go client, so that sums are rounded equally.
    Counter {
        /// The sum of whole increments.
        whole: u128,
        /// The sum of other increments.
        rest: f64,
    },
    /// The values by size.
    Distribution {
        /// One count per bucket, not cumulative; the infinite bucket is last.
        counts: Box<[u64]>,
        /// The sum of the values.
        sum: f64,
    },
}

/// The reason of a dropped update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The metric has the maximum number of series.
    SeriesLimit,
    /// The series of all metrics have the maximum size.
    LabelLimit,
    /// A counter would decrease.
    NegativeIncrement,
    /// A counter or a sum would become infinite or not a number.
    NotFinite,
}

/// An amount that a metric cannot record.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// A counter would decrease.
    #[error("the counter {metric} cannot grow by {amount}")]
    NegativeIncrement {
        /// The name of the metric.
        metric: String,
        /// The amount.
        amount: f64,
    },
    /// A counter or a sum would become infinite or not a number.
    #[error("{amount} would make {metric} infinite or not a number")]
    NotFinite {
        /// The name of the metric.
        metric: String,
        /// The amount.
        amount: f64,
    },
}

impl Dropped {
    /// All reasons, with their names in metrics.
    pub const ALL: [(Self, &str); 4] = [
        (Self::SeriesLimit, "series_limit"),
        (Self::LabelLimit, "label_limit"),
        (Self::NegativeIncrement, "negative_increment"),
        (Self::NotFinite, "not_finite"),
    ];
}

impl<L: ?Sized + Eq + Hash + Ord> SeriesSet<L>
where
    Arc<L>: for<'a> From<&'a L>,
{
    /// Creates a metric without series, which take their memory from `free_bytes`.
    pub fn new(name: String, kind: Kind, free_bytes: Arc<Semaphore>) -> Self {
        let (series, dropped) = (Mutex::default(), Default::default());
        Self { name, kind, max_series: MAX_SERIES, free_bytes, series, dropped }
    }

    /// Returns the name of the metric.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type of the metric.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the memory of the series in bytes.
    pub fn bytes(&self) -> usize {
        let series = self.series.lock();
        series.keys().map(|labels| self.series_bytes(labels)).sum()
    }

    fn series_bytes(&self, labels: &L) -> usize {
        SERIES_BYTES + size_of_val(labels) + self.kind.bucket_bytes()
    }

    /// Adds an amount to a series. If there are too many series, or their labels are too long, the amount is dropped and counted.
    ///
    /// # Errors
    /// An amount that the metric cannot have.
    pub fn record(&self, labels: &L, amount: f64, expires: Option<Instant>) -> Result<(), RecordError> {
        match self.kind {
            Kind::Counter if amount < 0.0 => {
                self.count(Dropped::NegativeIncrement);
                let metric = self.name.clone();
                return Err(RecordError::NegativeIncrement { metric, amount });
            }
            Kind::Counter | Kind::Distribution(_) if !amount.is_finite() => {
                self.count(Dropped::NotFinite);
                let metric = self.name.clone();
                return Err(RecordError::NotFinite { metric, amount });
            }
            Kind::Counter | Kind::Distribution(_) | Kind::Gauge => {}
        }
        let mut all = self.series.lock();
        if let Some(series) = all.get_mut(labels) {
            series.sample.record(&self.kind, amount);
            series.expires = expires;
        } else if all.len() >= self.max_series {
            drop(all);
            self.drop_series(Dropped::SeriesLimit, "too many series in a metric; more are dropped");
        } else if let Some(bytes) = self.take_bytes(labels) {
            let mut sample = Sample::zero(&self.kind);
            sample.record(&self.kind, amount);
            all.insert(labels.into(), Series { sample, expires, _bytes: bytes });
        } else {
            drop(all);
            let text = "the series of all metrics are too large; further ones are dropped";
            self.drop_series(Dropped::LabelLimit, text);
        }
        Ok(())
    }

    fn take_bytes(&self, labels: &L) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(self.series_bytes(labels)).ok()?;
        self.free_bytes.clone().try_acquire_many_owned(bytes).ok()
    }

    /// Counts an update that would create a series, and logs the first one.
    fn drop_series(&self, reason: Dropped, text: &'static str) {
        if self.count(reason) == 0 {
            tracing::warn!(metric = self.name, "{text}");
        }
    }

    /// Removes expired series.
    pub fn sweep(&self, now: Instant) {
        let mut all = self.series.lock();
        all.retain(|_, series| series.is_alive(now));
        if all.capacity() > 4 * all.len() + 64 {
            all.shrink_to_fit();
        }
    }

    /// Returns copies of the series that have not expired, ordered by labels, so that updates do not wait for a page.
    pub fn samples(&self, now: Instant) -> Vec<(Arc<L>, Sample)> {
        let all = self.series.lock();
        let alive = all.iter().filter(|(_, series)| series.is_alive(now));
        let mut samples: Vec<_> =
            alive.map(|(labels, series)| (labels.clone(), series.sample.clone())).collect();
        drop(all);
        samples.sort_by(|(a, _), (b, _)| a.cmp(b));
        samples
    }

    /// Removes and returns all series.
    pub fn take(&self) -> impl Iterator<Item = (Arc<L>, Sample)> {
        let taken = mem::take(&mut *self.series.lock());
        taken.into_iter().map(|(labels, series)| (labels, series.sample))
    }

    /// Returns the number of updates dropped for a reason.
    pub fn dropped(&self, reason: Dropped) -> u64 {
        self.dropped[reason as usize].load(Relaxed)
    }

    fn count(&self, reason: Dropped) -> u64 {
        self.dropped[reason as usize].fetch_add(1, Relaxed)
    }
}

impl Series {
    fn is_alive(&self, now: Instant) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

impl Sample {
    fn zero(kind: &Kind) -> Self {
        match kind {
            Kind::Gauge => Self::Gauge(0.0),
            Kind::Counter => Self::Counter { whole: 0, rest: 0.0 },
            Kind::Distribution(bounds) => {
                Self::Distribution { counts: vec![0; bounds.len() + 1].into(), sum: 0.0 }
            }
        }
    }

    fn record(&mut self, kind: &Kind, amount: f64) {
        match (self, kind) {
            (Self::Gauge(value), _) => *value = amount,
            (Self::Counter { whole, rest }, _) => {
                if amount < TWO_TO_64 && amount.fract() == 0.0 {
                    // Not negative and below 2^64, so the cast is exact.
                    *whole = whole.saturating_add(amount as u128)
                } else {
                    *rest += amount
                }
            }
            (Self::Distribution { counts, sum }, Kind::Distribution(bounds)) => {
                let bucket = bounds.partition_point(|bound| *bound < amount);
                if let Some(count) = counts.get_mut(bucket) {
                    *count += 1;
                }
                *sum += amount;
            }
            (Self::Distribution { .. }, Kind::Gauge | Kind::Counter) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    fn family(kind: Kind, max_series: usize) -> SeriesSet<str> {
        let free_bytes = Arc::new(Semaphore::new(1 << 20));
        SeriesSet { max_series, ..SeriesSet::new("m".to_owned(), kind, free_bytes) }
    }

    fn samples(family: &SeriesSet<str>, now: Instant) -> Vec<(String, Sample)> {
        family.samples(now).into_iter().map(|(labels, sample)| (labels.to_string(), sample)).collect()
    }

    #[test]
    fn counters_add_gauges_keep_the_last_and_distributions_count_by_size() {
        let now = Instant::now();
        for (kind, expected) in [
            (Kind::Counter, Sample::Counter { whole: 12, rest: 0.0 }),
            (Kind::Gauge, Sample::Gauge(5.0)),
            (
                Kind::Distribution(vec![2.0, 5.0]),
                Sample::Distribution { counts: [1, 1, 1].into(), sum: 12.0 },
            ),
        ] {
            let family = family(kind, 1);
            for amount in [1.0, 6.0, 5.0] {
                family.record("", amount, None).unwrap();
            }
            assert_eq!(samples(&family, now), [(String::new(), expected)]);
        }
    }

    #[test]
    fn series_too_many_are_dropped_and_counted_while_the_others_go_on() {
        let family = family(Kind::Counter, 2);
        for labels in ["1", "2", "3", "1", "4"] {
            family.record(labels, 1.0, None).unwrap();
        }
        let count = |whole| Sample::Counter { whole, rest: 0.0 };
        let series = [("1".to_owned(), count(2)), ("2".to_owned(), count(1))];
        assert_eq!(samples(&family, Instant::now()), series);
        assert_eq!(family.dropped(Dropped::SeriesLimit), 2);
    }

    #[test]
    fn series_beyond_the_size_for_all_metrics_are_dropped_until_series_end() {
        let free = 2 * SERIES_BYTES + 5;
        let free_bytes = Arc::new(Semaphore::new(free));
        let family = |name: &str| SeriesSet::new(name.to_owned(), Kind::Counter, free_bytes.clone());
        let (first, second) = (family("first"), family("second"));
        let now = Instant::now();
        for labels in ["abc", "abc", "def"] {
            first.record(labels, 1.0, Some(now)).unwrap();
        }
        assert_eq!(first.dropped(Dropped::LabelLimit), 1);
        for labels in ["ab", "c"] {
            second.record(labels, 1.0, None).unwrap();
        }
        assert_eq!(second.dropped(Dropped::LabelLimit), 1);
        first.sweep(now);
        second.record("cde", 1.0, None).unwrap();
        let labels: Vec<_> = samples(&second, now).into_iter().map(|(labels, _)| labels).collect();
        assert_eq!(labels, ["ab", "cde"]);
        drop(second);
        assert_eq!(free_bytes.available_permits(), free);
    }

    #[test]
    fn buckets_count_with_the_labels() {
        let free_bytes = Arc::new(Semaphore::new(2 * SERIES_BYTES + 40));
        let kind = Kind::Distribution(vec![1.0, 2.0]);
        let family = SeriesSet::new("m".to_owned(), kind, free_bytes.clone());
        for labels in ["a", "b"] {
            family.record(labels, 1.0, None).unwrap();
        }
        assert_eq!(
            (family.dropped(Dropped::LabelLimit), free_bytes.available_permits()),
            (1, SERIES_BYTES + 15)
        );
    }

    // The original's counter starts at 0 again beyond 2^64.
    #[test]
    fn counters_go_on_beyond_2_to_the_64() {
        let family = family(Kind::Counter, 1);
        for amount in [9_223_372_036_854_775_808.0, 9_223_372_036_854_775_808.0, 1e30, 0.5] {
            family.record("", amount, None).unwrap();
        }
        let expected = Sample::Counter { whole: 1 << 64, rest: 1e30 + 0.5 };
        assert_eq!(samples(&family, Instant::now()), [(String::new(), expected)]);
    }

    // The original panicked at a negative increment; docs/behaviour/adapters.md#defects-of-prometheus.
    #[test]
    fn what_would_spoil_a_series_is_refused_and_counted() {
        let counter = family(Kind::Counter, 1);
        assert_eq!(
            counter.record("", -3.0, None).unwrap_err().to_string(),
            "the counter m cannot grow by -3"
        );
        assert_eq!(
            counter.record("", f64::NAN, None).unwrap_err().to_string(),
            "NaN would make m infinite or not a number"
        );
        assert_eq!(counter.dropped(Dropped::NegativeIncrement), 1);
        assert_eq!(counter.dropped(Dropped::NotFinite), 1);
        assert_eq!(samples(&counter, Instant::now()), []);
        assert!(family(Kind::Distribution(vec![1.0]), 1).record("", f64::INFINITY, None).is_err());
        family(Kind::Distribution(vec![1.0]), 1).record("", -3.0, None).unwrap();
        family(Kind::Gauge, 1).record("", f64::NAN, None).unwrap();
    }

    // TestMetricExpiration, with explicit times.
    #[test]
    fn series_expire_unless_they_are_updated() {
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        let family = family(Kind::Counter, 9);
        family.record("never", 1.0, None).unwrap();
        family.record("stale", 1.0, Some(start + minute)).unwrap();
        family.record("updated", 1.0, Some(start + minute)).unwrap();
        family.record("updated", 1.0, Some(start + 2 * minute)).unwrap();
        let labels = |now| samples(&family, now).into_iter().map(|(labels, _)| labels).collect::<Vec<_>>();
        assert_eq!(labels(start), ["never", "stale", "updated"]);
        assert_eq!(labels(start + minute), ["never", "updated"]);
        family.sweep(start + minute);
        assert_eq!(labels(start), ["never", "updated"]);
        family.sweep(start + 2 * minute);
        assert_eq!(labels(start), ["never"]);
    }
}
