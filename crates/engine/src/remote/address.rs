use std::net::{IpAddr, SocketAddr};

/// A handler's `connection.address`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// A name or an IP address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// `dns:///host:port`: a connection to each of the name's addresses. Without it, as in Mixer, one connection to
    /// whichever of them answers first (docs/behaviour/connections.md#connecting).
    pub(super) spread: bool,
}

/// What `dns:///host` means without a port, as in other gRPC clients.
const DNS_PORT: u16 = 443;

impl Address {
    /// Reads `host:port`, `dns:///host:port` or `passthrough:///host:port`. The error says what to write instead.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err(
                "is missing: write host:port, or dns:///host:port for all addresses of a name".to_owned()
            );
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let host_and_port = match scheme {
            "" => rest,
            "dns" | "passthrough" => rest.strip_prefix('/').ok_or_else(|| {
                format!("{text:?} names a server to resolve with, which is not supported: write {scheme}:///host:port")
            })?,
            other => {
                return Err(format!("{text:?} has the scheme {other:?}: write host:port or dns:///host:port"));
            }
        };
        let spread = scheme == "dns";
        let (host, port) = split(host_and_port).ok_or_else(|| format!("{text:?} is not host:port"))?;
        let port = match port {
            Some(port) => {
                port.parse().map_err(|_| format!("{text:?} has no port between 1 and 65535: {port:?}"))?
            }
            None if spread => DNS_PORT,
            None => return Err(format!("{text:?} has no port: write host:port")),
        };
        if port == 0 {
            return Err(format!("{text:?} has port 0, where nobody can listen"));
        }
        // As in Go, no host is this machine.
        let host = if host.is_empty() { "localhost" } else { host };
        if !is_host(host) {
            return Err(format!("{text:?} has no host that can be looked up: {host:?}"));
        }
        Ok(Self { host: host.to_owned(), port, spread })
    }

    /// Host and port as in a URI.
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The address itself, if the host is no name.
    pub(super) fn literal(&self) -> Option<SocketAddr> {
        let ip: IpAddr = self.host.parse().ok()?;
        Some(SocketAddr::new(ip, self.port))
    }
}

/// Host and port of `host:port`, `[ipv6]:port`, `host` or `[ipv6]`.
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

    fn parse(text: &str) -> Result<(String, bool), String> {
        Address::parse(text).map(|address| (address.authority(), address.spread))
    }

    #[test]
    fn addresses_are_host_and_port_with_or_without_dns() {
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
        ] {
            assert_eq!(parse(text), Ok((authority.to_owned(), spread)), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        for (text, reason) in [
            ("", "is missing"),
            ("adapter", "has no port"),
            ("adapter:", "no port between 1 and 65535"),
            ("adapter:65536", "no port between 1 and 65535"),
            ("adapter:0", "port 0"),
            ("adapter:grpc", "no port between 1 and 65535"),
            ("::1:9091", "is not host:port"),
            ("[adapter]:9091", "is not host:port"),
            ("http://adapter:9091", "the scheme \"http\""),
            ("unix:///run/adapter", "the scheme \"unix\""),
            ("dns://10.0.0.1/adapter:9091", "a server to resolve with"),
            ("ad apter:9091", "no host"),
            ("user@adapter:9091", "no host"),
        ] {
            let error = parse(text).err().unwrap_or_default();
            assert!(error.contains(reason), "{text:?}: {error:?}");
        }
    }
}
