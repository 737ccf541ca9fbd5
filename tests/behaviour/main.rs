//! What a server does, seen by its clients over real sockets.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod bad_requests;
mod handlers;
mod misbehaviour;
mod recorded;
mod requests;
#[path = "../support/mod.rs"]
mod support;
