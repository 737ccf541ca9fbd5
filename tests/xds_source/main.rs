//! The server of xDS: its rules one by one (spec: envoy.md 3), what was recorded of Envoy, and real sockets.

#![allow(clippy::unwrap_used)]

mod messages;
mod rules;
mod sockets;
mod world;
