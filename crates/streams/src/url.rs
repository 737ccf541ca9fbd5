use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use http::uri::Authority;

use crate::{
    certify::Protocol,
    settings::SourceSettings,
    stream::{peer::Peer, sink::dialect::Variant},
    subscription::StreamSource,
    text_format::FILE_FORMATS,
    xds::{
        self,
        sink::{dial::ApiVersion, rest::PollOptions},
    },
};
use mixer_adapter_config::{
    Collection,
    source::{FileSource, Source},
};
use mixer_adapter_core::value::{format_duration, parse_duration};

/// The URL of a source of configuration, as in `--config`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigUrl {
    /// A directory or a file: `fs:///dir`, or a plain path.
    Files(PathBuf),
    /// A file with an xDS response, or a directory of such files: `xds:///path`.
    Responses(PathBuf),
    /// A server: `mcp://host:port` or `xds://host:port`, for example.
    Server(ServerUrl),
}

/// The URL of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    scheme: &'static str,
    /// The server, `host:port`.
    pub address: Authority,
    /// The protocol: MCP (`mcp://`), its predecessor (`mcp+aggregated://` and `mcp+aggregated-delta://`), xDS that
    /// carries MCP resources (`xds://`, or `xds+delta://` for changes rather than whole sets), or xDS that is polled
    /// (`xds+http://`). `?api=v2` sets the version of Envoy's API for streams of xDS.
    pub protocol: Protocol,
    /// Whether connections use TLS: the scheme begins with `mcps` or `xdss`, or is `xds+https`.
    pub tls: bool,
    /// `?mode=resume`, for MCP: whether streams begin with the versions of held resources, for sources that honour
    /// them.
    resume: bool,
    /// `?refresh_delay=10s&request_timeout=60s`, for xDS that is polled.
    polling: PollOptions,
}

/// All forms of a [`ConfigUrl`], for errors.
const FORMS: &str = "a directory, fs:///DIR, mcp://HOST:PORT, mcp+aggregated://HOST:PORT, mcp+aggregated-delta://HOST:PORT, \
                     xds://HOST:PORT, xds+delta://HOST:PORT, xds+http://HOST:PORT or xds:///FILE; over TLS the first word is mcps or xdss, \
                     and xds+https";

/// The reason why a text is not a [`ConfigUrl`], or cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigUrlError {
    /// Nothing is given.
    #[error("no configuration is named; write {FORMS}")]
    Empty,
    /// Another scheme.
    #[error("{0}:// is not a known scheme; write {FORMS}")]
    Scheme(String),
    /// `fs://dir` means a host.
    #[error("fs://{0} has a host; write fs:///{0} for a path from the root, or just {0}")]
    RelativePath(String),
    /// Not `host:port`.
    #[error("{0:?} is not a valid address; write host:port")]
    Address(String),
    /// A setting that servers of the scheme do not have.
    #[error("{0}:// has no setting {1:?}; {2}")]
    Setting(String, String, &'static str),
    /// Not a duration.
    #[error("{0}: {1:?} is not a valid duration; write it like \"300ms\", \"5s\" or \"1m30s\"")]
    Duration(String, String),
    /// Not a mode of MCP.
    #[error("mode: {0:?} is not known; write full-first or resume")]
    Mode(String),
    /// Not a version of Envoy's API.
    #[error("api: {0:?} is not known; write v2 or v3")]
    Api(String),
    /// Another scheme, where only MCP is served.
    #[error("{0}:// cannot be listened on; write HOST:PORT, mcp://HOST:PORT or mcps://HOST:PORT")]
    ListenScheme(String),
    /// No such collection.
    #[error(
        "no collection is called {0:?}; write attributemanifests, templates, adapters, handlers, instances, rules, runtime, or a full \
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
    /// A token would be readable on the way to the server.
    #[error("{0}: a token is sent over TLS alone; write mcps://, xdss:// or xds+https://")]
    PlainToken(ServerUrl),
    /// There is nothing to make the connection with.
    #[error("{0}: no certificates are given for TLS")]
    NoTls(ServerUrl),
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
            "fs" if rest.starts_with('/') => return Ok(Self::Files(rest.into())),
            "fs" => return Err(ConfigUrlError::RelativePath(rest.to_owned())),
            "xds" if rest.starts_with('/') => return Ok(Self::Responses(rest.into())),
            _ => {}
        }
        ServerUrl::read(scheme, rest).map(Self::Server)
    }
}

impl ServerUrl {
    fn read(scheme: &str, rest: &str) -> Result<Self, ConfigUrlError> {
        let Some(&(scheme, protocol, tls)) = SCHEMES.iter().find(|(name, ..)| *name == scheme) else {
            return Err(ConfigUrlError::Scheme(scheme.to_owned()));
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (address, polling) = (address(place)?, PollOptions::default());
        let mut url = Self { scheme, address, protocol, tls, resume: false, polling };
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            url.set(setting)?;
        }
        Ok(url)
    }

    /// Changes a setting of the server: `NAME=VALUE`.
    fn set(&mut self, setting: &str) -> Result<(), ConfigUrlError> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        match (self.protocol, name) {
            (Protocol::Mcp, "mode") => match value {
                "full-first" => self.resume = false,
                "resume" => self.resume = true,
                _ => return Err(ConfigUrlError::Mode(value.to_owned())),
            },
            (Protocol::Xds(_, variant), "api") => match value {
                "v2" => self.protocol = Protocol::Xds(ApiVersion::V2, variant),
                "v3" => self.protocol = Protocol::Xds(ApiVersion::V3, variant),
                _ => return Err(ConfigUrlError::Api(value.to_owned())),
            },
            (Protocol::Rest, "refresh_delay") => self.polling.refresh_delay = duration(name, value)?,
            (Protocol::Rest, "request_timeout") => self.polling.request_timeout = duration(name, value)?,
            (protocol, _) => {
                let settings = match protocol {
                    Protocol::Mcp => "it has mode: ?mode=full-first or ?mode=resume",
                    Protocol::Xds(..) => "it has api: ?api=v2 or ?api=v3",
                    Protocol::Rest => "it has refresh_delay and request_timeout: ?refresh_delay=10s",
                    Protocol::Aggregated(_) => "it has none",
                };
                return Err(ConfigUrlError::Setting(self.scheme.to_owned(), setting.to_owned(), settings));
            }
        }
        Ok(())
    }
}

fn duration(name: &str, value: &str) -> Result<Duration, ConfigUrlError> {
    let nanos = parse_duration(value).and_then(|nanos| u64::try_from(nanos).ok()).filter(|nanos| *nanos > 0);
    nanos.map(Duration::from_nanos).ok_or_else(|| ConfigUrlError::Duration(name.to_owned(), value.to_owned()))
}

fn address(text: &str) -> Result<Authority, ConfigUrlError> {
    let authority = text.strip_suffix('/').unwrap_or(text).parse::<Authority>().ok();
    let complete = authority.filter(|authority| {
        !authority.host().is_empty() && authority.port_u16().is_some() && !text.contains('@')
    });
    complete.ok_or_else(|| ConfigUrlError::Address(text.to_owned()))
}

/// The schemes of servers, with their protocols and whether connections use TLS.
const SCHEMES: [(&str, Protocol, bool); 12] = [
    ("mcp", Protocol::Mcp, false),
    ("mcps", Protocol::Mcp, true),
    ("mcp+aggregated", Protocol::Aggregated(Variant::Sotw), false),
    ("mcps+aggregated", Protocol::Aggregated(Variant::Sotw), true),
    ("mcp+aggregated-delta", Protocol::Aggregated(Variant::Delta), false),
    ("mcps+aggregated-delta", Protocol::Aggregated(Variant::Delta), true),
    ("xds", Protocol::Xds(ApiVersion::V3, Variant::Sotw), false),
    ("xdss", Protocol::Xds(ApiVersion::V3, Variant::Sotw), true),
    ("xds+delta", Protocol::Xds(ApiVersion::V3, Variant::Delta), false),
    ("xdss+delta", Protocol::Xds(ApiVersion::V3, Variant::Delta), true),
    ("xds+http", Protocol::Rest, false),
    ("xds+https", Protocol::Rest, true),
];

impl ConfigUrl {
    /// Returns the source at the URL.
    pub fn source(&self, settings: &SourceSettings) -> Result<Box<dyn Source>, ConfigUrlError> {
        match self {
            Self::Files(path) => Ok(Box::new(
                FileSource::new(path, &settings.default_namespace)
                    .with_formats(FILE_FORMATS)
                    .with_reload(settings.reload.clone()),
            )),
            Self::Responses(path) => Ok(Box::new(StreamSource::files(path.clone(), settings))),
            Self::Server(server) => Ok(Box::new(server.source(settings)?)),
        }
    }

    /// Returns the server at the URL, or a source that is read like one; `None` for files of resources.
    pub fn server(&self, settings: &SourceSettings) -> Result<Option<StreamSource>, ConfigUrlError> {
        Ok(match self {
            Self::Files(_) => None,
            Self::Responses(path) => Some(StreamSource::files(path.clone(), settings)),
            Self::Server(server) => Some(server.source(settings)?),
        })
    }

    /// Returns whether connections use TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Server(server) if server.tls)
    }
}

impl ServerUrl {
    fn source(&self, settings: &SourceSettings) -> Result<StreamSource, ConfigUrlError> {
        let peer = self.peer(settings)?;
        let node = || xds::sink::own_node(settings);
        Ok(match self.protocol {
            Protocol::Mcp if self.resume => StreamSource::mcp(peer, settings).resuming(),
            Protocol::Mcp => StreamSource::mcp(peer, settings),
            Protocol::Aggregated(variant) => StreamSource::aggregated(peer, variant, settings),
            Protocol::Rest => StreamSource::rest(peer, node(), self.polling, settings),
            Protocol::Xds(api, variant) => StreamSource::xds(peer, variant, node(), settings).in_version(api),
        })
    }

    /// Returns the server at the URL.
    pub fn peer(&self, settings: &SourceSettings) -> Result<Peer, ConfigUrlError> {
        let peer = match (self.tls, &settings.tls) {
            (false, _) if settings.token_file.is_some() => {
                return Err(ConfigUrlError::PlainToken(self.clone()));
            }
            (false, _) => Peer::new(self.address.as_str()),
            (true, Some(security)) => Peer::secured(self.address.as_str(), security.clone()),
            (true, None) => return Err(ConfigUrlError::NoTls(self.clone())),
        };
        Ok(peer.with_token_file(settings.token_file.as_deref()).called(self.scheme))
    }
}

impl fmt::Display for ConfigUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(path) => write!(f, "fs://{}", path.display()),
            Self::Responses(path) => write!(f, "xds://{}", path.display()),
            Self::Server(server) => server.fmt(f),
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.address)?;
        if self.resume {
            f.write_str("?mode=resume")?;
        }
        if matches!(self.protocol, Protocol::Xds(ApiVersion::V2, _)) {
            f.write_str("?api=v2")?;
        }
        let (polling, default) = (&self.polling, PollOptions::default());
        let settings = [
            ("refresh_delay", polling.refresh_delay, default.refresh_delay),
            ("request_timeout", polling.request_timeout, default.request_timeout),
        ];
        let changed = settings.iter().filter(|(_, value, default)| value != default);
        for ((name, value, _), separator) in changed.zip(['?', '&']) {
            write!(f, "{separator}{name}={}", format_duration(value.as_nanos().cast_signed()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ConfigUrl, String> {
        text.parse().map_err(|error: ConfigUrlError| error.to_string())
    }

    fn server(text: &str) -> ServerUrl {
        let Ok(ConfigUrl::Server(server)) = read(text) else { panic!("{text} is not the URL of a server") };
        server
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
    fn a_source_of_mcp_may_resume_by_its_versions_from_the_first_request() {
        assert!(server("mcp://h:1?mode=resume").resume);
        assert!(!server("mcps://h:1?mode=full-first").resume);
        assert_eq!(read("mcp://h:1?mode=resume").unwrap().to_string(), "mcp://h:1?mode=resume");
        assert_eq!(
            read("mcp://h:1?mode=x").unwrap_err(),
            "mode: \"x\" is not known; write full-first or resume"
        );
    }

    #[test]
    fn a_server_of_xds_may_be_asked_in_version_2_of_envoys_api() {
        assert_eq!(server("xds://h:1?api=v2").protocol, Protocol::Xds(ApiVersion::V2, Variant::Sotw));
        assert_eq!(server("xds+delta://h:1?api=v3").protocol, Protocol::Xds(ApiVersion::V3, Variant::Delta));
        assert_eq!(read("xdss://h:1?api=v2").unwrap().to_string(), "xdss://h:1?api=v2");
        assert_eq!(read("xds://h:1?api=v1").unwrap_err(), "api: \"v1\" is not known; write v2 or v3");
    }

    #[test]
    fn refresh_delay_and_request_timeout_are_settings_of_polling() {
        let text = "xds+http://h:1?refresh_delay=500ms&request_timeout=5s";
        let url = server(text);
        let polling = PollOptions {
            refresh_delay: Duration::from_millis(500),
            request_timeout: Duration::from_secs(5),
        };
        assert_eq!(url.polling, polling);
        assert_eq!(url.to_string(), text);
        assert_eq!(
            read("xds+http://h:1?refresh_delay=0s").unwrap_err(),
            "refresh_delay: \"0s\" is not a valid duration; write it like \"300ms\", \"5s\" or \"1m30s\""
        );
        assert_eq!(
            read("mcp://h:1?refresh_delay=1s").unwrap_err(),
            "mcp:// has no setting \"refresh_delay=1s\"; it has mode: ?mode=full-first or ?mode=resume"
        );
        assert_eq!(
            read("mcp+aggregated://h:1?mode=resume").unwrap_err(),
            "mcp+aggregated:// has no setting \"mode=resume\"; it has none"
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
        assert!(server("mcps://h:1").tls);
        for wrong in
            ["mcp://", "mcp://galley", "mcp://:9901", "xds://h:99999", "xds://u@h:1", "mcp://h:1/path"]
        {
            assert!(
                read(wrong).is_err_and(|error| error.ends_with("is not a valid address; write host:port")),
                "{wrong}"
            );
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
        let every_scheme = error("k8s://").to_string();
        for (name, _, tls) in SCHEMES {
            assert!(
                tls || every_scheme.contains(&format!(" {name}://HOST:PORT")),
                "{name} in {every_scheme}"
            );
        }
        assert_eq!(error(""), ConfigUrlError::Empty);
    }
}
