//! The sink over xDS: what it says to servers, and what it makes of what they say (docs/behaviour/xds.md).

#![allow(clippy::unwrap_used)]

mod aggregated;
mod client;
mod delta;
mod file;
#[path = "../linear/mod.rs"]
mod linear;
mod messages;
mod peers;
mod rest;
mod sotw;
mod work;
