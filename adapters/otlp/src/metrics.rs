//! Metrics, which are sums until they are sent.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::Arc,
    time::{Instant, SystemTime},
};

use mixer_adapter_core::metrics::Events;
use mixer_adapter_telemetry::{
    InstanceError,
    amount::amount,
    otlp::{
        Exporter, KeyValue,
        message::{Gauge, Histogram, HistogramDataPoint, Metric, MetricData, NumberDataPoint, Sum},
        unix_nanos,
    },
    series::{Dropped, Kind, Sample, SeriesSet},
};
use mixer_adapter_templates::metric;
use parking_lot::Mutex;
use prost::{Message, bytes::Bytes};
use tokio::sync::Semaphore;

use super::{attributes::Attributes, params::Temporality, settings::MetricSettings};

/// The maximum number of data points in a message.
const MAX_DATA_POINTS: usize = 500;
/// The size at which a message is complete, in bytes. A single data point may exceed it.
const MAX_BYTES: usize = 256 << 10;

/// The values of the protocol.
const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

/// The metrics of a handler, by their instances.
#[derive(Debug)]
pub(super) struct Metrics {
    metrics: HashMap<String, Recorder>,
    temporality: Temporality,
    /// The time from which the values count.
    since: Mutex<SystemTime>,
    /// Updates beyond the limits of series.
    dropped: Events,
    /// How many of them are counted.
    counted: Mutex<u64>,
}

#[derive(Debug)]
struct Recorder {
    description: String,
    unit: String,
    /// By encoded [`Labels`].
    series: SeriesSet<[u8]>,
}

/// The labels of a series.
#[derive(Clone, PartialEq, Message)]
struct Labels {
    /// Encoded.
    #[prost(bytes = "bytes", tag = "1")]
    resource: Bytes,
    #[prost(message, repeated, tag = "2")]
    attributes: Vec<KeyValue>,
}

impl Metrics {
    /// Creates the metrics, whose series have at most `max_bytes`. Updates beyond that count in `dropped`.
    pub(super) fn new(
        settings: Vec<MetricSettings>,
        temporality: Temporality,
        max_bytes: usize,
        dropped: Events,
    ) -> Self {
        let free_bytes = Arc::new(Semaphore::new(max_bytes));
        let recorder = |metric: MetricSettings| {
            let MetricSettings { instance, name, description, unit, kind } = metric;
            let series = SeriesSet::new(name, kind, free_bytes.clone());
            (instance, Recorder { description, unit, series })
        };
        let metrics = settings.into_iter().map(recorder).collect();
        Self {
            metrics,
            temporality,
            since: Mutex::new(SystemTime::now()),
            dropped,
            counted: Mutex::default(),
        }
    }

    /// Adds the value of an instance to its metric.
    pub(super) fn record(
        &self,
        instance: &metric::InstanceMsg,
        attributes: &Attributes,
    ) -> Result<(), InstanceError> {
        let Some(recorder) = self.metrics.get(&instance.name) else {
            return Err(InstanceError::NoMetric(instance.name.clone()));
        };
        let amount = amount(instance.value.as_ref())
            .map_err(|source| InstanceError::Value { instance: instance.name.clone(), source })?;
        let monitored = (&*instance.monitored_resource_type, &instance.monitored_resource_dimensions);
        let (resource, attributes) = attributes.split(&instance.dimensions, monitored);
        let labels = Labels { resource, attributes }.encode_to_vec();
        recorder
            .series
            .record(&labels, amount, None)
            .map_err(|source| InstanceError::Record { instance: instance.name.clone(), source })
    }

    /// Sends the values.
    pub(super) fn export(&self, exporter: &Exporter) {
        let now = SystemTime::now();
        let since = match self.temporality {
            Temporality::Cumulative => *self.since.lock(),
            Temporality::Delta => mem::replace(&mut *self.since.lock(), now),
        };
        self.count_dropped();
        for recorder in self.metrics.values() {
            let mut resources: BTreeMap<Bytes, Vec<DataPoint>> = BTreeMap::new();
            let samples = match self.temporality {
                Temporality::Cumulative => recorder.series.samples(Instant::now()),
                Temporality::Delta => recorder.series.take().collect(),
            };
            for (labels, sample) in samples {
                // Encoded by `record`.
                let Labels { resource, attributes } = Labels::decode(&*labels).unwrap_or_default();
                let bytes = labels.len() + recorder.sample_bytes();
                resources.entry(resource).or_default().push(DataPoint { attributes, sample, bytes });
            }
            for (resource, points) in resources {
                for points in messages(&points) {
                    let metric = recorder.metric(points, self.temporality, since, now);
                    exporter.add(resource.clone(), &metric, points.len());
                }
            }
        }
    }

    fn count_dropped(&self) {
        let of_series = |series: &SeriesSet<[u8]>| {
            series.dropped(Dropped::SeriesLimit) + series.dropped(Dropped::LabelLimit)
        };
        let dropped = self.metrics.values().map(|recorder| of_series(&recorder.series)).sum();
        let counted = mem::replace(&mut *self.counted.lock(), dropped);
        self.dropped.add(dropped.saturating_sub(counted));
    }
}

/// The value of a series, with the size of its encoded form at most.
struct DataPoint {
    attributes: Vec<KeyValue>,
    sample: Sample,
    bytes: usize,
}

/// Splits data points into messages.
fn messages(points: &[DataPoint]) -> impl Iterator<Item = &[DataPoint]> {
    let (mut count, mut bytes) = (0, 0);
    points.chunk_by(move |one, _| {
        (count, bytes) = (count + 1, bytes + one.bytes);
        let fits = count < MAX_DATA_POINTS && bytes < MAX_BYTES;
        if !fits {
            (count, bytes) = (0, 0);
        }
        fits
    })
}

impl Recorder {
    /// Returns the size of a data point besides its labels.
    fn sample_bytes(&self) -> usize {
        const NUMBERS: usize = 64;
        match self.series.kind() {
            Kind::Gauge | Kind::Counter => NUMBERS,
            Kind::Distribution(bounds) => NUMBERS + 16 * (bounds.len() + 1),
        }
    }

    fn metric(
        &self,
        points: &[DataPoint],
        temporality: Temporality,
        since: SystemTime,
        now: SystemTime,
    ) -> Metric {
        let (start_time_unix_nano, time_unix_nano) = (unix_nanos(since), unix_nanos(now));
        let aggregation_temporality = match temporality {
            Temporality::Cumulative => CUMULATIVE,
            Temporality::Delta => DELTA,
        };
        let numbers = points.iter().map(|DataPoint { attributes, sample, .. }| NumberDataPoint {
            start_time_unix_nano,
            time_unix_nano,
            as_double: match sample {
                Sample::Gauge(value) => Some(*value),
                Sample::Counter { whole, rest } => Some(*whole as f64 + rest),
                Sample::Distribution { .. } => None,
            },
            attributes: attributes.clone(),
        });
        let data = match self.series.kind() {
            Kind::Gauge => MetricData::Gauge(Gauge { data_points: numbers.collect() }),
            Kind::Counter => {
                let data_points = numbers.collect();
                MetricData::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true })
            }
            Kind::Distribution(bounds) => {
                let data_points = points.iter().filter_map(|DataPoint { attributes, sample, .. }| {
                    let Sample::Distribution { counts, sum } = sample else { return None };
                    Some(HistogramDataPoint {
                        start_time_unix_nano,
                        time_unix_nano,
                        count: counts.iter().sum(),
                        sum: Some(*sum),
                        bucket_counts: counts.to_vec(),
                        explicit_bounds: bounds.clone(),
                        attributes: attributes.clone(),
                    })
                });
                let data_points = data_points.collect();
                MetricData::Histogram(Histogram { data_points, aggregation_temporality })
            }
        };
        Metric {
            name: self.series.name().to_owned(),
            description: self.description.clone(),
            unit: self.unit.clone(),
            data: Some(data),
        }
    }
}
