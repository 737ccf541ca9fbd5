//! MCP: what sinks and sources do, case by case, and against what was recorded of Galley.
//!
//! Tests that cover a case of Istio's own (docs/behaviour/mcp.md#istios-test-cases) name it.

mod convergence;
mod endings;
mod follow;
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

use crate::linear;
