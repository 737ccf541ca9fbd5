//! Requests to a collector.

use std::time::Duration;

use mixer_adapter_core::{
    adapter::{Http, HttpError, HttpRequest, HttpResponse, Secret},
    http::{HeaderMap, StatusCode, header},
};
use prost::Message as _;

use super::message::{ExportRequest, ExportResponse, PartialSuccess};

/// The longest time that a collector may ask to wait.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The protocol of a collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, usually on port 4317.
    #[default]
    Grpc,
    /// Protobuf over HTTP, usually on port 4318.
    Http,
}

/// A kind of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Log records.
    Logs,
    /// Metrics.
    Metrics,
}

/// A collector, and how to reach it.
#[derive(Clone, Debug)]
pub struct Collector {
    /// The client.
    pub http: Http,
    /// The URL without the path of a signal.
    pub url: String,
    /// The protocol.
    pub protocol: Protocol,
    /// Further headers of requests. Sensitive values are not shown.
    pub headers: HeaderMap,
    /// The bearer token.
    pub token: Option<Secret>,
    /// How long a request takes at most.
    pub timeout: Duration,
}

/// A request that a collector has not accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    /// It may accept the same request later, after this time.
    #[error("{0}")]
    Temporary(HttpError, Duration),
    #[error(transparent)]
    Permanent(HttpError),
}

impl Signal {
    /// Returns the path of requests: by gRPC, and by HTTP.
    fn paths(self) -> (&'static str, &'static str) {
        match self {
            Self::Traces => ("/opentelemetry.proto.collector.trace.v1.TraceService/Export", "/v1/traces"),
            Self::Logs => ("/opentelemetry.proto.collector.logs.v1.LogsService/Export", "/v1/logs"),
            Self::Metrics => {
                ("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "/v1/metrics")
            }
        }
    }
}

impl Collector {
    /// Sends items; returns the rejected ones.
    pub(super) async fn export(
        &self,
        signal: Signal,
        items: &ExportRequest,
    ) -> Result<PartialSuccess, ExportError> {
        let answer = self.request(signal, items).send().await.map_err(|error| {
            if error.is_unsendable() {
                ExportError::Permanent(error)
            } else {
                ExportError::Temporary(error, Duration::ZERO)
            }
        })?;
        let is_temporary = is_temporary(&answer);
        let retry_after = answer.header("retry-after").and_then(|seconds| seconds.parse().ok());
        let retry_after = retry_after.map_or(Duration::ZERO, Duration::from_secs).min(MAX_RETRY_AFTER);
        let response = match self.protocol {
            Protocol::Grpc => answer.grpc::<ExportResponse>(),
            // Some collectors answer in JSON. Protobuf is tried first: it may begin with a line feed and a brace, too.
            Protocol::Http => answer.success().and_then(|answer| match answer.protobuf() {
                Err(_) if answer.body().trim_ascii_start().starts_with(b"{") => Ok(ExportResponse::default()),
                decoded => decoded,
            }),
        };
        match response {
            Ok(response) => Ok(response.partial_success.unwrap_or_default()),
            Err(error) if is_temporary => Err(ExportError::Temporary(error, retry_after)),
            Err(error) => Err(ExportError::Permanent(error)),
        }
    }

    fn request(&self, signal: Signal, items: &ExportRequest) -> HttpRequest {
        let (method, path) = signal.paths();
        let request = match self.protocol {
            Protocol::Grpc => self.http.grpc(&self.url, method, items),
            Protocol::Http => self
                .http
                .post(&format!("{}{path}", self.url.trim_end_matches('/')))
                .header(header::CONTENT_TYPE, "application/x-protobuf")
                .body(items.encode_to_vec()),
        };
        request.headers(&self.headers).timeout(self.timeout).bearer(&self.token)
    }
}

/// Returns whether a request may be repeated after this answer, by the specification of the protocol.
fn is_temporary(answer: &HttpResponse) -> bool {
    match answer.header("grpc-status") {
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS
        Some(code) => ["1", "4", "10", "11", "14", "15"].contains(&code),
        None => matches!(
            answer.status(),
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        ),
    }
}
