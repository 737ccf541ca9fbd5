//! The server of xDS, which serves the state of an MCP source to clients of xDS (docs/behaviour/xds.md).
//!
//! ```text
//! request --> SotwStream / DeltaStream --> Types (make before break) --> Watch (state of the client) -->
//! push
//!                                            ^
//!                           Catalogue (the same that MCP serves)
//! ```
//!
//! Requests without a stream, of REST and of the `Fetch` methods, are answered by [`fetch`] from the same catalogue.

use std::time::Duration;

mod delta_messages;
mod fetch;
mod message;
mod name_set;
mod node;
pub(super) mod order;
mod rest;
mod service;
mod sotw_messages;
mod stream;
mod subscription;
mod types;
mod warming;
mod watch;

pub use delta_messages::DeltaStream;
pub use fetch::fetch;
pub use service::{default_options, mount, services};
pub use sotw_messages::SotwStream;
pub use stream::DiscoveryStream;

/// The timeout for the body of a request without a stream.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
