use std::time::Duration;

use mixer_adapter_core::framework::setters;

/// Pings on connections, which distinguish a peer that is gone from one that is silent.
///
/// By default every 30 s: Galley allows none that are more frequent, and without pings a dead connection would keep old configuration
/// forever (docs/behaviour/mcp.md#keepalive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keepalive {
    /// The interval of pings.
    pub interval: Duration,
    /// How long the answer to a ping may take.
    pub timeout: Duration,
}

setters!(Keepalive { interval: Duration, timeout: Duration });

impl Default for Keepalive {
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), timeout: Duration::from_secs(10) }
    }
}
