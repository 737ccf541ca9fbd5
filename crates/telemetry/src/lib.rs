//! What telemetry adapters share: numbers of instance values, the series of a metric, and an exporter for OpenTelemetry collectors.

pub mod amount;
mod faults;
pub mod otlp;
pub mod series;

pub use faults::{InstanceError, report};
