//! A connection to Redis that is established again whenever it is lost, for what several servers share: counters of quotas, and sessions.
//!
//! | question | file |
//! |---|---|
//! | which servers does a URL name | `servers.rs` |
//! | how is a connection established | `connector.rs` |
//! | when does a connection end, and when is there another one | `client.rs` |

mod client;
mod connector;
mod servers;

pub use client::{Client, ClientError};
pub use connector::{ConnectionError, Connector};
pub use redis;
pub use servers::{Address, Servers, Topology, UrlError};

use std::time::Duration;

/// Reads the time of the server in milliseconds as `now`: the start of scripts, so that clocks of clients do not matter.
pub const CLOCK: &str =
    "local clock = redis.call('TIME')\nlocal now = clock[1] * 1000 + math.floor(clock[2] / 1000)\n";

/// Returns milliseconds, rounded up.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
