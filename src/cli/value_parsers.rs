//! Parsers of flag values. Their errors have the reason; clap adds the flag and the value.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    num::NonZeroU16,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use mixer_adapter_core::value::parse_duration;
use mixer_adapter_net::ListenAddress;

/// Parses a name as its value.
pub(super) fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let names = values.each_ref().map(|(name, _)| *name);
    PossibleValuesParser::new(names).try_map(move |given| {
        let chosen = values.iter().find(|(name, _)| *name == given);
        chosen.map(|(_, value)| value.clone()).context("unknown value")
    })
}

/// Parses a duration in Go's syntax: `300ms`, `5s`, `24h`.
pub(super) fn duration(text: &str) -> anyhow::Result<Duration> {
    let nanos = parse_duration(text).and_then(|nanos| u64::try_from(nanos).ok());
    nanos.map(Duration::from_nanos).context("write it like 300ms, 5s, 1m30s or 24h")
}

pub(super) fn endpoint(text: &str) -> anyhow::Result<String> {
    let url = text.parse::<http::Uri>().ok().filter(|url| url.host().is_some());
    let is_http = url.is_some_and(|url| matches!(url.scheme_str(), Some("http" | "https")));
    anyhow::ensure!(
        is_http,
        "write http://HOST:PORT of a collector, such as http://127.0.0.1:4317, or https:// for TLS"
    );
    Ok(text.to_owned())
}

/// Parses `NAME=VALUE`.
pub(super) fn pair(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .context("write NAME=VALUE, such as cluster=east")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses a duration that cannot be zero.
pub(super) fn timeout(text: &str) -> anyhow::Result<Duration> {
    unless_zero(duration(text)?).context("write a time that is longer than zero")
}

/// Parses a share of a whole.
pub(super) fn share(text: &str) -> anyhow::Result<f64> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.context("write a number from 0 to 1, such as 0.1")
}

/// Parses the name of a header.
pub(super) fn header(text: &str) -> anyhow::Result<http::HeaderName> {
    text.parse().ok().context("write the name of a header, such as x-api-key")
}

/// Parses a group of services and the name of a client that may call them.
pub(super) fn grant(text: &str) -> anyhow::Result<(String, String)> {
    let (group, name) = text
        .split_once('=')
        .context("write GROUP=NAME, such as mixer=spiffe://cluster.local/ns/istio-system/sa/proxy")?;
    Ok((group.to_owned(), name.to_owned()))
}

/// Parses a number of bytes: `268435456`, `256Mi`.
pub(super) fn bytes(text: &str) -> anyhow::Result<usize> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let number = number.trim().parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift));
    number.context("write a number of bytes, also with Ki, Mi or Gi: 268435456, 256Mi")
}

/// Parses the size of a body that expressions read.
#[cfg(feature = "envoy")]
pub(super) fn body_bytes(text: &str) -> anyhow::Result<usize> {
    let size = bytes(text)?;
    anyhow::ensure!(
        (1..=1 << 20).contains(&size),
        "must be from 1 to 1Mi, the longest body that `json` reads"
    );
    Ok(size)
}

/// `None` for zero, which disables a limit.
pub(super) fn unless_zero(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}

/// Parses an address to listen on; a bare port is on loopback.
pub(super) fn address(text: &str) -> anyhow::Result<SocketAddr> {
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let mut addresses = text
        .to_socket_addrs()
        .map_err(|error| anyhow!("{error}; write HOST:PORT, with port 0 for a free one"))?;
    addresses.next().context("the name has no address")
}

/// Parses an address to connect to: a host or an IP address, and a port.
pub(super) fn target(text: &str) -> anyhow::Result<String> {
    let port = text.rsplit_once(':').filter(|(host, _)| {
        !host.is_empty() && !host.contains('/') && (host.starts_with('[') || !host.contains(':'))
    });
    let is_target = port.is_some_and(|(_, port)| port.parse::<NonZeroU16>().is_ok());
    anyhow::ensure!(
        is_target,
        "write HOST:PORT, such as 127.0.0.1:9091, adapter.example.com:9091 or [::1]:9091"
    );
    Ok(text.to_owned())
}

/// Parses an address to listen on, or the path of a Unix socket.
pub(super) fn listen_address(text: &str) -> anyhow::Result<ListenAddress> {
    match text.strip_prefix(UNIX) {
        Some(path) => unix_path(path).map(ListenAddress::Unix),
        None => address(text).map(ListenAddress::Tcp),
    }
}

/// Parses the address of a server: HOST:PORT, or the path of a Unix socket.
pub(super) fn server(text: &str) -> anyhow::Result<String> {
    match text.strip_prefix(UNIX) {
        Some(path) => unix_path(path).map(|_| text.to_owned()),
        None => target(text),
    }
}

/// The prefix of the address of a Unix socket.
const UNIX: &str = "unix:";

/// The path in the address of a Unix socket.
#[cfg(feature = "envoy")]
pub(super) fn socket_path(address: &str) -> Option<&str> {
    let path = address.strip_prefix(UNIX)?;
    Some(path.strip_prefix("//").unwrap_or(path))
}

fn unix_path(path: &str) -> anyhow::Result<PathBuf> {
    let path = path.strip_prefix("//").unwrap_or(path);
    path.starts_with('/')
        .then(|| path.into())
        .context("write unix: and an absolute path, such as unix:/run/mixer-adapter.sock")
}

/// The address to connect to a listener on this machine.
pub(super) fn reachable(address: &ListenAddress) -> ListenAddress {
    match address {
        ListenAddress::Tcp(tcp) if tcp.ip().is_unspecified() => {
            let ip = if tcp.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
            ListenAddress::Tcp(SocketAddr::new(ip, tcp.port()))
        }
        _ => address.clone(),
    }
}

/// The URL of an HTTP server with this scheme; a Unix socket has none.
pub(super) fn http_url(scheme: &str, address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(tcp) => format!("{scheme}://{tcp}"),
        ListenAddress::Unix(_) => address.to_string(),
    }
}

/// Parses a namespace, which is a DNS label.
pub(super) fn namespace(text: &str) -> anyhow::Result<String> {
    let is_label = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    let has_dash_at_end = text.starts_with('-') || text.ends_with('-');
    anyhow::ensure!(
        (1..=63).contains(&text.len()) && !has_dash_at_end && is_label,
        "a namespace has at most 63 lower-case letters, digits and dashes"
    );
    Ok(text.to_owned())
}

/// Parses `HOST=NAMESPACE`.
#[cfg(feature = "envoy")]
pub(super) fn host_namespace(text: &str) -> anyhow::Result<(mixer_adapter_envoy::HostPattern, String)> {
    let (host, namespace) =
        text.split_once('=').context("write HOST=NAMESPACE, such as *.example.com=shop")?;
    Ok((host.parse()?, self::namespace(namespace)?))
}

/// An entry of a rate limit descriptor.
#[cfg(feature = "envoy")]
#[derive(Clone, Debug)]
pub(super) struct DescriptorEntry {
    pub(super) key: String,
    pub(super) header: String,
}

/// Parses `KEY=HEADER`.
#[cfg(feature = "envoy")]
pub(super) fn descriptor_entry(text: &str) -> anyhow::Result<DescriptorEntry> {
    let entry = text.split_once('=').filter(|(key, header)| is_name(key) && is_name(header));
    let (key, header) = entry.context("write KEY=HEADER, such as user=x-user")?;
    Ok(DescriptorEntry { key: key.to_owned(), header: header.to_owned() })
}

/// Parses the name of a quota, perhaps behind a namespace.
#[cfg(feature = "envoy")]
pub(super) fn quota(text: &str) -> anyhow::Result<String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    anyhow::ensure!(
        is_name(namespace) && is_name(name),
        "write the name of a quota instance, or NAMESPACE/NAME"
    );
    Ok(text.to_owned())
}

/// Parses the listener of a Gateway: a name, or a port.
#[cfg(feature = "envoy")]
pub(super) fn gateway_listener(text: &str) -> anyhow::Result<String> {
    anyhow::ensure!(
        is_name(text) || text.parse::<NonZeroU16>().is_ok(),
        "not a listener; write the name of one of the Gateway's, or its port"
    );
    Ok(text.to_owned())
}

/// Whether a text is a name that YAML reads as a string.
#[cfg(feature = "envoy")]
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
