//! The sink over MCP.

mod aggregated;
mod dial;
mod service;

pub use aggregated::{Aggregated, AggregatedDelta, dial as dial_aggregated};
pub use dial::dial;
pub use service::ResourceSinkService;
