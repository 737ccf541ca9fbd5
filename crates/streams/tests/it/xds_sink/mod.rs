//! The sink over xDS: what it says to servers, and what it makes of what they say (docs/behaviour/xds.md).

mod aggregated;
mod client;
mod delta;
mod file;
mod messages;
mod peers;
mod rest;
mod sotw;
mod work;

use crate::linear;
