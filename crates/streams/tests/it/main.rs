//! Sources and sinks of configuration: message by message, and over sockets.
#![allow(clippy::unwrap_used)]

#[allow(clippy::panic)]
mod istio_descriptors;
#[path = "../../../../tests/it/linear.rs"]
mod linear;
mod mcp;
mod xds_sink;
mod xds_source;
