//! The sources of configuration of `serve`.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Args;
use tokio::{net::TcpListener, sync::watch};

use super::{UsageError, config_args::ConfigArgs, tls_args::TlsArgs, value_parsers};
use mixer_adapter_config::{Collection, CollectionFilter, LossPolicy, MergedSource, source::Source};
use mixer_adapter_net::LimitHits;
use mixer_adapter_net::{Listener, grpc::StreamMemory};
use mixer_adapter_streams::{
    ListenUrl, Scoped, SourceSettings, StreamSource, Wanted, collection, collection_filters,
    proto::envoy::config::core::v3::Extension, stream::sink::Cache,
};

/// Options of sources that are not files.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers of configuration")]
pub(super) struct SourceArgs {
    /// Accept connections from sources of configuration
    ///
    /// The MCP service ResourceSink on another port. A bare port listens on loopback; mcps://HOST:PORT uses TLS;
    /// ?collections=... as for --config
    #[arg(long, value_name = "[HOST:]PORT")]
    mcp_listen: Option<Scoped<ListenUrl>>,

    /// Collections that readiness does not wait for
    ///
    /// Such as `rules` or a full name, separated by commas [default: readiness waits for all requested collections]
    #[arg(long, value_name = "COLLECTION", value_delimiter = ',', value_parser = collection)]
    config_optional: Vec<Collection>,

    /// Directory for the last accepted configuration of servers
    ///
    /// The server starts with it while they are unavailable
    #[arg(long, value_name = "DIR")]
    config_cache: Option<PathBuf>,

    /// Accept the valid resources of a push that also has invalid ones
    #[arg(long)]
    skip_bad_resources: bool,

    /// Request the collections of Istio 1.0, too, whose kinds are named after a template or an adapter
    ///
    /// Readiness does not wait for them
    #[arg(long, hide_short_help = true)]
    legacy_collections: bool,

    #[command(flatten)]
    client: ClientArgs,

    /// The longest delay before an unavailable configuration server is dialed again
    #[arg(long, hide_short_help = true, value_name = "DURATION", default_value = "60s", value_parser = value_parsers::timeout)]
    max_redial_wait: Duration,

    /// Apply updates after which a source has no resources, although it had some
    ///
    /// Without it the last good configuration remains in use
    #[arg(long, hide_short_help = true)]
    allow_empty: bool,

    /// Time to wait, after a server has removed all its rules, whether its other collections become empty, too
    ///
    /// Then nothing of it is applied
    #[arg(long, hide_short_help = true, value_name = "DURATION", default_value = "10s", value_parser = value_parsers::duration)]
    empty_delay: Duration,

    #[command(flatten)]
    security: TlsArgs,
}

/// How this program describes itself to servers of configuration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers of configuration")]
pub(super) struct ClientArgs {
    /// The id that MCP servers see [default: mixer-adapter~ and the host's name]
    #[arg(long, hide_short_help = true, value_name = "ID")]
    sink_id: Option<String>,

    /// An annotation that MCP servers see with the id; can be repeated
    #[arg(long = "sink-annotation", hide_short_help = true, value_name = "NAME=VALUE", value_delimiter = ';', value_parser = value_parsers::pair)]
    sink_annotations: Vec<(String, String)>,

    /// The id of the node that xDS servers see [default: as istiod requires it, with the host's name and the namespace]
    #[arg(long, hide_short_help = true, value_name = "ID")]
    node_id: Option<String>,

    /// Metadata of the node that xDS servers see; can be repeated
    #[arg(long, hide_short_help = true, value_name = "NAME=VALUE", value_delimiter = ';', value_parser = value_parsers::pair)]
    node_metadata: Vec<(String, String)>,

    /// File with a token that servers are shown as `authorization: Bearer TOKEN`, over TLS alone
    ///
    /// Read for each connection. Without the file --cert-file no certificate is shown then
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    config_token_file: Option<PathBuf>,
}

impl ClientArgs {
    /// Returns whether servers are shown a token.
    pub(super) fn has_token(&self) -> bool {
        self.config_token_file.is_some()
    }

    pub(super) fn apply(&self, settings: SourceSettings) -> SourceSettings {
        settings
            .sink_id(self.sink_id.clone())
            .sink_annotations(self.sink_annotations.iter().cloned().collect())
            .node_id(self.node_id.clone())
            .node_metadata(self.node_metadata.iter().cloned().collect())
            .token_file(self.config_token_file.clone())
    }
}

/// The sources of the command line.
pub(super) struct OpenedSources {
    pub(super) sources: Vec<MergedSource>,
    /// The address that sources can connect to.
    pub(super) listening: Option<SocketAddr>,
}

impl SourceArgs {
    /// Options of every source.
    pub(super) fn settings(
        &self,
        configuration: &ConfigArgs,
        extensions: Vec<Extension>,
    ) -> anyhow::Result<SourceSettings> {
        let secured = configuration.config.iter().any(|part| part.url.is_tls());
        let settings = SourceSettings::new(&configuration.default_config_namespace)
            .tls(secured.then(|| self.security.identity.client(self.client.has_token())).transpose()?)
            .skip_bad_resources(self.skip_bad_resources)
            .cache(self.cache()?)
            .longest_wait(self.max_redial_wait)
            .extensions(extensions);
        Ok(self.client.apply(settings))
    }

    /// Opens the sources of a configuration. `extensions` are sent to xDS servers, files are read again when `reload` changes, and
    /// `memory` limits the pushes of servers. `hits` counts the limits of `--mcp-listen`; without it, no source listens.
    pub(super) async fn open(
        &self,
        configuration: &ConfigArgs,
        extensions: Vec<Extension>,
        reload: watch::Receiver<()>,
        memory: StreamMemory,
        hits: Option<Arc<LimitHits>>,
    ) -> anyhow::Result<OpenedSources> {
        let listens = self.mcp_listen.as_ref().zip(hits);
        let parts = &configuration.config;
        let dialed = parts.iter().map(|part| (part.url.to_string(), part.collections.as_ref()));
        let listened = listens.as_ref().map(|(listen, _)| listen);
        let listened =
            listened.map(|listen| (format!("--mcp-listen {}", listen.url), listen.collections.as_ref()));
        let filters = collection_filters(dialed.chain(listened)).map_err(UsageError::of)?;
        let settings = self.settings(configuration, extensions)?.reload(reload.into()).memory(Some(memory));
        let mut sources = Vec::new();
        let mut listening = None;
        for (place, filter) in filters.into_iter().enumerate() {
            let collections = self.wanted(&filter);
            let settings = settings.clone().collections(collections);
            let source: Box<dyn Source> = match (parts.get(place), &listens) {
                (Some(part), _) => part.url.source(&settings).map_err(UsageError::of)?,
                (None, Some((listen, hits))) => {
                    let (listener, address) = self.bind(listen.url).await?;
                    let listener = listener.count_limits(hits.clone());
                    listening = Some(address);
                    Box::new(StreamSource::listen(listener, &settings))
                }
                (None, None) => continue,
            };
            let (required, skip_bad_resources) = (settings.required(), settings.skip_bad_resources);
            sources.push(MergedSource { source, filter, required, skip_bad_resources });
        }
        Ok(OpenedSources { sources, listening })
    }

    /// Returns what becomes of updates that remove everything.
    pub(super) fn losses(&self) -> LossPolicy {
        if self.allow_empty { LossPolicy::Allow } else { LossPolicy::Protect { delay: self.empty_delay } }
    }

    fn wanted(&self, filter: &CollectionFilter) -> Vec<Wanted> {
        let collections = filter.collections();
        let legacy: Vec<Collection> = match (self.legacy_collections, filter) {
            (true, CollectionFilter::AllBut(_)) => {
                Collection::legacy_mixer().filter(|collection| filter.includes(collection)).collect()
            }
            _ => Vec::new(),
        };
        let wanted = collections.iter().chain(&legacy).map(|collection| Wanted {
            // A layer of the runtime can only allow more.
            required: !collection.is_runtime()
                && !self.config_optional.contains(collection)
                && !legacy.contains(collection),
            collection: collection.to_string(),
        });
        wanted.collect()
    }

    fn cache(&self) -> anyhow::Result<Option<Cache>> {
        let Some(directory) = &self.config_cache else { return Ok(None) };
        let cache = Cache::open(directory);
        cache.map(Some).with_context(|| format!("cannot use --config-cache {}", directory.display()))
    }

    async fn bind(&self, url: ListenUrl) -> anyhow::Result<(Listener, SocketAddr)> {
        let listener = TcpListener::bind(url.address).await;
        let listener = listener.with_context(|| format!("--mcp-listen: cannot listen on {}", url.address))?;
        let address = listener.local_addr()?;
        if url.tls {
            return Ok((Listener::from(listener).with_tls(self.security.server()?), address));
        }
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "--mcp-listen without TLS: every client of this port can configure this program");
        }
        Ok((listener.into(), address))
    }
}
