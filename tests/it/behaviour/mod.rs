//! What a server does, seen by its clients over real sockets.
#![allow(unreachable_pub)]

mod admin;
mod bad_requests;
mod configuration_limits;
mod connections;
mod counts;
mod handlers;
mod http_client;
mod layer;
mod limits;
mod misbehaviour;
mod recorded;
mod requests;
#[cfg(feature = "tls")]
mod security;
mod sessions;
mod shared_sessions;
#[cfg(feature = "envoy")]
mod streams;
mod unix_sockets;

use crate::support;
