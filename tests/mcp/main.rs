//! MCP: what sinks and sources do, case by case, and against what was recorded of Galley.
//!
//! Tests that cover a case of Istio's own (docs/behaviour/mcp.md#istios-test-cases) name it.

#![allow(clippy::unwrap_used)]

mod convergence;
mod endings;
mod follow;
#[path = "../linear/mod.rs"]
mod linear;
mod messages;
mod misbehaving;
mod names;
mod replay;
mod scripted;
mod silence;

mod sink;
mod sockets;
mod source;
mod wire;
