//! Encodes metrics that are read at each scrape.

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

pub(super) type Encoded = Result<(), std::fmt::Error>;

/// Encodes a counter without labels.
pub(super) fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> Encoded {
    ConstCounter::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}

/// Encodes a counter with a series for each value of a label.
pub(super) fn counters<V: AsRef<str>>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    counts: impl IntoIterator<Item = (V, u64)>,
) -> Encoded {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, count) in counts {
        ConstCounter::new(count).encode(family.encode_family(&[(label, value.as_ref())])?)?;
    }
    Ok(())
}

/// Encodes a gauge without labels.
pub(super) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl EncodeGaugeValue,
) -> Encoded {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

/// Encodes a gauge with a series for each value of a label.
pub(super) fn gauges<V: AsRef<str>>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: impl IntoIterator<Item = (V, usize)>,
) -> Encoded {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (value, count) in values {
        ConstGauge::new(count as i64).encode(family.encode_family(&[(label, value.as_ref())])?)?;
    }
    Ok(())
}
