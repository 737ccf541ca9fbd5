//! OpenTelemetry's protocol: spans, log records and metrics for a collector, by gRPC or by HTTP.

mod collector;
mod exporter;
pub mod message;
#[cfg(test)]
mod tests;

pub use collector::{Collector, Protocol, Signal};
pub use exporter::{ExportLimits, Exporter};
pub use message::{KeyValue, attribute, encode_resource, unix_nanos};
