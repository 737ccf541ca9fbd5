use std::time::Duration;

use mixer_adapter_core::framework::settings;

settings! {
    /// Pings on connections, which distinguish a dead peer from a silent one.
    ///
    /// By default every 30 s: Galley allows no shorter interval, and without pings a dead connection would leave old
    /// configuration in use (docs/behaviour/mcp.md#keepalive).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Keepalive {
        /// The interval of pings.
        interval: Duration = Duration::from_secs(30),
        /// The time for the answer to a ping.
        timeout: Duration = Duration::from_secs(10),
    }
}
