//! Traces for an OpenTelemetry collector: a span for each call of a service, with child spans for adapters and remote calls.
//!
//! Not by tracing-opentelemetry: with OpenTelemetry's SDK it would be a second queue and a second client beside the adapter otlp.

use std::{
    collections::BTreeMap,
    env,
    fmt::Debug,
    ops::RangeInclusive,
    str::FromStr,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use tokio::runtime::Runtime;
use tonic::Status;
use tracing::{
    Instrument as _, Span, Subscriber,
    field::{Empty, Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, Registry, filter::Targets, layer::Context, registry::LookupSpan};

use crate::random::random_id;
use mixer_adapter_core::metrics::Events;
use mixer_adapter_host::handler::http_client;
use mixer_adapter_net::{grpc::TraceParent, tls::SystemClient};
use mixer_adapter_telemetry::otlp::{
    Collector, ExportLimits, Exporter, Protocol, Signal, attribute, encode_resource,
    message::{self, KeyValue},
    unix_nanos,
};

/// The targets of the spans that are exported.
const TARGETS: [&str; 3] = ["mixer_adapter::rpc", "mixer_adapter::call", "mixer_adapter::remote"];

/// The time for the last spans at the end.
const LAST_SPANS: Duration = Duration::from_secs(1);

/// Exports spans in batches.
pub(crate) struct Traces {
    exporter: Exporter,
    resource: Bytes,
}

impl Traces {
    /// Creates an exporter to a collector, whose connection runs on a runtime.
    pub(crate) fn start(
        url: &str,
        protocol: Protocol,
        tls: SystemClient,
        lost: Events,
        runtime: &Runtime,
    ) -> Self {
        let headers = pairs("OTEL_EXPORTER_OTLP_HEADERS").into_iter();
        let headers = headers.filter_map(|(name, value)| {
            let mut value = HeaderValue::try_from(value).ok()?;
            value.set_sensitive(true);
            Some((name.parse::<HeaderName>().ok()?, value))
        });
        let collector = Collector {
            http: http_client(tls, runtime.handle().clone()),
            url: url.to_owned(),
            protocol,
            headers: headers.collect::<HeaderMap>(),
            token: None,
            timeout: milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000),
        };
        let queue_size = number("OTEL_BSP_MAX_QUEUE_SIZE", 1..=usize::MAX, 2_048);
        let limits = ExportLimits {
            // A larger batch would wait for its time.
            batch_size: number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1..=usize::MAX, 512).min(queue_size),
            batch_delay: milliseconds("OTEL_BSP_SCHEDULE_DELAY", 5_000),
            queue_size,
            ..ExportLimits::default()
        };
        let (exporter, task) = Exporter::new(collector, Signal::Traces, limits, lost);
        runtime.spawn(task);
        let mut resource = vec![("service.name".to_owned(), env!("CARGO_PKG_NAME").to_owned())];
        resource.extend(pairs("OTEL_RESOURCE_ATTRIBUTES"));
        resource.extend(env::var("OTEL_SERVICE_NAME").ok().map(|name| ("service.name".to_owned(), name)));
        // The last value of a name counts.
        let resource: BTreeMap<_, _> = resource.into_iter().collect();
        let resource = resource.iter().map(|(name, value)| attribute(name, value.as_str()));
        Self { exporter, resource: encode_resource(resource.collect()) }
    }

    /// Returns the layer that exports spans of `tracing`.
    pub(crate) fn layer(&self) -> Box<dyn Layer<Registry> + Send + Sync> {
        let targets = TARGETS.map(|target| (target, LevelFilter::DEBUG));
        let layer = SpanLayer { exporter: self.exporter.clone(), resource: self.resource.clone() };
        Box::new(layer.with_filter(Targets::new().with_targets(targets)))
    }

    /// Exports the last spans, for a second at most.
    pub(crate) async fn close(&self) {
        self.exporter.close(LAST_SPANS).await;
    }
}

/// Reads a variable of the environment that OpenTelemetry defines. An invalid value is ignored, as OpenTelemetry requires.
fn number<N: FromStr + PartialOrd>(variable: &str, range: RangeInclusive<N>, default: N) -> N {
    let number = env::var(variable).ok().and_then(|text| text.trim().parse().ok());
    number.filter(|number| range.contains(number)).unwrap_or(default)
}

fn milliseconds(variable: &str, default: u64) -> Duration {
    Duration::from_millis(number(variable, 1..=3_600_000, default))
}

fn decoded(text: &str) -> String {
    percent_decode_str(text.trim()).decode_utf8_lossy().into_owned()
}

/// Reads a variable of the form `name=value,name=value`, with encoded values.
fn pairs(variable: &str) -> Vec<(String, String)> {
    let text = env::var(variable).unwrap_or_default();
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// Exports a span of `tracing` when it ends.
struct SpanLayer {
    exporter: Exporter,
    resource: Bytes,
}

/// A span that has begun.
#[derive(Debug)]
struct OpenSpan {
    trace_id: u128,
    id: u64,
    /// 0 at the root.
    parent_id: u64,
    is_sampled: bool,
    start: SystemTime,
    name: String,
    kind: i32,
    attributes: Vec<KeyValue>,
}

impl OpenSpan {
    fn new(name: &str, parent: Option<&Self>) -> Self {
        Self {
            trace_id: parent
                .map_or_else(|| (u128::from(random_id()) << 64) | u128::from(random_id()), |it| it.trace_id),
            id: random_id(),
            parent_id: parent.map_or(0, |parent| parent.id),
            is_sampled: parent.is_none_or(|parent| parent.is_sampled),
            start: SystemTime::now(),
            name: name.to_owned(),
            kind: message::Span::INTERNAL,
            attributes: Vec::new(),
        }
    }

    fn end(self) -> message::Span {
        message::Span {
            trace_id: self.trace_id.to_be_bytes().into(),
            span_id: self.id.to_be_bytes().into(),
            parent_span_id: if self.parent_id == 0 {
                Vec::new()
            } else {
                self.parent_id.to_be_bytes().into()
            },
            name: self.name,
            kind: self.kind,
            start_time_unix_nano: unix_nanos(self.start),
            end_time_unix_nano: unix_nanos(SystemTime::now().max(self.start)),
            attributes: self.attributes,
            status: None,
            flags: message::Span::SAMPLED,
        }
    }
}

impl Visit for OpenSpan {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.attributes.push(attribute(field.name(), value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match (field.name(), value) {
            ("otel.name", name) => name.clone_into(&mut self.name),
            ("otel.kind", "server") => self.kind = message::Span::SERVER,
            ("otel.kind", "client") => self.kind = message::Span::CLIENT,
            (name, value) => self.attributes.push(attribute(name, value)),
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut open = match span.parent() {
            Some(parent) => OpenSpan::new(span.name(), parent.extensions().get()),
            None => OpenSpan::new(span.name(), None),
        };
        attributes.record(&mut open);
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<OpenSpan>()
        {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let open = context.span(&id).and_then(|span| span.extensions_mut().remove::<OpenSpan>());
        if let Some(open) = open.filter(|open| open.is_sampled) {
            self.exporter.add(self.resource.clone(), &open.end(), 1);
        }
    }
}

/// Calls a function with a span if it is exported.
fn with_open_span<T>(span: &Span, function: impl FnOnce(&mut OpenSpan) -> T) -> Option<T> {
    let found = span.with_subscriber(|(id, dispatch)| {
        let registry = dispatch.downcast_ref::<Registry>()?;
        let span = registry.span(id)?;
        let mut extensions = span.extensions_mut();
        extensions.get_mut().map(function)
    });
    found.flatten()
}

/// Returns the ids of a span if it is exported.
pub(crate) fn exported_span(span: &Span) -> Option<TraceParent> {
    with_open_span(span, |open| TraceParent::new(open.trace_id, open.id, open.is_sampled)).flatten()
}

/// Runs a call of a service in its span, whose parent is the caller's.
pub(crate) async fn in_span<T, F: Future<Output = Result<T, Status>>>(
    path: &str,
    caller: Option<TraceParent>,
    call: impl FnOnce() -> F,
) -> Result<T, Status> {
    let span = tracing::debug_span!(
        target: "mixer_adapter::rpc",
        "rpc",
        otel.name = path.trim_start_matches('/'),
        otel.kind = "server",
        rpc.system = "grpc",
        rpc.grpc.status_code = Empty,
    );
    if span.is_disabled() {
        return call().await;
    }
    if let Some(caller) = caller {
        with_open_span(&span, |open| {
            (open.trace_id, open.parent_id) = caller.ids();
            open.is_sampled = caller.is_sampled();
        });
    }
    // In a box, so that the future of other calls is not larger.
    let answer = Box::pin(call().instrument(span.clone())).await;
    let code = answer.as_ref().map_or_else(|status| status.code() as i32, |_| 0);
    span.record("rpc.grpc.status_code", code);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_spans_are_different() {
        let ids: std::collections::BTreeSet<u64> = (0..1_000).map(|_| random_id()).collect();
        assert_eq!(ids.len(), 1_000);
    }
}
