//! The server of xDS: its rules one by one (spec: envoy.md 3), what was recorded of Envoy, and real sockets.

#![allow(clippy::unwrap_used)]

mod arbitrary;
mod convergence;
mod messages;
mod order;
mod rules;
mod scenarios;
mod sockets;
mod transcripts;
mod world;
