use std::{
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    time::Duration,
};

use mixer_adapter_core::value::parse_duration;

/// A length as Go writes it: `300ms`, `5s`, `24h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text).map(u64::try_from) {
        Some(Ok(nanos)) => Ok(Duration::from_nanos(nanos)),
        _ => Err("write it like 300ms, 5s, 1m30s or 24h".to_owned()),
    }
}

/// A length of which zero means "never".
pub(super) fn unless_zero(length: Duration) -> Option<Duration> {
    (!length.is_zero()).then_some(length)
}

/// An address to listen on; a bare port is one of this machine only.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let addresses =
        text.to_socket_addrs().map_err(|error| format!("{error}; write HOST:PORT, port 0 for a free one"))?;
    addresses.into_iter().next().ok_or_else(|| "the name has no address".to_owned())
}

/// An address to call: a host or an address, and a port.
pub(super) fn target(text: &str) -> Result<String, String> {
    let is_host = |host: &str| {
        !host.is_empty() && !host.contains('/') && (host.starts_with('[') || !host.contains(':'))
    };
    let port = text.rsplit_once(':').filter(|(host, _)| is_host(host));
    match port.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(port)) if port > 0 => Ok(text.to_owned()),
        _ => {
            Err("write HOST:PORT, such as 127.0.0.1:9091, adapter.example.com:9091 or [::1]:9091".to_owned())
        }
    }
}

/// Where this machine reaches what listens there.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    match (address.ip().is_unspecified(), address.is_ipv4()) {
        (false, _) => address,
        (true, true) => SocketAddr::from(([127, 0, 0, 1], address.port())),
        (true, false) => SocketAddr::from((Ipv6Addr::LOCALHOST, address.port())),
    }
}

/// A flag, which an environment variable may also set to `1`, `yes`, `on` or `false`.
pub(super) fn switch() -> clap::builder::BoolishValueParser {
    clap::builder::BoolishValueParser::new()
}
