use std::{fmt, path::PathBuf, str::FromStr};

use http::uri::Authority;

use super::{
    Collection, StreamSource,
    source::{FileSource, Source, SourceSettings},
    stream::{Peer, sink::Variant},
    xds,
};

/// Where configuration comes from, as `--config` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigUrl {
    /// A directory or a file: `fs:///dir`, or a plain path.
    Files(PathBuf),
    /// An xDS server that is polled: `xds+http://host:port`, or `xds+https://` for TLS.
    Rest {
        /// The server, `host:port`.
        address: Authority,
        /// Whether the connection is TLS.
        tls: bool,
    },
    /// A file that holds a response of xDS, or a directory of such: `xds:///path`.
    Responses(PathBuf),
    /// A server of the Mesh Configuration Protocol: `mcp://host:port`, or `mcps://` for TLS.
    Mcp {
        /// The server, `host:port`.
        address: Authority,
        /// Whether the connection is TLS.
        tls: bool,
    },
    /// An xDS server that carries MCP resources: `xds://host:port`, or `xds+delta://host:port` for changes rather than whole sets;
    /// `xdss://` and `xdss+delta://` for TLS.
    Xds {
        /// The server, `host:port`.
        address: Authority,
        /// How it is spoken to.
        variant: Variant,
        /// Whether the connection is TLS.
        tls: bool,
    },
    /// A server of the predecessor of MCP: `mcp+aggregated://host:port`, or `mcp+aggregated-delta://host:port`; `mcps+aggregated://` and
    /// `mcps+aggregated-delta://` for TLS.
    Aggregated {
        /// The server, `host:port`.
        address: Authority,
        /// How it is spoken to.
        variant: Variant,
        /// Whether the connection is TLS.
        tls: bool,
    },
}

/// Why a text is no [`ConfigUrl`], or why one cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigUrlError {
    /// Nothing is given.
    #[error(
        "no configuration is named; write a directory, fs:///dir, mcp://host:port, mcps://host:port or xds://host:port"
    )]
    Empty,
    /// Another scheme.
    #[error(
        "{0}:// is not known; write a directory, fs:///dir, mcp://host:port, mcps://host:port or xds://host:port"
    )]
    Scheme(String),
    /// `fs://dir` means a host.
    #[error("fs://{0} has a host; write fs:///{0} for a path from the root, or just {0}")]
    RelativePath(String),
    /// Not `host:port`.
    #[error("{0:?} is no host:port")]
    Address(String),
    /// Another scheme, where only MCP is served.
    #[error("{0}:// cannot be listened on; write HOST:PORT, mcp://HOST:PORT or mcps://HOST:PORT")]
    ListenScheme(String),
    /// No such collection.
    #[error(
        "no collection is called {0:?}; write attributemanifests, templates, adapters, handlers, instances, rules, or a full \
         name such as istio/policy/v1beta1/rules"
    )]
    Collection(String),
    /// Two sources name the same collection.
    #[error("{collection} is to come from {first} and from {second}; name it for one of them only")]
    DuplicateCollection {
        /// The collection.
        collection: Collection,
        /// The source that is named first.
        first: String,
        /// The other one.
        second: String,
    },
    /// Two sources name no collections.
    #[error(
        "{0} and {1} are both for all collections; say what one of them is for, as in {1}?collections=rules,handlers"
    )]
    DuplicateCatchAll(String, String),
    /// There is nothing to make the connection with.
    #[error("{0}: no certificates are given for TLS")]
    NoTls(ConfigUrl),
}

impl FromStr for ConfigUrl {
    type Err = ConfigUrlError;

    fn from_str(text: &str) -> Result<Self, ConfigUrlError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text {
                "" => Err(ConfigUrlError::Empty),
                path => Ok(Self::Files(path.into())),
            };
        };
        match scheme {
            "fs" if rest.starts_with('/') => Ok(Self::Files(rest.into())),
            "fs" => Err(ConfigUrlError::RelativePath(rest.to_owned())),
            "xds" if rest.starts_with('/') => Ok(Self::Responses(rest.into())),
            "xds+http" | "xds+https" => {
                Ok(Self::Rest { address: address(rest)?, tls: scheme == "xds+https" })
            }
            "mcp" | "mcps" => Ok(Self::Mcp { address: address(rest)?, tls: scheme == "mcps" }),
            other => {
                let scheme = |known: &&Scheme| known.name == other;
                let Some(&Scheme { aggregated, variant, tls, .. }) = SCHEMES.iter().find(scheme) else {
                    return Err(ConfigUrlError::Scheme(other.to_owned()));
                };
                let address = address(rest)?;
                Ok(match aggregated {
                    true => Self::Aggregated { address, variant, tls },
                    false => Self::Xds { address, variant, tls },
                })
            }
        }
    }
}

fn address(text: &str) -> Result<Authority, ConfigUrlError> {
    let wrong = || ConfigUrlError::Address(text.to_owned());
    let authority: Authority = text.strip_suffix('/').unwrap_or(text).parse().map_err(|_| wrong())?;
    let complete = !authority.host().is_empty() && authority.port_u16().is_some() && !text.contains('@');
    if complete { Ok(authority) } else { Err(wrong()) }
}

/// A scheme of xDS, or of the predecessor of MCP.
struct Scheme {
    name: &'static str,
    aggregated: bool,
    variant: Variant,
    tls: bool,
}

impl Scheme {
    const fn new(name: &'static str, aggregated: bool, variant: Variant, tls: bool) -> Self {
        Self { name, aggregated, variant, tls }
    }
}

const SCHEMES: [Scheme; 8] = [
    Scheme::new("xds", false, Variant::Sotw, false),
    Scheme::new("xdss", false, Variant::Sotw, true),
    Scheme::new("xds+delta", false, Variant::Delta, false),
    Scheme::new("xdss+delta", false, Variant::Delta, true),
    Scheme::new("mcp+aggregated", true, Variant::Sotw, false),
    Scheme::new("mcps+aggregated", true, Variant::Sotw, true),
    Scheme::new("mcp+aggregated-delta", true, Variant::Delta, false),
    Scheme::new("mcps+aggregated-delta", true, Variant::Delta, true),
];

impl ConfigUrl {
    /// The source that is there.
    pub fn source(&self, settings: &SourceSettings) -> Result<Box<dyn Source>, ConfigUrlError> {
        match (self, self.server(settings)?) {
            (Self::Files(path), _) => Ok(Box::new(FileSource::new(path, &settings.default_namespace))),
            (_, Some(server)) => Ok(Box::new(server)),
            (_, None) => Err(ConfigUrlError::NoTls(self.clone())),
        }
    }

    /// The server that is there, or what is read like one; `None` where there are files of resources.
    pub fn server(&self, settings: &SourceSettings) -> Result<Option<StreamSource>, ConfigUrlError> {
        match self {
            Self::Files(_) => Ok(None),
            Self::Responses(path) => Ok(Some(StreamSource::files(path.clone(), settings))),
            Self::Mcp { address, .. } => Ok(Some(StreamSource::mcp(self.peer(address, settings)?, settings))),
            Self::Aggregated { address, variant, .. } => {
                Ok(Some(StreamSource::aggregated(self.peer(address, settings)?, *variant, settings)))
            }
            Self::Rest { address, .. } => {
                let (server, node) = (self.peer(address, settings)?, xds::sink::own_node(settings));
                Ok(Some(StreamSource::rest(server, node, settings)))
            }
            Self::Xds { address, variant, .. } => {
                let (server, node) = (self.peer(address, settings)?, xds::sink::own_node(settings));
                Ok(Some(StreamSource::xds(server, *variant, node, settings)))
            }
        }
    }

    /// Whether it is dialed over TLS.
    pub fn is_tls(&self) -> bool {
        match self {
            Self::Files(_) | Self::Responses(_) => false,
            Self::Mcp { tls, .. }
            | Self::Aggregated { tls, .. }
            | Self::Rest { tls, .. }
            | Self::Xds { tls, .. } => *tls,
        }
    }

    fn scheme(&self) -> &'static str {
        let known = |aggregated, variant, tls| {
            let is_it =
                |known: &&Scheme| (known.aggregated, known.variant, known.tls) == (aggregated, variant, tls);
            SCHEMES.iter().find(is_it).map_or("xds", |known| known.name)
        };
        match self {
            Self::Files(_) => "fs",
            Self::Responses(_) => "xds",
            Self::Mcp { tls, .. } => {
                if *tls {
                    "mcps"
                } else {
                    "mcp"
                }
            }
            Self::Rest { tls, .. } => {
                if *tls {
                    "xds+https"
                } else {
                    "xds+http"
                }
            }
            Self::Aggregated { variant, tls, .. } => known(true, *variant, *tls),
            Self::Xds { variant, tls, .. } => known(false, *variant, *tls),
        }
    }

    fn peer(&self, address: &Authority, settings: &SourceSettings) -> Result<Peer, ConfigUrlError> {
        let peer = match (self.is_tls(), &settings.tls) {
            (false, _) => Peer::new(address.as_str()),
            (true, Some(security)) => Peer::secured(address.as_str(), security.clone()),
            (true, None) => return Err(ConfigUrlError::NoTls(self.clone())),
        };
        Ok(peer.called(self.scheme()))
    }
}

impl fmt::Display for ConfigUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(path) | Self::Responses(path) => write!(f, "{}://{}", self.scheme(), path.display()),
            Self::Mcp { address, .. }
            | Self::Aggregated { address, .. }
            | Self::Rest { address, .. }
            | Self::Xds { address, .. } => write!(f, "{}://{address}", self.scheme()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ConfigUrl, String> {
        text.parse().map_err(|error: ConfigUrlError| error.to_string())
    }

    #[test]
    fn a_path_is_a_directory_with_and_without_scheme() {
        assert_eq!(read("fs:///etc/mixer"), Ok(ConfigUrl::Files("/etc/mixer".into())));
        assert_eq!(read("./conf"), Ok(ConfigUrl::Files("./conf".into())));
        assert_eq!(
            read("fs://conf"),
            Err("fs://conf has a host; write fs:///conf for a path from the root, or just conf".to_owned())
        );
    }

    #[test]
    fn servers_are_named_by_host_and_port() {
        for text in [
            "mcp://galley:9901",
            "mcps://galley.istio-system.svc:15019",
            "xds://[::1]:15010",
            "xds+delta://istiod:15010",
            "xdss://istiod:15012",
            "xdss+delta://istiod:15012",
            "mcp+aggregated://galley:9901",
            "mcps+aggregated-delta://galley:9901",
            "xds:///etc/rules.json",
            "xds+http://h:80",
        ] {
            assert_eq!(read(text).map(|url| url.to_string()), Ok(text.to_owned()));
        }
        assert!(matches!(read("mcps://h:1"), Ok(ConfigUrl::Mcp { tls: true, .. })));
        for wrong in [
            "mcp://",
            "mcp://galley",
            "mcp://:9901",
            "xds://h:99999",
            "xds://h:1?delta",
            "xds://u@h:1",
            "mcp://h:1/path",
        ] {
            assert!(read(wrong).is_err_and(|error| error.ends_with("is no host:port")), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        let error = |text: &str| {
            text.parse::<ConfigUrl>()
                .and_then(|url| url.source(&SourceSettings::new("ns")).map(|_| ()))
                .unwrap_err()
        };
        assert_eq!(error("mcps://h:1").to_string(), "mcps://h:1: no certificates are given for TLS");
        assert_eq!(error("k8s://"), ConfigUrlError::Scheme("k8s".to_owned()));
        assert_eq!(error(""), ConfigUrlError::Empty);
    }
}
