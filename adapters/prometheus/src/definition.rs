//! The configured metrics, each from one instance.

use std::{collections::HashMap, time::Duration};

use mixer_adapter_core::adapter::{Faults, Settings};
use mixer_adapter_telemetry::{amount::check_amount, series::Kind};
use mixer_adapter_templates::Metric as MetricTemplate;

use super::{
    Params, buckets,
    params::{MetricInfo, MetricsExpirationPolicy, metric_info},
};

/// The prefix of metrics about the page itself, which other metrics cannot have.
pub(super) const OWN_PREFIX: &str = "mixer_adapter_prometheus_";
/// The default namespace.
const DEFAULT_NAMESPACE: &str = "istio";
/// The minimum interval between checks for expired series.
const SHORTEST_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A validated configuration.
#[derive(Debug)]
pub struct PrometheusSettings {
    pub(super) metrics: Vec<Metric>,
    pub(super) expiry: Option<Expiry>,
}

/// The expiry of series.
#[derive(Debug)]
pub(super) struct Expiry {
    pub(super) after: Duration,
    pub(super) check_interval: Duration,
}

/// A metric and its source.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Metric {
    /// The path of the field.
    field: String,
    pub(super) instance: String,
    pub(super) help: String,
    pub(super) definition: Definition,
    /// The dimension of each label, in the order of the labels.
    pub(super) dimensions: Vec<String>,
}

/// The definition of a metric. Handlers with equal definitions share the metric.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// In alphabetical order.
    pub(super) labels: Vec<String>,
}

impl Settings for PrometheusSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let mut metrics = Metrics::default();
        for (index, info) in params.metrics.iter().enumerate() {
            let field = format!("metrics[{index}]");
            if let Some(metric) = Metric::read(faults, &field, info) {
                metrics.add(faults, metric);
            }
        }
        metrics.check_types(faults);
        let expiry = params.metrics_expiration_policy.and_then(|policy| Expiry::read(faults, policy));
        Some(Self { metrics: metrics.all, expiry })
    }
}

/// The metrics of a configuration, with indexes of them.
#[derive(Default)]
struct Metrics {
    all: Vec<Metric>,
    /// The first of each name.
    by_name: HashMap<String, usize>,
    by_instance: HashMap<String, usize>,
}

impl Metric {
    fn is_same(&self, other: &Self) -> bool {
        self.definition == other.definition && self.help == other.help
    }
}

impl Metrics {
    /// Validates that the instances of a session have a numeric value, and a dimension for each label. Instances without a
    /// metric are ignored, because they may belong to another handler.
    fn check_types(&self, faults: &mut Faults<'_>) {
        let types: HashMap<&str, _> = faults.types().of::<MetricTemplate>().collect();
        for metric in &self.all {
            let (field, instance) = (&metric.field, metric.instance.as_str());
            let Some(inferred) = types.get(instance) else { continue };
            check_amount(faults, format!("{field}.instance_name"), instance, inferred.value);
            for dimension in metric.dimensions.iter().filter(|name| !inferred.dimensions.contains_key(*name))
            {
                let reason = format!("{instance} has no dimension {dimension:?}");
                faults.push(format!("{field}.label_names"), reason);
            }
        }
    }

    /// Adds a metric, unless an equal one was added. A metric that contradicts another is refused, as in Prometheus.
    fn add(&mut self, faults: &mut Faults<'_>, metric: Metric) {
        let known = self.by_name.get(&metric.definition.name).map(|index| &self.all[*index]);
        if let Some(other) = known.filter(|other| !other.is_same(&metric)) {
            let reason = format!(
                "{} differs from the metric of {}: kind, labels, buckets and description must be equal",
                metric.definition.name, other.field
            );
            return faults.push(format!("{}.name", metric.field), reason);
        }
        if let Some(other) = self.by_instance.get(&metric.instance).map(|index| &self.all[*index]) {
            if !other.is_same(&metric) || other.dimensions != metric.dimensions {
                let reason = format!("{:?} is already used by {}", metric.instance, other.field);
                faults.push(format!("{}.instance_name", metric.field), reason);
            }
            return;
        }
        let index = self.all.len();
        self.by_name.entry(metric.definition.name.clone()).or_insert(index);
        self.by_instance.insert(metric.instance.clone(), index);
        self.all.push(metric);
    }
}

impl Metric {
    fn read(faults: &mut Faults<'_>, field: &str, info: &MetricInfo) -> Option<Self> {
        let namespace = match safe_name(&info.namespace) {
            namespace if namespace.is_empty() => DEFAULT_NAMESPACE.to_owned(),
            namespace => namespace,
        };
        let (given, given_in) = match info.name.as_str() {
            "" => (&info.instance_name, "instance_name"),
            _ => (&info.name, "name"),
        };
        let name = format!("{namespace}_{}", safe_name(given));
        if given.is_empty() || !is_name(&name, ":") || name.starts_with(OWN_PREFIX) {
            let reason = format!("{name:?} cannot be the name of a metric");
            faults.push(format!("{field}.{given_in}"), reason);
            return None;
        }
        let kind = read_kind(faults, field, info)?;
        let mut labels: Vec<(String, String)> =
            info.label_names.iter().map(|dimension| (safe_name(dimension), dimension.clone())).collect();
        labels.sort();
        for (index, (label, dimension)) in labels.iter().enumerate() {
            let taken = index > 0 && labels[index - 1].0 == *label;
            let reserved =
                label.starts_with("__") || (label == "le" && matches!(kind, Kind::Distribution(_)));
            if taken || reserved || !is_name(label, "") {
                let why = if taken { "is used twice" } else { "cannot be the name of a label" };
                faults.push(format!("{field}.label_names"), format!("{dimension:?} {why}"));
                return None;
            }
        }
        let (labels, dimensions) = labels.into_iter().unzip();
        let help = if info.description.is_empty() { given } else { &info.description };
        Some(Self {
            field: field.to_owned(),
            instance: info.instance_name.clone(),
            help: help.clone(),
            definition: Definition { name, kind, labels },
            dimensions,
        })
    }
}

fn read_kind(faults: &mut Faults<'_>, field: &str, info: &MetricInfo) -> Option<Kind> {
    match info.kind() {
        metric_info::Kind::Gauge => Some(Kind::Gauge),
        metric_info::Kind::Counter => Some(Kind::Counter),
        metric_info::Kind::Distribution => {
            let bounds = buckets::bounds(info.buckets.as_ref());
            faults.check(format!("{field}.buckets"), bounds).map(Kind::Distribution)
        }
        metric_info::Kind::Unspecified => {
            faults.push(format!("{field}.kind"), "must be GAUGE, COUNTER or DISTRIBUTION");
            None
        }
    }
}

impl Expiry {
    fn read(faults: &mut Faults<'_>, policy: MetricsExpirationPolicy) -> Option<Self> {
        let field = "metrics_expiration_policy.metrics_expiry_duration";
        let after = faults.duration(field, policy.metrics_expiry_duration);
        let after = after.must("be longer than 0s", |after| !after.is_zero()).required();
        let field = "metrics_expiration_policy.expiry_check_interval_duration";
        let interval = faults.duration(field, policy.expiry_check_interval_duration);
        let (after, interval) = after.zip(interval.default(Duration::ZERO).optional())?;
        let interval = if interval.is_zero() { after / 2 } else { interval };
        Some(Self { after, check_interval: interval.max(SHORTEST_CHECK_INTERVAL) })
    }
}

/// Converts a name of Mixer to a valid name in Prometheus (docs/behaviour/adapters.md#metrics-and-labels).
fn safe_name(name: &str) -> String {
    let name = name.strip_prefix('/').unwrap_or(name);
    name.chars().filter(|c| *c != '-').map(|c| if matches!(c, '/' | '.' | ' ') { '_' } else { c }).collect()
}

/// Returns whether a name has only letters, underscores, `allowed` characters and, except for the first, digits.
fn is_name(name: &str, allowed: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || allowed.contains(c))
}

#[cfg(test)]
mod tests;
