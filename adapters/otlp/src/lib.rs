//! Sends metrics, log entries and spans to an OpenTelemetry collector, by gRPC or by HTTP.

mod attributes;
mod metrics;
mod records;
mod settings;

use std::{sync::Arc, time::Duration};

use mixer_adapter_core::{Adapter, AdapterError, Call, Context, Handle};
use mixer_adapter_telemetry::{
    otlp::{Collector, ExportLimits, Exporter, Signal},
    report,
};
use mixer_adapter_templates::{LogEntry, Metric, TraceSpan, logentry, metric, tracespan};
use tokio::time::sleep;

use self::{
    attributes::Attributes,
    metrics::Metrics,
    records::{log_record, span},
};

mixer_adapter_core::include_proto!("adapter.otlp.config");

pub use settings::OtlpSettings;

/// How long a handler closes while the collector does not accept what waits: within `--grace`.
const CLOSE: Duration = Duration::from_secs(2);

/// The handler: the queues to the collector, and the metrics that are to be sent.
#[derive(Debug)]
pub struct Otlp {
    attributes: Attributes,
    metrics: Arc<Metrics>,
    data_points: Exporter,
    log_records: Exporter,
    spans: Exporter,
}

impl Adapter for Otlp {
    const NAME: &str = "otlp";
    const DESCRIPTION: &str = "Sends metrics, log entries and spans to an OpenTelemetry collector.";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const EXAMPLE: &str = include_str!("../example.yaml");
    type Config = OtlpSettings;
    type Templates = (LogEntry, Metric, TraceSpan);

    async fn open(settings: OtlpSettings, context: Context) -> Result<Self, AdapterError> {
        let token = context.optional_secret("token_file", &settings.token_file).await?;
        let collector = Collector {
            http: context.http_with_ca("ca_file", &settings.ca_file).await?,
            url: settings.url,
            protocol: settings.protocol,
            headers: settings.headers,
            token,
            timeout: settings.timeout,
        };
        let exporter = |signal, limits, lost| {
            let lost = context.metrics().events(lost);
            let (exporter, task) = Exporter::new(collector.clone(), signal, limits, lost);
            context.spawn(task);
            exporter
        };
        let limits = settings.limits;
        // A collection of metrics is complete at once.
        let of_metrics = ExportLimits {
            batch_delay: Duration::ZERO,
            queue_size: usize::MAX,
            // Histograms are sent with their bounds, which the series share.
            queue_bytes: 2 * limits.queue_bytes,
            ..limits
        };
        let data_points = exporter(Signal::Metrics, of_metrics, "data_points_lost");
        let dropped = context.metrics().events("updates_dropped");
        let metrics = Metrics::new(settings.metrics, settings.temporality, limits.queue_bytes, dropped);
        let metrics = Arc::new(metrics);
        let (collected, to, interval) = (metrics.clone(), data_points.clone(), settings.metric_interval);
        context.spawn(async move {
            loop {
                sleep(interval).await;
                collected.export(&to);
            }
        });
        Ok(Self {
            attributes: Attributes::new(settings.resource, settings.resource_attributes),
            metrics,
            data_points,
            log_records: exporter(Signal::Logs, limits, "log_records_lost"),
            spans: exporter(Signal::Traces, limits, "spans_lost"),
        })
    }

    async fn close(self) {
        self.metrics.export(&self.data_points);
        tokio::join!(self.data_points.close(CLOSE), self.log_records.close(CLOSE), self.spans.close(CLOSE));
    }
}

impl Handle<Metric> for Otlp {
    async fn handle(&self, instances: Call<Vec<metric::InstanceMsg>>) -> Result<(), AdapterError> {
        report(instances.iter().map(|instance| self.metrics.record(instance, &self.attributes)))
    }
}

impl Handle<LogEntry> for Otlp {
    async fn handle(&self, entries: Call<Vec<logentry::InstanceMsg>>) -> Result<(), AdapterError> {
        for entry in entries.iter() {
            let monitored = (&*entry.monitored_resource_type, &entry.monitored_resource_dimensions);
            let (resource, attributes) = self.attributes.split(&entry.variables, monitored);
            self.log_records.add(resource, &log_record(entry, attributes), 1);
        }
        Ok(())
    }
}

impl Handle<TraceSpan> for Otlp {
    async fn handle(&self, instances: Call<Vec<tracespan::InstanceMsg>>) -> Result<(), AdapterError> {
        report(instances.iter().map(|instance| {
            let workload =
                if instance.client_span { &instance.source_name } else { &instance.destination_name };
            let (resource, attributes) = self.attributes.split_span(&instance.span_tags, workload);
            if let Some(span) = span(instance, attributes)? {
                self.spans.add(resource, &span, 1);
            }
            Ok::<_, records::IdError>(())
        }))
    }
}

#[cfg(test)]
mixer_adapter::testing::compliance!(
    Otlp,
    config(
        "{url: http://127.0.0.1:9, timeout: 100ms, retry_time: 0s, metrics: [{instance_name: example.instance.istio-system, kind: COUNTER}]}"
    ),
    refuses("url", "{}"),
    refuses("url", "url: 'http://127.0.0.1:9/?a=b'"),
    refuses("ca_file", "{url: 'http://127.0.0.1:9', ca_file: config.proto}"),
    refuses("metrics[0].kind", "{url: 'http://127.0.0.1:9', metrics: [{instance_name: a}]}"),
    refuses(
        "metrics[0].bounds",
        "{url: 'http://127.0.0.1:9', metrics: [{instance_name: a, kind: DISTRIBUTION, bounds: [2, 1]}]}"
    ),
    refuses("headers[\"te\"]", "{url: 'http://127.0.0.1:9', headers: {te: trailers}}"),
    refuses("queue_bytes", "{url: 'http://127.0.0.1:9', queue_bytes: 1}")
);
