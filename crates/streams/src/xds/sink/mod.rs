//! The sink over xDS: the sink of MCP with the messages of another protocol.
//!
//! The decisions, state and answers of a sink are the same for every variant (see
//! [`SinkMachine`](crate::stream::sink::SinkMachine)). Here messages are translated at the ends of a stream:
//! [`Dialect`](crate::stream::sink::Dialect) has one implementation for each variant.

mod delta_messages;
pub(crate) mod dial;
pub(crate) mod file;
mod node;
mod response;
pub(crate) mod rest;
mod sotw_messages;
mod unwrap;
mod versions;

use std::time::Duration;

pub use delta_messages::Delta;
pub use dial::{ApiVersion, dial};
pub use node::{XdsClient, node, own_node};
pub use rest::{PollOptions, poll};
pub use sotw_messages::Sotw;
pub use versions::Versions;

/// The interval at which everything is requested again: istiod pushes only changes that affect the kind of proxy that
/// it takes a client for (docs/behaviour/xds.md#istiod-as-a-source).
pub(crate) const RESYNC: Duration = Duration::from_secs(300);
