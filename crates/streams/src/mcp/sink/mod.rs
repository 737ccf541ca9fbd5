//! The sink over MCP.

mod aggregated;
mod dial;
pub(crate) mod service;

pub use aggregated::{Aggregated, AggregatedDelta, dial as dial_aggregated};
pub use dial::dial;
pub use service::ResourceSinkService;
