//! MCP, the Mesh Configuration Protocol, and its predecessor, `AggregatedMeshConfigService`.
//!
//! Either side may dial the other.

pub mod sink;
pub mod source;

#[cfg(all(test, feature = "tls"))]
mod secured_tests;
