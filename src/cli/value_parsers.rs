//! Parsers of flag values.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    time::Duration,
};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use mixer_adapter_core::value::parse_duration;
use mixer_adapter_net::ListenAddress;

/// The reason why the value of a flag is invalid; clap adds the flag and the value.
#[derive(Debug, thiserror::Error)]
pub(super) enum ValueError {
    #[error("write NAME=VALUE, such as max-sessions=1000")]
    Limit,
    #[error("unknown limit {name}; {suggestion}")]
    UnknownLimit { name: String, suggestion: String },
    #[error("unknown value")]
    Choice,
    #[error("write it like 300ms, 5s, 1m30s or 24h")]
    Duration,
    #[error("write a time that is longer than zero")]
    Timeout,
    #[error("write a number of bytes, also with Ki, Mi or Gi: 268435456, 256Mi")]
    Bytes,
    #[error("write a number from 0 to 1, such as 0.1")]
    Share,
    #[error("write the name of a header, such as x-api-key")]
    Header,
    #[error("write GROUP=NAME, such as mixer=spiffe://cluster.local/ns/istio-system/sa/proxy")]
    Grant,
    #[error("{0}; write HOST:PORT, with port 0 for a free one")]
    Address(#[source] io::Error),
    #[error("the name has no address")]
    Unresolved,
    #[error("write unix: and an absolute path, such as unix:/run/mixer-adapter.sock")]
    UnixPath,
    #[error("write HOST:PORT, such as 127.0.0.1:9091, adapter.example.com:9091 or [::1]:9091")]
    Target,
    #[error("write mcp://HOST:PORT, or mcps:// for TLS")]
    Sink,
    #[error(transparent)]
    Url(#[from] mixer_adapter_streams::ConfigUrlError),
    #[cfg(feature = "otlp")]
    #[error("write http://HOST:PORT of a collector, such as http://127.0.0.1:4317, or https:// for TLS")]
    Endpoint,
    #[error("write NAME=VALUE, such as cluster=east")]
    Pair,
    #[error("write NAME=TYPE, such as my.size=INT64")]
    Declaration,
    #[error("unknown type {name}; {suggestion}")]
    UnknownType { name: String, suggestion: String },
    #[error("a namespace has at most 63 lower-case letters, digits and dashes")]
    Namespace,
    #[cfg(feature = "envoy")]
    #[error("write HOST=NAMESPACE, such as *.example.com=shop")]
    HostNamespace,
    #[cfg(feature = "envoy")]
    #[error("write the name of a quota instance, or NAMESPACE/NAME")]
    Quota,
    #[cfg(feature = "envoy")]
    #[error("not a listener; write the name of one of the Gateway's, or its port")]
    GatewayListener,
    #[cfg(feature = "envoy")]
    #[error("write KEY=HEADER, such as user=x-user")]
    Descriptor,
    #[cfg(feature = "envoy")]
    #[error(transparent)]
    HostPattern(#[from] mixer_adapter_envoy::HostPatternError),
}

/// Parses a name as its value.
pub(super) fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let names = values.each_ref().map(|(name, _)| *name);
    PossibleValuesParser::new(names).try_map(move |given| {
        let chosen = values.iter().find(|(name, _)| *name == given);
        chosen.map(|(_, value)| value.clone()).ok_or(ValueError::Choice)
    })
}

/// Parses a duration in Go's syntax: `300ms`, `5s`, `24h`.
pub(super) fn duration(text: &str) -> Result<Duration, ValueError> {
    match parse_duration(text).map(u64::try_from) {
        Some(Ok(nanos)) => Ok(Duration::from_nanos(nanos)),
        _ => Err(ValueError::Duration),
    }
}

/// The URL of a collector.
#[cfg(feature = "otlp")]
#[derive(Clone, Debug)]
pub(super) struct Endpoint(pub(super) String);

#[cfg(feature = "otlp")]
pub(super) fn endpoint(text: &str) -> Result<Endpoint, ValueError> {
    let url: http::Uri = text.parse().map_err(|_| ValueError::Endpoint)?;
    match (url.scheme_str(), url.host()) {
        (Some("http" | "https"), Some(_)) => Ok(Endpoint(text.to_owned())),
        _ => Err(ValueError::Endpoint),
    }
}

/// Parses `NAME=VALUE`.
pub(super) fn pair(text: &str) -> Result<(String, String), ValueError> {
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or(ValueError::Pair)?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses a duration that cannot be zero.
pub(super) fn timeout(text: &str) -> Result<Duration, ValueError> {
    unless_zero(duration(text)?).ok_or(ValueError::Timeout)
}

/// Parses a share of a whole.
pub(super) fn share(text: &str) -> Result<f64, ValueError> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or(ValueError::Share)
}

/// Parses the name of a header.
pub(super) fn header(text: &str) -> Result<http::HeaderName, ValueError> {
    text.parse().map_err(|_| ValueError::Header)
}

/// Parses a group of services and the name of a client that may call them.
pub(super) fn grant(text: &str) -> Result<(String, String), ValueError> {
    let (group, name) = text.split_once('=').ok_or(ValueError::Grant)?;
    Ok((group.to_owned(), name.to_owned()))
}

/// Parses a number of bytes: `268435456`, `256Mi`.
pub(super) fn bytes(text: &str) -> Result<usize, ValueError> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    let number: usize = number.trim().parse().map_err(|_| ValueError::Bytes)?;
    number.checked_mul(1 << shift).ok_or(ValueError::Bytes)
}

/// `None` for zero, which disables a limit.
pub(super) fn unless_zero(duration: Duration) -> Option<Duration> {
    (!duration.is_zero()).then_some(duration)
}

/// Parses an address to listen on; a bare port is on loopback.
pub(super) fn address(text: &str) -> Result<SocketAddr, ValueError> {
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let mut addresses = text.to_socket_addrs().map_err(ValueError::Address)?;
    addresses.next().ok_or(ValueError::Unresolved)
}

/// Parses an address to connect to: a host or an IP address, and a port.
pub(super) fn target(text: &str) -> Result<String, ValueError> {
    let port = text.rsplit_once(':').filter(|(host, _)| {
        !host.is_empty() && !host.contains('/') && (host.starts_with('[') || !host.contains(':'))
    });
    match port.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(port)) if port > 0 => Ok(text.to_owned()),
        _ => Err(ValueError::Target),
    }
}

/// Parses an address to listen on, or the path of a Unix socket.
pub(super) fn listen_address(text: &str) -> Result<ListenAddress, ValueError> {
    match text.strip_prefix(UNIX) {
        Some(path) => unix_path(path).map(ListenAddress::Unix),
        None => address(text).map(ListenAddress::Tcp),
    }
}

/// Parses the address of a server: HOST:PORT, or the path of a Unix socket.
pub(super) fn server(text: &str) -> Result<String, ValueError> {
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

fn unix_path(path: &str) -> Result<PathBuf, ValueError> {
    let path = path.strip_prefix("//").unwrap_or(path);
    path.starts_with('/').then(|| path.into()).ok_or(ValueError::UnixPath)
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

/// The URL of an HTTP server; a Unix socket has none.
pub(super) fn http_url(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Tcp(tcp) => format!("http://{tcp}"),
        ListenAddress::Unix(_) => address.to_string(),
    }
}

/// Parses a namespace, which is a DNS label.
pub(super) fn namespace(text: &str) -> Result<String, ValueError> {
    let is_label = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    let has_dash_at_end = text.starts_with('-') || text.ends_with('-');
    if (1..=63).contains(&text.len()) && !has_dash_at_end && is_label {
        Ok(text.to_owned())
    } else {
        Err(ValueError::Namespace)
    }
}

/// Parses `HOST=NAMESPACE`.
#[cfg(feature = "envoy")]
pub(super) fn host_namespace(text: &str) -> Result<(mixer_adapter_envoy::HostPattern, String), ValueError> {
    let (host, namespace) = text.split_once('=').ok_or(ValueError::HostNamespace)?;
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
pub(super) fn descriptor_entry(text: &str) -> Result<DescriptorEntry, ValueError> {
    let (key, header) = text.split_once('=').ok_or(ValueError::Descriptor)?;
    if is_name(key) && is_name(header) {
        Ok(DescriptorEntry { key: key.to_owned(), header: header.to_owned() })
    } else {
        Err(ValueError::Descriptor)
    }
}

/// Parses the name of a quota, perhaps behind a namespace.
#[cfg(feature = "envoy")]
pub(super) fn quota(text: &str) -> Result<String, ValueError> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    if is_name(namespace) && is_name(name) { Ok(text.to_owned()) } else { Err(ValueError::Quota) }
}

/// Parses the listener of a Gateway: a name, or a port.
#[cfg(feature = "envoy")]
pub(super) fn gateway_listener(text: &str) -> Result<String, ValueError> {
    if is_name(text) || text.parse::<u16>().is_ok_and(|port| port > 0) {
        Ok(text.to_owned())
    } else {
        Err(ValueError::GatewayListener)
    }
}

/// Whether a text is a name that YAML reads as a string.
#[cfg(feature = "envoy")]
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
