//! Traces for an OpenTelemetry collector, by OTLP over gRPC: a span for each call of a service, with child spans for adapters and remote calls.

use std::{env, path::Path, time::Duration};

use http::uri::Scheme;
use opentelemetry::{
    Context, SpanId, TraceFlags, TraceId,
    trace::{SpanContext, TraceContextExt as _, TraceState, TracerProvider as _},
};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, SpanExporter, WithExportConfig as _, WithTonicConfig as _,
};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tonic::{
    Status,
    transport::{Channel, Endpoint, Uri},
};
use tracing::{Instrument as _, Span, field::Empty, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer, Registry, filter::Targets};

use mixer_adapter_net::grpc::TraceParent;
use mixer_adapter_net::tls::{Client, ClientOptions, Connector};

/// The targets of the spans that are exported.
const TARGETS: [&str; 3] = ["mixer_adapter::rpc", "mixer_adapter::call", "mixer_adapter::remote"];

/// Exports spans in batches.
pub(crate) struct Exporter {
    provider: SdkTracerProvider,
}

impl Exporter {
    /// Creates an exporter to a collector, whose certificate is verified with the CA certificates of a file, or of the system. Its
    /// connection runs on the current tokio runtime.
    ///
    /// # Errors
    /// The endpoint is not a URL, or the file cannot be used.
    pub(crate) fn new(endpoint: &str, authorities: Option<&Path>) -> anyhow::Result<Self> {
        let exporter = SpanExporter::builder().with_tonic();
        let exporter = if has_tls(endpoint) {
            exporter.with_channel(secured(endpoint, authorities)?)
        } else {
            exporter.with_endpoint(endpoint)
        };
        let exporter = exporter.build()?;
        // OTEL_SERVICE_NAME replaces the name.
        let resource = match env::var_os("OTEL_SERVICE_NAME") {
            Some(_) => Resource::builder(),
            None => Resource::builder().with_service_name(env!("CARGO_PKG_NAME")),
        };
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build());
        Ok(Self { provider: provider.build() })
    }

    /// Returns the layer that turns spans of `tracing` into spans of OpenTelemetry.
    pub(crate) fn layer(&self) -> Box<dyn Layer<Registry> + Send + Sync> {
        let tracer = self.provider.tracer(env!("CARGO_PKG_NAME"));
        let targets = TARGETS.map(|target| (target, LevelFilter::DEBUG));
        let layer =
            tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
        Box::new(layer.with_filter(Targets::new().with_targets(targets)))
    }

    /// Exports the last spans. Blocks until the collector has them, for a second at most.
    pub(crate) fn shut_down(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(Duration::from_secs(1)) {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

/// Returns a channel to a collector with TLS, which connects when it is needed.
fn secured(endpoint: &str, authorities: Option<&Path>) -> anyhow::Result<Channel> {
    let tls = Client::load(ClientOptions {
        authorities: authorities.map(Path::to_owned),
        system_roots: authorities.is_none(),
        ..ClientOptions::default()
    })?;
    let origin: Uri = endpoint.parse()?;
    let mut parts = origin.clone().into_parts();
    // With `https`, tonic would require its own TLS.
    parts.scheme = Some(Scheme::HTTP);
    let channel = Endpoint::from(Uri::from_parts(parts)?).origin(origin);
    Ok(channel.timeout(OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT).connect_with_connector_lazy(Connector::new(tls)))
}

/// Returns whether an endpoint has TLS.
pub(crate) fn has_tls(endpoint: &str) -> bool {
    endpoint.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https"))
}

/// Returns the ids of a span if it is exported.
pub(crate) fn exported_span(span: &Span) -> Option<TraceParent> {
    let context = span.context();
    let context = context.span().span_context().clone();
    let trace_id = u128::from_be_bytes(context.trace_id().to_bytes());
    let span_id = u64::from_be_bytes(context.span_id().to_bytes());
    TraceParent::new(trace_id, span_id, context.is_sampled())
}

/// Runs a call of a service in its span, whose parent is the caller's.
pub(crate) async fn in_span<T>(
    path: &str,
    caller: Option<TraceParent>,
    call: impl Future<Output = Result<T, Status>>,
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
        return call.await;
    }
    if let Some(caller) = caller {
        let (trace, parent) = caller.ids();
        let flags = if caller.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let parent =
            SpanContext::new(TraceId::from(trace), SpanId::from(parent), flags, true, TraceState::default());
        // A span that has just been made has no parent yet.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
    let answer = call.instrument(span.clone()).await;
    let code = answer.as_ref().map_or_else(|status| status.code() as i32, |_| 0);
    span.record("rpc.grpc.status_code", code);
    answer
}
