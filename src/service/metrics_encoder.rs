//! Families of metrics whose values are read at each scrape.

use std::{
    borrow::Cow,
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

pub(crate) type Encoded = Result<(), fmt::Error>;

/// A collector that encodes the families of one part of the program.
pub(crate) struct Scraped<F>(pub(crate) F);

impl<F> fmt::Debug for Scraped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scraped")
    }
}

impl<F: Fn(&mut Families<'_>) -> Encoded + Send + Sync + 'static> Collector for Scraped<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Encoded {
        self.0(&mut Families(encoder))
    }
}

/// The help of each metric: a line with its name and the help.
const HELP: &str = include_str!("metrics.txt");

fn help_of(name: &str) -> &'static str {
    let mut helps = HELP.lines().filter_map(|line| line.split_once(' '));
    let help = helps.find(|(known, _)| *known == name).map_or("", |(_, help)| help);
    debug_assert!(!help.is_empty(), "{name} is not in metrics.txt");
    help
}

/// Encodes families of metrics, with their help. Families without series are omitted.
pub(crate) struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    /// Encodes a family with these labels; the values of the labels have the same order.
    pub(super) fn encode<'v, const N: usize, M: EncodeMetric>(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        labels: [&'static str; N],
        series: impl IntoIterator<Item = ([Cow<'v, str>; N], M)>,
    ) -> Encoded {
        let mut series = series.into_iter().peekable();
        let Some((_, first)) = series.peek() else { return Ok(()) };
        let mut family = self.0.encode_descriptor(name, help_of(name), unit.as_ref(), first.metric_type())?;
        for (values, metric) in series {
            if N == 0 {
                return metric.encode(family);
            }
            let labels: Vec<(&str, &str)> =
                labels.into_iter().zip(values.iter().map(|value| &**value)).collect();
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Encodes a counter without labels.
    pub(super) fn counter(&mut self, name: &str, count: u64) -> Encoded {
        self.encode(name, None, [], [([], ConstCounter::new(count))])
    }

    /// Encodes a counter for each value of a label.
    pub(super) fn counters<'v, V: Into<Cow<'v, str>>>(
        &mut self,
        name: &str,
        label: &'static str,
        counts: impl IntoIterator<Item = (V, u64)>,
    ) -> Encoded {
        let series = counts.into_iter().map(|(value, count)| ([value.into()], ConstCounter::new(count)));
        self.encode(name, None, [label], series)
    }

    /// Encodes a counter for each value of a label whose count is not 0.
    pub(super) fn used<'v>(
        &mut self,
        name: &str,
        label: &'static str,
        counts: impl IntoIterator<Item = (&'v str, u64)>,
    ) -> Encoded {
        self.counters(name, label, counts.into_iter().filter(|(_, count)| *count > 0))
    }

    /// Encodes a gauge without labels.
    pub(crate) fn gauge(&mut self, name: &str, value: usize) -> Encoded {
        self.encode(name, None, [], [([], ConstGauge::new(value as i64))])
    }

    /// Encodes a gauge with a unit.
    pub(super) fn measure(&mut self, name: &str, unit: Unit, value: f64) -> Encoded {
        self.encode(name, Some(unit), [], [([], ConstGauge::new(value))])
    }

    /// Encodes a gauge for each value of a label.
    pub(super) fn gauges<'v, V: Into<Cow<'v, str>>>(
        &mut self,
        name: &str,
        label: &'static str,
        values: impl IntoIterator<Item = (V, usize)>,
    ) -> Encoded {
        let series = values.into_iter().map(|(value, count)| ([value.into()], ConstGauge::new(count as i64)));
        self.encode(name, None, [label], series)
    }
}

/// Reads counters by name.
pub(super) fn loaded<'n, const N: usize>(
    names: [&'n str; N],
    counts: [&AtomicU64; N],
) -> impl Iterator<Item = (&'n str, u64)> {
    names.into_iter().zip(counts.map(|count| count.load(Relaxed)))
}
