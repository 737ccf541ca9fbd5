use std::time::Duration;

use mixer_adapter_core::framework::setters;

/// Pings on connections, which distinguish a dead peer from a silent one.
///
/// By default every 30 s: Galley allows no shorter interval, and without pings a dead connection would leave old
/// configuration in use (docs/behaviour/mcp.md#keepalive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keepalive {
    /// The interval of pings.
    pub interval: Duration,
    /// The time for the answer to a ping.
    pub timeout: Duration,
}

setters!(Keepalive { interval: Duration, timeout: Duration });

impl Default for Keepalive {
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), timeout: Duration::from_secs(10) }
    }
}
