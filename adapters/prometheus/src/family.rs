//! A metric with its series. Not from a crate: prometheus and prometheus-client neither expire series nor round sums as the Go
//! client does.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use parking_lot::Mutex;

use mixer_adapter_core::{retention::Retain, value::Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::definition::{Definition, Kind};

/// The maximum number of series of a metric. Updates that would create more are dropped and counted, so that a label with an
/// unbounded number of values does not exhaust the memory.
const SERIES: usize = 10_000;

/// The maximum size of the series of all metrics in bytes. A label may have any length, and a distribution many buckets.
pub(super) const LABEL_BYTES: usize = 32 << 20;

/// The bytes of a series without its labels and buckets.
const SERIES_BYTES: usize = size_of::<(Arc<str>, Series)>() + 4 * size_of::<usize>();

/// Whole increments of this size and above are added like fractions.
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// A metric, shared by the handlers that update it.
#[derive(Debug)]
pub(super) struct Family {
    definition: Definition,
    most: usize,
    /// The bytes that further series may have, of all metrics together.
    free_bytes: Arc<Semaphore>,
    /// By the labels in the format of the page.
    series: Mutex<HashMap<Arc<str>, Series>>,
    dropped: [AtomicU64; Dropped::ALL.len()],
    help: Mutex<String>,
}

impl Retain for Family {
    fn bytes(&self) -> usize {
        let buckets = self.definition.kind.bucket_bytes();
        let series = self.series.lock();
        if series.is_empty() {
            0
        } else {
            let entries = series.len() * (SERIES_BYTES + buckets);
            size_of::<Self>() + entries + series.keys().map(|labels| labels.len()).sum::<usize>()
        }
    }
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
pub(super) enum Sample {
    Gauge(f64),
    /// Whole increments are added separately from others, as in the Go client, so that sums are rounded equally.
    Counter {
        whole: u128,
        rest: f64,
    },
    Distribution {
        /// One count per bucket, not cumulative; the infinite bucket is last.
        counts: Box<[u64]>,
        sum: f64,
    },
}

/// The reason of a dropped update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
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
pub(super) enum RecordError {
    #[error("the counter {metric} cannot grow by {amount}")]
    NegativeIncrement { metric: String, amount: f64 },
    #[error("{amount} would make {metric} infinite or not a number")]
    NotFinite { metric: String, amount: f64 },
}

impl Dropped {
    pub(super) const ALL: [(Self, &str); 4] = [
        (Self::SeriesLimit, "series_limit"),
        (Self::LabelLimit, "label_limit"),
        (Self::NegativeIncrement, "negative_increment"),
        (Self::NotFinite, "not_finite"),
    ];
}

impl Family {
    pub(super) fn new(definition: Definition, free_bytes: Arc<Semaphore>) -> Self {
        Self::bounded(definition, SERIES, free_bytes)
    }

    fn bounded(definition: Definition, most: usize, free_bytes: Arc<Semaphore>) -> Self {
        Self {
            definition,
            most,
            free_bytes,
            series: Mutex::default(),
            dropped: Default::default(),
            help: Mutex::default(),
        }
    }

    pub(super) fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Sets the help text. The handler that was opened last determines it.
    pub(super) fn set_help(&self, help: String) {
        *self.help.lock() = help;
    }

    pub(super) fn help(&self) -> String {
        self.help.lock().clone()
    }

    /// Adds an amount to the series with labels in the format of [`write_labels`]. If there are too many series, or
    /// their labels are too long, the amount is dropped and counted.
    pub(super) fn record(
        &self,
        labels: &str,
        amount: f64,
        expires: Option<Instant>,
    ) -> Result<(), RecordError> {
        match self.definition.kind {
            Kind::Counter if amount < 0.0 => {
                self.count(Dropped::NegativeIncrement);
                let metric = self.definition.name.clone();
                return Err(RecordError::NegativeIncrement { metric, amount });
            }
            Kind::Counter | Kind::Distribution(_) if !amount.is_finite() => {
                self.count(Dropped::NotFinite);
                let metric = self.definition.name.clone();
                return Err(RecordError::NotFinite { metric, amount });
            }
            Kind::Counter | Kind::Distribution(_) | Kind::Gauge => {}
        }
        let mut all = self.series.lock();
        if let Some(series) = all.get_mut(labels) {
            series.sample.record(&self.definition.kind, amount);
            series.expires = expires;
        } else if all.len() >= self.most {
            drop(all);
            self.drop_series(
                Dropped::SeriesLimit,
                self.most,
                "too many series in a metric; more are dropped",
            );
        } else if let Some(bytes) = self.take_bytes(labels) {
            let mut sample = Sample::zero(&self.definition.kind);
            sample.record(&self.definition.kind, amount);
            all.insert(labels.into(), Series { sample, expires, _bytes: bytes });
        } else {
            drop(all);
            let text = "the series of all metrics are too large; further ones are dropped";
            self.drop_series(Dropped::LabelLimit, LABEL_BYTES, text);
        }
        Ok(())
    }

    fn take_bytes(&self, labels: &str) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(SERIES_BYTES + labels.len() + self.definition.kind.bucket_bytes()).ok()?;
        self.free_bytes.clone().try_acquire_many_owned(bytes).ok()
    }

    /// Counts an update that would create a series, and logs the first one.
    fn drop_series(&self, reason: Dropped, limit: usize, text: &'static str) {
        if self.count(reason) == 0 {
            tracing::warn!(metric = self.definition.name, limit, "{text}");
        }
    }

    /// Removes expired series.
    pub(super) fn sweep(&self, now: Instant) {
        let mut all = self.series.lock();
        all.retain(|_, series| series.is_alive(now));
        if all.capacity() > 4 * all.len() + 64 {
            all.shrink_to_fit();
        }
    }

    /// Returns copies of the series that have not expired, ordered by labels, so that updates do not wait for a page.
    pub(super) fn samples(&self, now: Instant) -> Vec<(Arc<str>, Sample)> {
        let all = self.series.lock();
        let alive = all.iter().filter(|(_, series)| series.is_alive(now));
        let mut samples: Vec<_> =
            alive.map(|(labels, series)| (labels.clone(), series.sample.clone())).collect();
        drop(all);
        samples.sort_by(|(a, _), (b, _)| a.cmp(b));
        samples
    }

    /// Returns the number of updates dropped for a reason.
    pub(super) fn dropped(&self, reason: Dropped) -> u64 {
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

/// Writes labels in the format of the page, `a="x",b="y"`. A missing dimension is an empty label, which Prometheus treats as
/// absent; dimensions without a label are ignored.
pub(super) fn write_labels<'a>(
    text: &mut String,
    labels: impl Iterator<Item = (&'a String, &'a String)>,
    dimensions: &BTreeMap<String, Value>,
) {
    for (label, dimension) in labels {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(label);
        text.push_str("=\"");
        if let Some(value) = dimensions.get(dimension) {
            // Writing to a String does not fail.
            let _ = write!(Escaped(text), "{value}");
        }
        text.push('"');
    }
}

/// Escapes text as in label values.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '\\' => self.0.push_str(r"\\"),
                '"' => self.0.push_str(r#"\""#),
                '\n' => self.0.push_str(r"\n"),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    fn family(kind: Kind, most: usize) -> Family {
        let labels = vec!["a".to_owned()];
        let free_bytes = Arc::new(Semaphore::new(LABEL_BYTES));
        Family::bounded(Definition { name: "m".to_owned(), kind, labels }, most, free_bytes)
    }

    fn samples(family: &Family, now: Instant) -> Vec<(String, Sample)> {
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
        let family = |name: &str| {
            let definition = Definition { name: name.to_owned(), kind: Kind::Counter, labels: Vec::new() };
            Family::new(definition, free_bytes.clone())
        };
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
        let family =
            Family::new(Definition { name: "m".to_owned(), kind, labels: Vec::new() }, free_bytes.clone());
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

    #[test]
    fn labels_are_written_escaped_and_empty_where_a_dimension_is_absent() {
        let dimensions: BTreeMap<String, Value> = [
            ("text", Value::from("a\"b\\c\nd")),
            ("bool", true.into()),
            ("other", 1.into()),
            ("nothing", Value::Unspecified),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let labels = ["bool", "missing", "nothing", "text"].map(str::to_owned);
        let mut text = String::new();
        write_labels(&mut text, labels.iter().zip(&labels), &dimensions);
        assert_eq!(text, r#"bool="true",missing="",nothing="",text="a\"b\\c\nd""#);
    }
}
