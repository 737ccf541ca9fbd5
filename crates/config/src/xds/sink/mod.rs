//! The sink over xDS: MCP's sink, asking in another protocol.
//!
//! What a sink decides, keeps and answers is the same in every form (see [`SinkMachine`](crate::stream::sink::SinkMachine)). Here messages
//! are translated where a stream begins and ends: [`Dialect`](crate::stream::sink::Dialect) has one implementation for each variant.

mod delta;
mod dial;
pub(crate) mod file;
mod node;
mod response;
mod rest;
mod sotw;
mod unwrap;
mod versions;

use std::time::Duration;

pub use delta::Delta;
pub use dial::{ApiVersion, dial};
pub use node::{XdsClient, node, own_node};
pub use rest::{PollOptions, poll};
pub use sotw::Sotw;
pub use versions::Versions;

/// How often everything is asked for again: istiod pushes only what concerns the proxy that it takes a client for
/// (docs/behaviour/xds.md#istiod-as-a-source).
pub const RESYNC: Duration = Duration::from_secs(300);
