mod admin;

use std::{fs, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Args;
use tokio::{net::TcpListener, time};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::service::Routes;

use super::{Usage, logging::Logging, security::Security, signals, values};
use crate::service::Readiness;
use mixer_adapter_config::{
    ConfigUrl, ListenUrl, Types,
    mcp::{
        DialOptions, Listener, Peer, Rate, ServiceOptions, feed, listen,
        source::{self, Catalogue, ConfigServerOptions, ResourceSourceService},
    },
    source::FileSource,
    xds,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  mixer-adapter source --config config/
  mixer-adapter source --config config/ --listen 0.0.0.0:9901 --admin 127.0.0.1:15014
  mixer-adapter source --config config/ --sink mcp://10.0.0.7:9901      also dials a sink
  mixer-adapter serve --config mcp://127.0.0.1:9901                     a sink of it
  mixer-adapter source --config envoy/ --listen 127.0.0.1:18000         for an Envoy, by xDS";

/// Serve a directory of configuration to others, and push its changes to them
#[derive(Debug, Args)]
pub(super) struct Source {
    /// The configuration: a directory of YAML or JSON files, or one such file; watched for changes
    #[arg(long, value_name = "DIR", env = "MIXER_ADAPTER_CONFIG")]
    config: ConfigUrl,

    /// Where sinks dial; mcps://HOST:PORT is TLS; port 0 takes a free port, which is printed
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9901", env = "MIXER_ADAPTER_LISTEN")]
    listen: ListenUrl,

    /// Where people and machines look: /healthz /readyz /metrics /config; plain HTTP [default: nowhere]
    #[arg(long, value_name = "HOST:PORT", env = "MIXER_ADAPTER_ADMIN", value_parser = values::address)]
    admin: Option<SocketAddr>,

    /// A sink to dial, mcp://HOST:PORT, or mcps:// for TLS; can be given several times
    #[arg(
        long = "sink",
        value_name = "URL",
        env = "MIXER_ADAPTER_SINK",
        value_delimiter = ',',
        value_parser = sink
    )]
    sinks: Vec<ConfigUrl>,

    /// The namespace of resources that name none
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "istio-system",
        env = "MIXER_ADAPTER_DEFAULT_CONFIG_NAMESPACE"
    )]
    default_config_namespace: String,

    /// Types of resources, beside Envoy's: an encoded FileDescriptorSet with all that it imports; can be given several times
    #[arg(long, value_name = "FILE", env = "MIXER_ADAPTER_DESCRIPTORS", value_delimiter = ',')]
    descriptors: Vec<PathBuf>,

    /// Streams of sinks at a time; one more is RESOURCE_EXHAUSTED
    #[arg(long, value_name = "N", default_value_t = 10_000, env = "MIXER_ADAPTER_MAX_SINKS")]
    max_sinks: usize,

    /// Streams that may open in a second, after a burst of 100; others wait
    #[arg(long, value_name = "N", default_value_t = 100, env = "MIXER_ADAPTER_MAX_NEW_SINKS", value_parser = clap::value_parser!(u32).range(1..))]
    max_new_sinks: u32,

    /// Requests that are read from a stream of MCP in a second, after a burst of 100; others wait
    #[arg(long, value_name = "N", default_value_t = 1, env = "MIXER_ADAPTER_MAX_REQUESTS", value_parser = clap::value_parser!(u32).range(1..))]
    max_requests: u32,

    /// The longest request message in bytes; when they come back, sinks say at length what they have
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20, env = "MIXER_ADAPTER_MAX_MESSAGE_SIZE")]
    max_message_size: usize,

    #[command(flatten)]
    security: Security,

    #[command(flatten)]
    logging: Logging,
}

/// How long streams have to hear that the source is going away.
const GRACE: Duration = Duration::from_secs(5);

impl Source {
    /// Serves until SIGTERM or Ctrl-C; a second one ends at once.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let ConfigUrl::Files(directory) = &self.config else {
            return Err(Usage(format!(
                "--config {}: only files can be served; give a directory",
                self.config
            ))
            .into());
        };
        let files = FileSource::new(directory, &self.default_config_namespace);
        let types = self.types()?;
        let sinks = self.peers()?;
        self.logging.start()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("the runtime cannot start")?;
        runtime.block_on(self.serve(files, types, sinks))?;
        Ok(ExitCode::SUCCESS)
    }

    fn types(&self) -> anyhow::Result<Types> {
        let mut types = Types::default();
        for path in &self.descriptors {
            let name = || format!("--descriptors {}", path.display());
            types.add(&fs::read(path).with_context(name)?).with_context(name)?;
        }
        Ok(types)
    }

    fn peers(&self) -> Result<Vec<Peer>, Usage> {
        let secured = self.sinks.iter().any(ConfigUrl::is_tls);
        let client = secured.then(|| self.security.client()).transpose()?;
        let peers = self.sinks.iter().filter_map(|sink| match (sink, &client) {
            (ConfigUrl::Mcp { address, tls: true }, Some(client)) => {
                Some(Peer::secured(address.as_str(), client.clone()))
            }
            (ConfigUrl::Mcp { address, tls: false }, _) => Some(Peer::new(address.as_str())),
            _ => None,
        });
        Ok(peers.collect())
    }

    async fn serve(&self, files: FileSource, types: Types, sinks: Vec<Peer>) -> anyhow::Result<()> {
        let source = source::ConfigServer::new(
            Catalogue::default().open(),
            ConfigServerOptions { requests: per_second(self.max_requests), ..ConfigServerOptions::default() },
        );
        let listener = bind(self.listen.address).await?;
        let address = listener.local_addr()?;
        let listener = self.secured(listener, address)?;
        let admin = match self.admin {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let stop = signals::stop()?;
        // Cuts off what did not end by itself.
        let cut = CancellationToken::new();
        let tasks = TaskTracker::new();
        // The server goes on where nobody reads this.
        let _ = super::print(&self.greeting(address, admin.as_ref())?);

        tokio::spawn(feed(source.clone(), files, types));
        let readiness = Readiness::default();
        let configured = readiness.register("configuration");
        let first = source.clone();
        tokio::spawn(async move {
            first.filled().await;
            drop(configured);
        });
        if let Some(admin) = admin {
            tasks.spawn(admin::serve(admin, self.config.to_string(), source.clone(), readiness, cut.clone()));
        }
        for sink in sinks {
            let (source, stop) = (source.clone(), cut.clone());
            tasks.spawn(async move { source::dial(source, sink, DialOptions::default(), stop).await });
        }
        tasks.spawn(listen(listener, self.services(&source), cut.clone()));
        tasks.close();

        stop.cancelled().await;
        source.close();
        let gone = async {
            while !source.sinks().is_empty() {
                time::sleep(Duration::from_millis(10)).await;
            }
        };
        // Whoever does not read by then is cut off.
        let _ = time::timeout(GRACE, gone).await;
        cut.cancel();
        tasks.wait().await;
        Ok(())
    }

    fn secured(&self, listener: TcpListener, address: SocketAddr) -> Result<Listener, Usage> {
        if self.listen.tls {
            return Ok(Listener::with_tls(listener, self.security.server()?));
        }
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "--listen without TLS: whoever reaches this port can read the configuration");
        }
        Ok(listener.into())
    }

    /// What sinks may call.
    fn services(&self, source: &source::ConfigServer) -> Routes {
        let options = ServiceOptions {
            max_streams: self.max_sinks,
            new_streams: per_second(self.max_new_sinks),
            max_message_size: self.max_message_size,
        };
        let mcp = Routes::new(ResourceSourceService::serve(source.clone(), &options));
        xds::source::mount(mcp, source, &options)
    }

    /// What is served, and where.
    fn greeting(&self, address: SocketAddr, admin: Option<&TcpListener>) -> anyhow::Result<String> {
        let mut lines = vec![format!("Serving {}", self.config), format!("gRPC on {address}")];
        if let Some(admin) = admin {
            lines.push(format!("Admin on http://{}", admin.local_addr()?));
        }
        let look = if self.listen.tls { "serve --config mcps" } else { "watch mcp" };
        let reached = values::reachable(address);
        lines.push(format!("Try `{} {look}://{reached}` in another terminal\n", super::program()));
        Ok(lines.join("\n"))
    }
}

/// So often in a second, after a burst of as many as Galley lets through at once (docs/behaviour/mcp.md#limits-of-a-source).
fn per_second(times: u32) -> Rate {
    Rate { burst: 100, every: Duration::from_secs(1) / times }
}

/// The URL of a sink.
fn sink(text: &str) -> Result<ConfigUrl, String> {
    match text.parse() {
        Ok(url @ ConfigUrl::Mcp { .. }) => Ok(url),
        Ok(_) => Err("write mcp://HOST:PORT, or mcps:// for TLS".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}
