//! Exposes metric instances to Prometheus.
//!
//! Behaves as in docs/behaviour/adapters.md#prometheus; the README lists the differences.

mod buckets;
mod definition;
mod exporter;
mod family;
mod page;
mod scrape;
mod server;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use mixer_adapter_core::{Adapter, AdapterError, Call, Context, Handle};
use mixer_adapter_telemetry::{InstanceError, amount::amount, report};
use mixer_adapter_templates::{Metric, metric};
use tokio::{task::JoinSet, time::MissedTickBehavior};

use self::{
    exporter::{Exporter, FamilyLease, Lease},
    family::{Family, write_labels},
};

mixer_adapter_core::include_proto!("adapter.prometheus.config");

pub use definition::PrometheusSettings;

/// The default address of the endpoint: the port of the original, on the loopback interface. Tests use a free port, because
/// several may run on one machine.
const DEFAULT_ADDRESS: &str = if cfg!(test) { "127.0.0.1:0" } else { "127.0.0.1:42422" };
/// The environment variable with the address, IP:PORT.
const LISTEN: &str = "MIXER_ADAPTER_PROMETHEUS_LISTEN";

/// The handler: the metrics by instance.
#[derive(Debug)]
pub struct Prometheus {
    metrics: HashMap<String, Recorder>,
    expiry: Option<Duration>,
    _sweeping: JoinSet<()>,
    _lease: Lease,
}

/// The metric of one instance.
#[derive(Debug)]
struct Recorder {
    family: FamilyLease,
    /// The dimension of each label, in the order of the labels.
    dimensions: Vec<String>,
}

impl Adapter for Prometheus {
    const NAME: &str = "prometheus";
    const DESCRIPTION: &str = "Makes Prometheus metrics and serves them to be scraped.";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const EXAMPLE: &str = include_str!("../example.yaml");
    type Config = PrometheusSettings;
    type Templates = (Metric,);

    async fn open(settings: PrometheusSettings, context: Context) -> Result<Self, AdapterError> {
        let exporter = context.shared(|| {
            let address = std::env::var(LISTEN).unwrap_or_else(|_| DEFAULT_ADDRESS.to_owned());
            Exporter::new(address, context.metrics().clone())
        });
        Self::open_on(&exporter, settings)
    }
}

impl Handle<Metric> for Prometheus {
    async fn handle(&self, instances: Call<Vec<metric::InstanceMsg>>) -> Result<(), AdapterError> {
        let now = Instant::now();
        let mut labels = String::new();
        report(instances.iter().map(|instance| self.record(instance, now, &mut labels)))
    }
}

impl Prometheus {
    fn open_on(exporter: &Arc<Exporter>, settings: PrometheusSettings) -> Result<Self, AdapterError> {
        let lease = exporter.lease().map_err(|error| {
            AdapterError::unavailable(format!(
                "metrics cannot be served on {}: {error}; {LISTEN} sets another address",
                exporter.address
            ))
        })?;
        lease.warn_of_changes(settings.metrics.iter().map(|metric| &metric.definition));
        let metrics: HashMap<String, Recorder> = settings
            .metrics
            .into_iter()
            .map(|metric| {
                let family = lease.family(metric.definition, metric.help);
                (metric.instance, Recorder { family, dimensions: metric.dimensions })
            })
            .collect();
        let mut sweeping = JoinSet::new();
        if let Some(expiry) = &settings.expiry {
            let families = metrics.values().map(|recorder| recorder.family.state().clone()).collect();
            sweeping.spawn_on(sweep(families, expiry.check_interval), &lease.runtime);
        }
        let expiry = settings.expiry.map(|expiry| expiry.after);
        Ok(Self { metrics, expiry, _sweeping: sweeping, _lease: lease })
    }

    fn record(
        &self,
        instance: &metric::InstanceMsg,
        now: Instant,
        labels: &mut String,
    ) -> Result<(), InstanceError> {
        let Some(recorder) = self.metrics.get(&instance.name) else {
            return Err(InstanceError::NoMetric(instance.name.clone()));
        };
        let family = &recorder.family;
        let amount = amount(instance.value.as_ref())
            .map_err(|source| InstanceError::Value { instance: instance.name.clone(), source })?;
        labels.clear();
        let names = &family.definition.labels;
        write_labels(labels, names.iter().zip(&recorder.dimensions), &instance.dimensions);
        let expires = self.expiry.map(|expiry| now + expiry);
        family
            .series
            .record(labels, amount, expires)
            .map_err(|source| InstanceError::Record { instance: instance.name.clone(), source })
    }
}

/// Removes expired series periodically.
async fn sweep(families: Vec<Arc<Family>>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        families.iter().for_each(|family| family.series.sweep(now));
    }
}

#[cfg(test)]
mixer_adapter::testing::compliance!(
    Prometheus,
    config(
        "metrics: [{name: requests, instance_name: example.instance.istio-system, kind: COUNTER, label_names: [path]}]"
    ),
    refuses("metrics[0].kind", "metrics: [{name: a, instance_name: b}]")
);

#[cfg(test)]
mod tests;
