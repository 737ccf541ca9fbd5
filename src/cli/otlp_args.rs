//! Traces for an OpenTelemetry collector.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, builder::TypedValueParser};
use mixer_adapter_core::metrics::Events;
use mixer_adapter_engine::remote::ExportedSpan;
use mixer_adapter_net::tls::{Client, ClientOptions, SystemClient};
use mixer_adapter_telemetry::otlp::Protocol;
use tokio::runtime::Runtime;

use super::{log_args::LogArgs, value_parsers};
use crate::otlp::{self, Traces};

/// Where traces are sent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Log and traces")]
pub(super) struct OtlpArgs {
    /// Send traces to this OpenTelemetry collector [default: none]
    ///
    /// By OTLP: http://HOST:PORT, or https:// for TLS. A call that is part of a trace (header traceparent) becomes a part of it if its caller records it. OTEL_SERVICE_NAME,
    /// OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_HEADERS and OTEL_BSP_... have their standard meaning
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_parser = value_parsers::endpoint)]
    otlp_endpoint: Option<String>,

    /// Protocol of the collector: grpc, or http/protobuf at /v1/traces below the URL
    #[arg(long, hide_short_help = true, value_name = "PROTOCOL", env = "OTEL_EXPORTER_OTLP_PROTOCOL", default_value = "grpc", value_parser = protocol())]
    otlp_protocol: Protocol,

    /// CA certificates to verify a collector at https:// with [default: the system's]
    #[arg(long, hide_short_help = true, value_name = "FILE", env = "OTEL_EXPORTER_OTLP_CERTIFICATE")]
    otlp_ca_cert_file: Option<PathBuf>,
}

impl OtlpArgs {
    /// Installs the logger, and an exporter whose connection runs on a runtime. `lost` counts spans that are not exported.
    pub(super) fn start(
        &self,
        runtime: &Runtime,
        logging: &LogArgs,
        lost: Events,
    ) -> anyhow::Result<Option<Traces>> {
        let Some(url) = &self.otlp_endpoint else {
            logging.start(None)?;
            return Ok(None);
        };
        let tls = self.tls(url).context("cannot use --otlp-endpoint")?;
        let traces = Traces::start(url, self.otlp_protocol, tls, lost, runtime);
        logging.start(Some(traces.layer()))?;
        if self.otlp_ca_cert_file.is_some() && !has_tls(url) {
            tracing::warn!("--otlp-ca-cert-file has no effect: http:// is without TLS, https:// with it");
        }
        Ok(Some(traces))
    }

    fn tls(&self, url: &str) -> anyhow::Result<SystemClient> {
        if !has_tls(url) {
            return Ok(SystemClient::default());
        }
        let tls = match &self.otlp_ca_cert_file {
            None => SystemClient::default(),
            file => {
                let options = ClientOptions { authorities: file.clone(), ..ClientOptions::default() };
                Client::load(options)?.into()
            }
        };
        tls.get()?;
        Ok(tls)
    }

    /// Returns the function with which remote adapters learn the ids of exported spans, if spans are exported.
    pub(super) fn exported_span(&self) -> Option<ExportedSpan> {
        self.otlp_endpoint.as_ref().map(|_| otlp::exported_span as ExportedSpan)
    }
}

fn protocol() -> impl TypedValueParser<Value = Protocol> {
    value_parsers::one_of([("grpc", Protocol::Grpc), ("http/protobuf", Protocol::Http)])
}

fn has_tls(url: &str) -> bool {
    url.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https"))
}
