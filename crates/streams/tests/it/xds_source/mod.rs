//! The server of xDS: its rules one by one (docs/behaviour/xds.md#rules-for-servers), what was recorded of Envoy, and real sockets.

mod admission;
mod arbitrary;
mod certify;
mod convergence;
mod envelopes;
mod messages;
mod order;
mod rest;
mod rules;
mod scenarios;
mod sockets;
mod transcripts;
mod v2;
mod views;
mod work;
mod world;
mod xdstp;

use crate::linear;
