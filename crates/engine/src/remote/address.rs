use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    num::NonZeroU16,
    path::PathBuf,
};

/// Why a `connection.address` cannot be parsed. The text follows the name of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct AddressError(String);

/// A handler's `connection.address`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A TCP port of a host.
    Host(HostAddress),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// A TCP port of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostAddress {
    /// A name or an IP address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// `dns:///host:port`: one connection to each address of the name. Otherwise, as in Mixer, a single connection to the
    /// first address that accepts one (docs/behaviour/connections.md#connecting).
    pub(super) spread: bool,
}

/// The default port of `dns:///host`, as in other gRPC clients.
const DNS_PORT: u16 = 443;

impl Address {
    /// Parses `host:port`, `dns:///host:port`, `passthrough:///host:port`, `unix:/path` or `unix:///path`.
    pub(super) fn parse(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            let reason = "is missing; write host:port, or dns:///host:port for all addresses of a name";
            return Err(AddressError(reason.to_owned()));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.starts_with('/') {
                return Ok(Self::Unix(path.into()));
            }
            return Err(AddressError(format!("{text:?} has no absolute path; write unix:/path")));
        }
        HostAddress::parse(text).map(Self::Host)
    }

    /// Returns the host for the name in a certificate and for `:authority`; `localhost` for a Unix socket.
    pub(super) fn host(&self) -> &str {
        match self {
            Self::Host(address) => &address.host,
            Self::Unix(_) => LOCALHOST,
        }
    }

    /// Formats the `:authority` of requests.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Host(address) => address.to_string(),
            Self::Unix(_) => LOCALHOST.to_owned(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

const LOCALHOST: &str = "localhost";

impl HostAddress {
    fn parse(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let host_and_port = match scheme {
            "" => rest,
            "dns" | "passthrough" => rest.strip_prefix('/').ok_or_else(|| {
                let advice = format!("which is not supported; write {scheme}:///host:port");
                AddressError(format!("{text:?} names a DNS server, {advice}"))
            })?,
            _ => {
                let advice = "write host:port, dns:///host:port or unix:/path";
                return Err(AddressError(format!("{text:?} has an unknown scheme; {advice}")));
            }
        };
        let spread = scheme == "dns";
        let (host, port) =
            split(host_and_port).ok_or_else(|| AddressError(format!("{text:?} is not host:port")))?;
        let port = match port {
            Some(port) => {
                let port: Result<NonZeroU16, _> = port.parse();
                port.map_err(|_| AddressError(format!("the port of {text:?} is not between 1 and 65535")))?
                    .get()
            }
            None if spread => DNS_PORT,
            None => return Err(AddressError(format!("{text:?} has no port; write host:port"))),
        };
        // As in Go, an empty host is the local host.
        let host = if host.is_empty() { LOCALHOST } else { host };
        if !is_host(host) {
            return Err(AddressError(format!("the host of {text:?} is not a host name or IP address")));
        }
        Ok(Self { host: host.to_owned(), port, spread })
    }

    /// Returns the socket address if the host is an IP address.
    pub(super) fn literal(&self) -> Option<SocketAddr> {
        let ip: IpAddr = self.host.parse().ok()?;
        Some(SocketAddr::new(ip, self.port))
    }
}

impl fmt::Display for HostAddress {
    /// Formats host and port as in a URI.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Splits `host:port`, `[ipv6]:port`, `host` or `[ipv6]`.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        return match rest {
            "" => Some((host, None)),
            rest => Some((host, Some(rest.strip_prefix(':')?))),
        };
    }
    match text.split_once(':') {
        None => Some((text, None)),
        // An IPv6 address without brackets.
        Some((_, port)) if port.contains(':') => None,
        Some((host, port)) => Some((host, Some(port))),
    }
}

fn is_host(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok()
        || host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, bool), AddressError> {
        Address::parse(text).map(|address| {
            let spread = matches!(&address, Address::Host(address) if address.spread);
            (address.to_string(), spread)
        })
    }

    #[test]
    fn addresses_are_host_and_port_with_an_optional_scheme() {
        for (text, authority, spread) in [
            ("adapter:9091", "adapter:9091", false),
            ("adapter.ns.svc.cluster.local:9091", "adapter.ns.svc.cluster.local:9091", false),
            ("127.0.0.1:9091", "127.0.0.1:9091", false),
            ("[::1]:9091", "[::1]:9091", false),
            (":9091", "localhost:9091", false),
            ("passthrough:///adapter:9091", "adapter:9091", false),
            ("dns:///adapter:9091", "adapter:9091", true),
            ("dns:///adapter", "adapter:443", true),
            ("dns:///[::1]", "[::1]:443", true),
            ("unix:/run/adapter.sock", "unix:/run/adapter.sock", false),
            ("unix:///run/adapter.sock", "unix:/run/adapter.sock", false),
        ] {
            assert_eq!(parse(text), Ok((authority.to_owned(), spread)), "{text}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong_with_an_address() {
        for (text, reason) in [
            ("", "is missing"),
            ("adapter", "has no port"),
            ("adapter:", "not between 1 and 65535"),
            ("adapter:65536", "not between 1 and 65535"),
            ("adapter:0", "not between 1 and 65535"),
            ("adapter:grpc", "not between 1 and 65535"),
            ("::1:9091", "is not host:port"),
            ("[adapter]:9091", "is not host:port"),
            ("http://adapter:9091", "unknown scheme"),
            ("unix:adapter.sock", "no absolute path"),
            ("unix://host/adapter.sock", "no absolute path"),
            ("dns://10.0.0.1/adapter:9091", "names a DNS server"),
            ("ad apter:9091", "not a host name"),
            ("user@adapter:9091", "not a host name"),
        ] {
            let error = parse(text).map_or_else(|error| error.to_string(), |_| String::new());
            assert!(error.contains(reason), "{text:?}: {error:?}");
        }
    }
}
