//! Traces for an OpenTelemetry collector.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use tokio::runtime::Runtime;

use super::{
    log_args::LogArgs,
    value_parsers::{self, Endpoint},
};
use crate::otlp::{self, Exporter};
use mixer_adapter_engine::remote::ExportedSpan;

/// Where traces are sent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Traces")]
pub(super) struct OtlpArgs {
    /// Send traces to this OpenTelemetry collector [default: none]
    ///
    /// By OTLP over gRPC: http://HOST:PORT, or https:// for TLS. A call that is part of a trace (header traceparent) becomes a part of it if its caller records it. OTEL_SERVICE_NAME,
    /// OTEL_RESOURCE_ATTRIBUTES and OTEL_BSP_... have their standard meaning
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_parser = value_parsers::endpoint)]
    otlp_endpoint: Option<Endpoint>,

    /// CA certificates to verify a collector at https:// with [default: the system's]
    #[arg(long, hide_short_help = true, value_name = "FILE", env = "OTEL_EXPORTER_OTLP_CERTIFICATE")]
    otlp_ca_cert_file: Option<PathBuf>,
}

impl OtlpArgs {
    /// Installs the logger, and an exporter whose connection runs on a runtime.
    pub(super) fn start(&self, runtime: &Runtime, logging: &LogArgs) -> anyhow::Result<Option<Exporter>> {
        let Some(Endpoint(url)) = &self.otlp_endpoint else {
            logging.start()?;
            return Ok(None);
        };
        let _entered = runtime.enter();
        let exporter =
            Exporter::new(url, self.otlp_ca_cert_file.as_deref()).context("cannot use --otlp-endpoint")?;
        logging.start_with(exporter.layer())?;
        if self.otlp_ca_cert_file.is_some() && !otlp::has_tls(url) {
            tracing::warn!("--otlp-ca-cert-file has no effect: http:// is without TLS, https:// with it");
        }
        Ok(Some(exporter))
    }

    /// Returns the function with which remote adapters learn the ids of exported spans, if spans are exported.
    pub(super) fn exported_span(&self) -> Option<ExportedSpan> {
        self.otlp_endpoint.as_ref().map(|_| otlp::exported_span as ExportedSpan)
    }
}
