//! The sources of the configuration that `serve` follows.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use clap::{ArgAction, Args};
use tokio::net::TcpListener;

use super::{Usage, configuration::Configuration, security::Security, values};
use mixer_adapter_config::{
    Collection, CollectionFilter, ConfigUrl, ConfigUrlError, ListenUrl, MergedSource, Scoped, StreamSource,
    collection, collection_filters,
    mcp::{Listener, sink::Cache},
    proto::envoy::config::core::v3::Extension,
    source::{Source, SourceSettings, Wanted},
};

/// How sources are followed that are not files.
#[derive(Debug, Args)]
pub(super) struct Sources {
    /// Let sources of configuration dial this program: the MCP service ResourceSink on a port of its own. A port alone is one
    /// of this machine only; mcps://HOST:PORT is TLS; ?collections=... as for --config
    #[arg(long, value_name = "[HOST:]PORT", env = "MIXER_ADAPTER_MCP_LISTEN")]
    mcp_listen: Option<Scoped<ListenUrl>>,

    /// Be ready without this collection, `rules` or a full name; several with commas [default: ready needs all that is
    /// asked for]
    #[arg(long, value_name = "COLLECTION", env = "MIXER_ADAPTER_CONFIG_OPTIONAL", value_delimiter = ',', value_parser = collection)]
    config_optional: Vec<Collection>,

    /// Keep the last good configuration of servers in this directory, and start with it while they are away
    #[arg(long, value_name = "DIR", env = "MIXER_ADAPTER_CONFIG_CACHE")]
    config_cache: Option<PathBuf>,

    /// Take the good resources of a push that has bad ones, in place of refusing all of it
    #[arg(long, env = "MIXER_ADAPTER_SKIP_BAD_RESOURCES", value_parser = values::switch(), action = ArgAction::SetTrue)]
    skip_bad_resources: bool,

    #[command(flatten)]
    security: Security,
}

/// What is to be followed.
pub(super) struct Opened {
    pub(super) sources: Vec<MergedSource>,
    /// Where sources may dial.
    pub(super) listening: Option<SocketAddr>,
}

impl Sources {
    /// The sources that the command line names; `None` if it names none. Servers of xDS are told of the extensions.
    pub(super) async fn open(
        &self,
        configuration: &Configuration,
        extensions: Vec<Extension>,
    ) -> anyhow::Result<Option<Opened>> {
        let parts = &configuration.config;
        let dialed = parts.iter().map(|part| (part.url.to_string(), part.collections.as_ref()));
        let listens = self.mcp_listen.as_ref();
        let listened =
            listens.map(|listen| (format!("--mcp-listen {}", listen.url), listen.collections.as_ref()));
        let filters = collection_filters(dialed.chain(listened)).map_err(usage)?;
        let secured = parts.iter().any(|part| part.url.is_tls());
        let settings = SourceSettings {
            tls: secured.then(|| self.security.client()).transpose()?,
            skip_bad_resources: self.skip_bad_resources,
            cache: self.cache()?,
            extensions,
            ..SourceSettings::new(&configuration.default_config_namespace)
        };
        let mut sources = Vec::new();
        let mut listening = None;
        for (place, filter) in filters.into_iter().enumerate() {
            let collections = self.wanted(&filter);
            let settings = SourceSettings { collections, ..settings.clone() };
            let source: Box<dyn Source> = match (parts.get(place), listens) {
                (Some(part), _) => part.url.source(&settings).map_err(usage)?,
                (None, Some(listen)) => {
                    let (listener, address) = self.bind(listen.url).await?;
                    listening = Some(address);
                    Box::new(StreamSource::listen(listener, &settings))
                }
                (None, None) => continue,
            };
            sources.push(MergedSource { source, filter, required: settings.required() });
        }
        Ok((!sources.is_empty()).then_some(Opened { sources, listening }))
    }

    fn wanted(&self, filter: &CollectionFilter) -> Vec<Wanted> {
        let collections = filter.collections().into_iter();
        let wanted = collections.map(|collection| Wanted {
            required: !self.config_optional.contains(&collection),
            collection: collection.as_str().to_owned(),
        });
        wanted.collect()
    }

    fn cache(&self) -> anyhow::Result<Option<Cache>> {
        let Some(directory) = &self.config_cache else { return Ok(None) };
        let cache = Cache::open(directory);
        cache.map(Some).with_context(|| format!("--config-cache {} cannot be used", directory.display()))
    }

    async fn bind(&self, url: ListenUrl) -> anyhow::Result<(Listener, SocketAddr)> {
        let listener = TcpListener::bind(url.address).await;
        let listener = listener.with_context(|| format!("--mcp-listen: cannot listen on {}", url.address))?;
        let address = listener.local_addr()?;
        if url.tls {
            return Ok((Listener::with_tls(listener, self.security.server()?), address));
        }
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "--mcp-listen without TLS: whoever reaches this port can configure this program");
        }
        Ok((listener.into(), address))
    }
}

fn usage(error: ConfigUrlError) -> Usage {
    Usage(error.to_string())
}

/// The files among several sources; any other is refused.
pub(super) fn files(parts: &[Scoped<ConfigUrl>]) -> Result<Vec<(&std::path::Path, CollectionFilter)>, Usage> {
    let named = parts.iter().map(|part| (part.url.to_string(), part.collections.as_ref()));
    let filters = collection_filters(named).map_err(usage)?;
    let files = parts.iter().zip(filters).map(|(part, filter)| match &part.url {
        ConfigUrl::Files(path) => Ok((path.as_path(), filter)),
        url => Err(Usage(format!("{url} is no directory and no file; only `serve` follows servers"))),
    });
    files.collect()
}
