use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs as _},
    str::FromStr,
};

use crate::url::ConfigUrlError;

/// The address for connections from sources of configuration, as in `--mcp-listen`: `HOST:PORT`, `mcp://HOST:PORT`,
/// `mcps://HOST:PORT` for TLS, or a port alone, which listens on loopback only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenUrl {
    /// The address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether connections use TLS.
    pub tls: bool,
}

impl FromStr for ListenUrl {
    type Err = ConfigUrlError;

    fn from_str(text: &str) -> Result<Self, ConfigUrlError> {
        let (tls, place) = match text.split_once("://") {
            None => (false, text),
            Some(("mcp", place)) => (false, place),
            Some(("mcps", place)) => (true, place),
            Some((scheme, _)) => return Err(ConfigUrlError::ListenScheme(scheme.to_owned())),
        };
        if let Ok(port) = place.parse::<u16>() {
            return Ok(Self { address: SocketAddr::from(([127, 0, 0, 1], port)), tls });
        }
        let address = place.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
        address.map(|address| Self { address, tls }).ok_or_else(|| ConfigUrlError::Address(place.to_owned()))
    }
}

impl fmt::Display for ListenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "mcps" } else { "mcp" }, self.address)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_machine_and_the_scheme_says_whether_it_is_tls() {
        let read = |text: &str| text.parse::<ListenUrl>().unwrap().to_string();
        assert_eq!(read("9901"), "mcp://127.0.0.1:9901");
        assert_eq!(read("0.0.0.0:9901"), "mcp://0.0.0.0:9901");
        assert_eq!(read("mcps://[::1]:9901"), "mcps://[::1]:9901");
        assert_eq!("nowhere".parse::<ListenUrl>(), Err(ConfigUrlError::Address("nowhere".to_owned())));
        assert_eq!("xds://h:1".parse::<ListenUrl>(), Err(ConfigUrlError::ListenScheme("xds".to_owned())));
    }
}
