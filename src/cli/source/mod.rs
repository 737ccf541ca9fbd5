mod admin;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueHint};
use tokio::time;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::Routes;
use tonic_health::{
    ServingStatus,
    pb::health_server::{Health, HealthServer},
};

use super::{UsageError, log_args::LogArgs, signals::Signals, tls_args::TlsArgs, value_parsers};
use crate::service::{Readiness, reflection};
use mixer_adapter_config::source::FileSource;
use mixer_adapter_net::{LimitHits, ListenAddress, Listener, raise_open_files, read_file_within};
use mixer_adapter_net::{Rate, grpc::StreamMemory};
use mixer_adapter_streams::{
    ConfigUrl, FILE_FORMATS, ListenUrl, ServerUrl, Types,
    certify::Protocol,
    mcp,
    stream::{
        DialOptions, ListenOptions, Peer, listen_with,
        source::{Catalogue, ConfigServer, ConfigServerOptions, feed},
    },
    xds,
};

/// Serve a directory of configuration over MCP, xDS and REST, and push its changes
#[derive(Debug, Args)]
pub(super) struct Source {
    /// The configuration
    ///
    /// A directory of YAML or JSON files, or one such file; watched for changes
    #[arg(value_name = "DIR", required_unless_present = "config")]
    directory: Option<ConfigUrl>,

    /// The configuration, in place of DIR
    #[arg(long, value_name = "DIR", conflicts_with = "directory", value_hint = ValueHint::AnyPath)]
    config: Option<ConfigUrl>,

    /// Address to listen on for sinks
    ///
    /// mcps://HOST:PORT uses TLS; port 0 uses a free port, which is printed
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9901")]
    listen: ListenUrl,

    /// Address of the admin port, plain HTTP
    ///
    /// /healthz /readyz /metrics /config. HOST:PORT, or unix:/PATH [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = value_parsers::listen_address)]
    admin: Option<ListenAddress>,

    /// A sink to connect to, mcp://HOST:PORT, or mcps:// for TLS; can be repeated
    #[arg(long = "sink", value_name = "URL", value_delimiter = ',', value_parser = sink)]
    sinks: Vec<ServerUrl>,

    /// The longest delay before a sink is dialed again
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = value_parsers::timeout)]
    max_redial_wait: Duration,

    /// The namespace of resources without one
    #[arg(long, value_name = "NAMESPACE", default_value = "istio-system")]
    default_config_namespace: String,

    /// Types of resources besides Envoy's
    ///
    /// An encoded FileDescriptorSet with all its imports; can be repeated
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    descriptors: Vec<PathBuf>,

    /// Maximum number of concurrent streams; further ones are RESOURCE_EXHAUSTED
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    max_sinks: usize,

    /// New streams per second, after a burst of 100; others wait
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    max_new_sinks: u32,

    /// Requests per second that are read from an MCP stream, after a burst of 100
    ///
    /// Others wait
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    max_requests: u32,

    /// Maximum size of a request message in bytes
    ///
    /// A reconnecting sink lists all resources that it has
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    max_message_size: usize,

    /// Maximum memory for the messages of clients that arrive or are decoded, and for the buffers of their streams
    ///
    /// 256Mi is 256 MiB. A stream or a request beyond it is RESOURCE_EXHAUSTED
    #[arg(long, value_name = "BYTES", default_value = "192Mi", value_parser = value_parsers::bytes)]
    memory_limit: usize,

    /// Do not serve version 2 of Envoy's API
    ///
    /// Requests for it are counted all the same
    #[arg(long)]
    no_xds_v2: bool,

    /// Check that the clients that connect keep the rules of MCP and xDS
    ///
    /// What breaks one is logged, and on /config
    #[arg(long)]
    certify: bool,

    #[command(flatten)]
    security: TlsArgs,

    #[command(flatten)]
    logging: LogArgs,
}

/// The names in the health check besides xDS services; the empty name is the server.
const SERVICES: [&str; 3] =
    ["", "istio.mcp.v1alpha1.ResourceSource", "istio.mcp.v1alpha1.AggregatedMeshConfigService"];

/// The number of faults that `/readyz` shows.
const MAX_FAULTS: usize = 10;

/// Time for streams to receive the status that ends them.
const GRACE: Duration = Duration::from_secs(5);

impl Source {
    /// Serves until SIGTERM or Ctrl-C; a second signal exits immediately.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let directory = match self.configuration() {
            Some(ConfigUrl::Files(directory)) => directory,
            other => {
                let url = other.map(ToString::to_string).unwrap_or_default();
                anyhow::bail!(usage!("{url}: only files can be served; write a directory"));
            }
        };
        let files = FileSource::new(directory, &self.default_config_namespace).with_formats(FILE_FORMATS);
        let types = types(&self.descriptors)?;
        let sinks = self.peers()?;
        self.logging.start(None)?;
        raise_open_files();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(self.serve(files, types, sinks))
    }

    fn configuration(&self) -> Option<&ConfigUrl> {
        self.directory.as_ref().or(self.config.as_ref())
    }

    fn peers(&self) -> Result<Vec<Peer>, UsageError> {
        let secured = self.sinks.iter().any(|sink| sink.tls);
        let client = secured.then(|| self.security.identity.client(false)).transpose()?;
        let peers = self.sinks.iter().map(|sink| match &client {
            Some(client) if sink.tls => Peer::secured(sink.address.as_str(), client.clone()),
            _ => Peer::new(sink.address.as_str()),
        });
        Ok(peers.collect())
    }

    async fn serve(&self, files: FileSource, types: Types, sinks: Vec<Peer>) -> anyhow::Result<()> {
        let source = ConfigServer::new(
            Catalogue::default().open(),
            ConfigServerOptions::default()
                .requests(per_second(self.max_requests))
                .v2(!self.no_xds_v2)
                .certify(self.certify),
        );
        let listener = bind(&self.listen.address.into()).await?;
        let address = listener.address()?;
        let hits = Arc::new(LimitHits::default());
        let listener = self.secured(listener, &address)?.count_limits(hits.clone());
        let memory = StreamMemory::new(self.memory_limit);
        let admin = match &self.admin {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        // Streams have the grace, and what remains of connections a second more.
        let signals = Signals::handle(GRACE + Duration::from_secs(1))?;
        // Aborts tasks that did not end by themselves.
        let cut = CancellationToken::new();
        let tasks = TaskTracker::new();
        // A closed stdout must not stop the server.
        let _ = super::print(&self.greeting(&address, admin.as_ref())?);

        tokio::spawn(feed(source.clone(), files, types));
        let readiness = Readiness::default();
        let configured = readiness.register("configuration");
        let faulty = source.clone();
        readiness.warn(move || admin::errors(&faulty).take(MAX_FAULTS).collect());
        let first = source.clone();
        let (reporter, health) = tonic_health::server::health_reporter();
        // They serve once the directory was read.
        let services: Vec<String> =
            SERVICES.map(str::to_owned).into_iter().chain(xds::source::services(!self.no_xds_v2)).collect();
        for service in &services {
            reporter.set_service_status(service, ServingStatus::NotServing).await;
        }
        tokio::spawn(async move {
            first.filled().await;
            for service in &services {
                reporter.set_service_status(service, ServingStatus::Serving).await;
            }
            drop(configured);
        });
        if let Some(admin) = admin {
            let registry = admin::metrics(&source, hits);
            let name = self.configuration().map(ToString::to_string).unwrap_or_default();
            tasks.spawn(admin::serve(admin, name, source.clone(), readiness, registry, cut.clone()));
        }
        for sink in sinks {
            let (source, stop) = (source.clone(), cut.clone());
            let options =
                DialOptions::default().longest_wait(self.max_redial_wait).memory(Some(memory.clone()));
            tasks.spawn(async move { mcp::source::dial(source, sink, options, stop).await });
        }
        let limits = ListenOptions::default().max_message_size(self.max_message_size).memory(memory);
        tasks.spawn(listen_with(listener, self.services(&source, health), limits, cut.clone()));
        tasks.close();

        signals.stop.cancelled().await;
        source.close();
        let gone = async {
            while !source.sinks().is_empty() {
                time::sleep(Duration::from_millis(10)).await;
            }
        };
        // Streams whose peers do not read by then are aborted.
        let _ = time::timeout(GRACE, gone).await;
        cut.cancel();
        tasks.wait().await;
        Ok(())
    }

    fn secured(&self, listener: Listener, address: &ListenAddress) -> Result<Listener, UsageError> {
        if self.listen.tls {
            return Ok(listener.with_tls(self.security.server()?));
        }
        if !address.is_local() {
            tracing::warn!(%address, "--listen without TLS: every client of this port can read the configuration");
        }
        Ok(listener)
    }

    /// The gRPC services for sinks, with the health check and reflection.
    fn services(&self, source: &ConfigServer, health: HealthServer<impl Health>) -> Routes {
        let options = mcp::source::default_options()
            .max_streams(self.max_sinks)
            .new_streams(per_second(self.max_new_sinks))
            .max_message_size(self.max_message_size);
        let descriptors =
            vec![mixer_adapter_config::proto::DESCRIPTORS, mixer_adapter_streams::proto::DESCRIPTORS];
        let own = reflection(health, descriptors);
        xds::source::mount(mcp::source::mount(own, source, &options), source, &options)
    }

    /// The source and its addresses.
    fn greeting(&self, address: &ListenAddress, admin: Option<&Listener>) -> anyhow::Result<String> {
        let served = self.configuration().map(ToString::to_string).unwrap_or_default();
        let mut lines = vec![format!("Serving {served}"), format!("gRPC on {address}")];
        if let Some(admin) = admin {
            lines.push(format!("Admin on {}", value_parsers::http_url("http", &admin.address()?)));
        }
        let look = if self.listen.tls { "serve --config mcps" } else { "watch mcp" };
        let reached = value_parsers::reachable(address);
        lines
            .push(format!("Try `{} {look}://{reached}` in another terminal\n", super::program::invocation()));
        Ok(lines.join("\n"))
    }
}

/// The longest descriptor set in bytes.
const MAX_DESCRIPTORS: u64 = 64 << 20;

/// Returns the messages of Envoy and of --descriptors.
pub(super) fn types(descriptors: &[PathBuf]) -> anyhow::Result<Types> {
    let mut types = Types::default();
    for path in descriptors {
        let read = read_file_within(path, MAX_DESCRIPTORS).map_err(anyhow::Error::from);
        let added = read.and_then(|descriptors| Ok(types.add(&descriptors)?));
        added.with_context(|| format!("--descriptors {}", path.display()))?;
    }
    Ok(types)
}

/// A rate with the burst that Galley allows (docs/behaviour/mcp.md#limits-of-a-source).
fn per_second(times: u32) -> Rate {
    Rate { burst: 100, every: Duration::from_secs(1) / times }
}

/// Parses the URL of a sink.
fn sink(text: &str) -> anyhow::Result<ServerUrl> {
    match text.parse()? {
        ConfigUrl::Server(server) if server.protocol == Protocol::Mcp => Ok(server),
        _ => Err(anyhow!("write mcp://HOST:PORT, or mcps:// for TLS")),
    }
}

async fn bind(address: &ListenAddress) -> anyhow::Result<Listener> {
    Listener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}
