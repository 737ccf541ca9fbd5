mod memory_shares;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet, fmt::Write as _, net::SocketAddr, num::NonZeroUsize, path::PathBuf, sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, builder::TypedValueParser};
use tokio::sync::watch;

use self::memory_shares::MemoryShares;
#[cfg(feature = "redis")]
use super::session_args::OpenedSessions;
use super::{
    AddAdapters, UsageError,
    access_args::AccessArgs,
    config_args::{ConfigArgs, SAMPLE},
    decision_log_args::{self, DecisionLogArgs},
    limit_args::LimitArgs,
    log_args::LogArgs,
    port_args::{PortArgs, PortSecurity},
    shadow_args::{self, ShadowArgs},
    signals::Signals,
    source_args::{OpenedSources, SourceArgs},
    value_parsers,
};
use crate::service::{Bound, Server, ServerOptions, Workers};
use mixer_adapter_config::{self as config, Apply as _, Change, Update};
use mixer_adapter_core::{framework::version::SemanticVersion, metrics::Events, template::Variety};
use mixer_adapter_engine::{
    CacheLimits, CachedChecks, Controller, Mixer,
    build::{BuildOptions, Connector},
    remote,
};
use mixer_adapter_host::{
    Host,
    handler::{AdapterInfo, Closing, TableLimits},
    session::{SessionKey, SessionLookup, SessionOptions},
};
use mixer_adapter_net::{ListenAddress, grpc::StreamMemory, raise_open_files, read_file};
use mixer_adapter_streams::{
    ScopedUrl,
    proto::envoy::{
        config::core::v3::{BuildVersion, Extension},
        r#type::v3::SemanticVersion as EnvoyVersion,
    },
};

/// Run the server: adapters for a real Mixer, and the Mixer API
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Address of the gRPC port
    ///
    /// HOST:PORT, where port 0 uses a free port, which is printed; or a Unix socket, unix:/PATH, which only this user
    /// can use
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9091", value_parser = value_parsers::listen_address)]
    listen: ListenAddress,

    /// Address of the admin port, plain HTTP
    ///
    /// / is a page for browsers; /status /healthz /readyz /metrics /config /sessions /explain /decisions are for programs.
    /// HOST:PORT, or unix:/PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:15014", value_parser = value_parsers::listen_address)]
    admin: ListenAddress,

    /// Maximum number of cached check answers of the Mixer API, each valid as long as its adapters allow
    ///
    /// 0 disables the cache, as in Mixer since 1.1
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 0)]
    check_cache: usize,

    /// Checks of the Mixer API and of Envoy whose answers are cached
    ///
    /// `costly`: checks that cost more than a lookup, as /config on the admin port shows by namespace
    #[arg(long, hide_short_help = true, value_name = "CHECKS", default_value = "costly", value_parser = cached_checks())]
    cached_checks: CachedChecks,

    /// Serve explanations (`check --explain`, and /explain and /decisions on the admin port) on non-loopback ports, too
    ///
    /// Loopback ports always serve them
    #[arg(long, hide_short_help = true)]
    explain: bool,

    /// Threads that serve calls [default: one per core]
    ///
    /// Each has its own connections; as many more are for large calls
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// The configuration: the same as --config
    #[arg(value_name = "DIR|URL", conflicts_with = "config")]
    directory: Vec<ScopedUrl>,

    #[command(flatten)]
    configuration: ConfigArgs,

    #[command(flatten)]
    sources: SourceArgs,

    /// Close sessions and handlers that were not used for this time
    ///
    /// Handlers of calls that carry their configuration. 0 never does
    #[arg(long, help_heading = "Handlers and sessions", value_name = "DURATION", default_value = "24h", value_parser = value_parsers::duration)]
    session_idle: Duration,

    /// File with the key of session ids, at least 32 bytes
    ///
    /// Replicas with the same key give equal sessions equal ids [default: a random key]
    #[arg(long, help_heading = "Handlers and sessions", value_name = "FILE")]
    session_key_file: Option<PathBuf>,

    /// Sessions that calls without session id and configuration can find by their instances
    ///
    /// Those created on the same connection, or any
    #[arg(long, hide_short_help = true, help_heading = "Handlers and sessions", value_name = "SESSIONS", default_value = "own", value_parser = session_lookup())]
    session_lookup: SessionLookup,

    /// Time for which the state of a closed handler is retained, such as counters of quotas; 0 retains none
    #[arg(long, hide_short_help = true, help_heading = "Handlers and sessions", value_name = "DURATION", default_value = "1h", value_parser = value_parsers::duration)]
    state_retention: Duration,

    #[cfg(feature = "redis")]
    #[command(flatten)]
    shared_sessions: super::session_args::SessionArgs,

    #[command(flatten)]
    access: AccessArgs,

    /// Close connections at this age; 0 never does
    ///
    /// So that Mixers find new replicas
    #[arg(long, help_heading = "Limits", value_name = "DURATION", default_value = "0", value_parser = value_parsers::duration)]
    max_connection_age: Duration,

    /// Maximum memory for clients, such as 256Mi [default: 384Mi or less]
    ///
    /// For requests and answers in flight, handlers and their state, sessions and cached answers. The default is half of
    /// the memory of the machine or container if that is less than 384Mi
    #[arg(long, help_heading = "Limits", value_name = "BYTES", value_parser = value_parsers::bytes)]
    memory_limit: Option<usize>,

    #[command(flatten)]
    limits: LimitArgs,

    /// Maximum number of concurrent calls
    ///
    /// Connections share it fairly
    #[arg(long, help_heading = "Limits", value_name = "N", default_value_t = 16_384)]
    max_calls: usize,

    /// Maximum number of connections [default: by --memory-limit]
    ///
    /// At the limit, a new connection closes an idle one. Each takes about 48 KiB, which is not part of --memory-limit;
    /// the default is as many as take a quarter of --memory-limit
    #[arg(long, help_heading = "Limits", value_name = "N")]
    max_connections: Option<usize>,

    /// Maximum number of connections from one IP address [default: no limit]
    #[arg(long, hide_short_help = true, help_heading = "Limits", value_name = "N")]
    max_connections_per_peer: Option<usize>,

    /// Maximum duration of a call; 0 sets none
    ///
    /// The caller's deadline applies in any case
    #[arg(long, help_heading = "Limits", value_name = "DURATION", default_value = "0", value_parser = value_parsers::duration)]
    call_timeout: Duration,

    /// Interval of HTTP/2 pings to idle clients; 0 sends none
    #[arg(long, hide_short_help = true, help_heading = "Limits", value_name = "DURATION", default_value = "30s", value_parser = value_parsers::duration)]
    keepalive: Duration,

    /// Time for the whole shutdown
    ///
    /// Calls in flight have three quarters of it, and closing handlers the rest
    #[arg(long, help_heading = "Limits", value_name = "DURATION", default_value = "10s", value_parser = value_parsers::duration)]
    grace: Duration,

    #[cfg(feature = "envoy")]
    #[command(flatten)]
    envoy: super::envoy_args::EnvoyArgs,

    #[command(flatten)]
    decision_log: DecisionLogArgs,

    #[command(flatten)]
    shadow: ShadowArgs,

    #[command(flatten)]
    port: PortArgs,

    #[command(flatten)]
    logging: LogArgs,

    #[command(flatten)]
    otlp: super::otlp_args::OtlpArgs,
}

impl Serve {
    /// Serves until SIGTERM or Ctrl-C; a second signal exits immediately.
    pub(super) fn run(mut self, add: AddAdapters<'_>, sample: Option<&'static str>) -> anyhow::Result<()> {
        self.configuration.config.append(&mut self.directory);
        // Admin, housekeeping and closing run on other threads, so that calls do not delay them.
        let background = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("background")
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let lost_spans = Events::default();
        let traces = self.otlp.start(&background, &self.logging, lost_spans.clone())?;
        self.raise_open_files();
        let adapters = super::adapters(&background, add)?;
        let host = Host::new(adapters, self.table_limits(), Closing::on(background.handle().clone()));
        let access = self.access.policy(host.adapters(), self.memory().fetched)?;
        let host = host.with_session_options(self.session_options()?).with_access(access);
        #[cfg(feature = "redis")]
        let (host, session_warning) = match self.shared_sessions.open(&background)? {
            Some(OpenedSessions { store, warning }) => {
                let idle = value_parsers::unless_zero(self.session_idle);
                (host.with_session_store(store, idle), Some(warning))
            }
            None => (host, None),
        };
        let host = Arc::new(host);
        let threads = self
            .threads
            .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
        let workers = Workers::start(threads).context("cannot start the threads that serve calls")?;
        let security = Arc::new(self.port.open()?);
        let signals = Signals::handle(self.grace)?;
        background.spawn(reload(security.clone(), signals.reload.clone()));
        let served = background.block_on(async {
            let mixer = Mixer::new().with_limits(self.limits.limits().requests);
            let mixer = mixer.with_shadow(self.shadow.shadow(background.handle()), self.shadow.engine());
            let mixer = Arc::new(self.decision_log.add_to(mixer)?);
            let controller = self.controller(&mixer, &host, self.options_of_answers()?);
            let status = controller.status();
            let server = Server::new(host.clone(), self.options())
                .mixer(mixer.clone())
                .secured(security.tls.clone(), security.authorization.clone())
                .secured_admin(security.admin.clone());
            let server = server.lost_spans(lost_spans).config_status(status.clone());
            #[cfg(feature = "envoy")]
            let server = server.envoy(self.envoy.services(&mixer, background.handle()));
            let readiness = server.readiness().clone();
            #[cfg(feature = "redis")]
            if let Some(warning) = session_warning {
                readiness.warn(move || warning.lock().clone().into_iter().collect());
            }
            let hits = server.hits.clone();
            let bound = server.bind(self.listen.clone(), Some(self.admin.clone())).await?;
            let pushes = StreamMemory::new(self.memory().pushes);
            let reload = signals.reload.clone();
            if let Some(engine) = mixer.shadow_configuration() {
                let arguments = self.shadow.configuration(&self.configuration);
                let options = arguments.options()?.is_shadow(true);
                let controller = self.controller(engine, &host, options);
                let (status, mixer) = (controller.status(), mixer.clone());
                readiness.warn(move || shadow_args::warnings(&mixer, &status.lock()));
                let (reload, pushes) = (signals.reload.clone(), pushes.clone());
                let opened = self.sources.open(&arguments, extensions(&host), reload, pushes, None).await?;
                background.spawn(controller.follow(opened.sources));
            }
            let configuration = &self.configuration;
            let opened =
                self.sources.open(configuration, extensions(&host), reload, pushes, Some(hits)).await?;
            let OpenedSources { sources, listening: mcp } = opened;
            let is_configured = !sources.is_empty() || sample.is_some();
            if !sources.is_empty() {
                let current = status.clone();
                readiness.warn(move || current.lock().warnings());
                readiness.require(move || status.lock().pending());
                background.spawn(controller.follow(sources));
            } else if let Some(sample) = sample {
                use_sample(controller, sample, &configuration.default_config_namespace).await?;
            }
            // A closed stdout must not stop the server.
            let _ = super::print(&greeting(&host, &bound, mcp, is_configured)?);
            bound.run(&workers, signals.stop.clone()).await?;
            decision_log_args::flush(&mixer);
            Ok(())
        });
        if let Some(traces) = traces {
            background.block_on(traces.close());
        }
        // Tasks that still run were given up.
        background.shutdown_background();
        served
    }

    fn controller(&self, mixer: &Arc<Mixer>, host: &Arc<Host>, options: BuildOptions) -> Controller {
        let mut remote = remote::Options::default();
        remote.exported_span = self.otlp.exported_span();
        let connector = Connector { host: host.clone(), remote, closing: host.closing().clone() };
        let controller = Controller::new(mixer.clone(), host.clone(), Arc::new(connector), options);
        controller.with_losses(self.sources.losses())
    }

    /// The options of the configuration whose answers count.
    fn options_of_answers(&self) -> Result<BuildOptions, UsageError> {
        let mut options = self.configuration.options()?;
        let bytes = self.memory().answers;
        options.cached_checks = self.cached_checks;
        options.check_cache = CacheLimits::new(self.check_cache, bytes);
        #[cfg(feature = "envoy")]
        {
            let bytes = self.envoy.envoy_check_cache.unwrap_or(bytes);
            options.strict_check_cache = CacheLimits::new(usize::MAX, bytes);
        }
        Ok(options)
    }

    fn table_limits(&self) -> TableLimits {
        let shares = self.memory();
        let limits = self.limits.limits().handlers;
        limits
            .cached_bytes(shares.handlers)
            .state_bytes(shares.states)
            .state_retention(self.state_retention)
            .idle(value_parsers::unless_zero(self.session_idle))
    }

    fn session_options(&self) -> anyhow::Result<SessionOptions> {
        let limits = self.limits.limits().sessions.bytes(self.memory().sessions);
        let options = SessionOptions::default().lookup(self.session_lookup).limits(limits);
        let Some(path) = &self.session_key_file else { return Ok(options) };
        let key =
            read_file(path).with_context(|| format!("cannot read --session-key-file {}", path.display()))?;
        // The line end that editors and `openssl rand` append is not part of the key.
        let key = SessionKey::new(key.trim_ascii_end())
            .with_context(|| format!("cannot use --session-key-file {}", path.display()))?;
        Ok(options.key(key))
    }

    fn memory(&self) -> MemoryShares {
        MemoryShares::new(self.memory_limit, self.max_calls)
    }

    /// Lets the process have as many connections as the system allows, and warns if these are too few.
    fn raise_open_files(&self) {
        let open_files = raise_open_files();
        let options = self.options();
        let possible = options.possible_connections();
        if possible < options.max_connections {
            tracing::warn!(
                open_files,
                connections = possible,
                max_connections = options.max_connections,
                "the limit of open files allows fewer connections than --max-connections: raise it (ulimit -n, LimitNOFILE= of systemd)"
            );
        }
    }

    fn options(&self) -> ServerOptions {
        let memory = self.memory();
        ServerOptions {
            max_concurrent_calls: self.max_calls,
            max_call_bytes: memory.calls,
            max_connections: self
                .max_connections
                .unwrap_or_else(|| (memory.connections / CONNECTION_BYTES).max(MIN_CONNECTIONS)),
            max_connections_per_peer: self.max_connections_per_peer,
            max_connection_age: value_parsers::unless_zero(self.max_connection_age),
            grace: self.grace,
            keepalive: value_parsers::unless_zero(self.keepalive),
            call_timeout: value_parsers::unless_zero(self.call_timeout),
            session_idle: value_parsers::unless_zero(self.session_idle),
            explain: self.explain,
            ..self.limits.limits().server
        }
    }
}

fn session_lookup() -> impl TypedValueParser<Value = SessionLookup> {
    value_parsers::one_of([("own", SessionLookup::Own), ("any", SessionLookup::Any)])
}

fn cached_checks() -> impl TypedValueParser<Value = CachedChecks> {
    value_parsers::one_of([("costly", CachedChecks::Costly), ("all", CachedChecks::All)])
}

/// Reads certificates and tokens again at each SIGHUP, as sources do with the files of the configuration.
async fn reload(security: Arc<PortSecurity>, mut requests: watch::Receiver<()>) {
    while requests.changed().await.is_ok() {
        tracing::info!("SIGHUP: reloading certificates, tokens and files of the configuration");
        security.reload();
    }
}

/// The memory of a connection in bytes: mostly buffers of h2. 41 to 47 kB were measured, with and without a call of 16 KiB.
const CONNECTION_BYTES: usize = 48 << 10;

/// The least default of `--max-connections`.
const MIN_CONNECTIONS: usize = 256;

/// The adapters and their templates, as the extensions of an xDS node.
fn extensions(host: &Host) -> Vec<Extension> {
    let adapters = host.adapters().iter();
    let adapters = adapters.map(|adapter| extension("mixer.adapters", adapter.name, adapter.version));
    let served = host.adapters().iter().flat_map(|adapter| &adapter.templates);
    let templates: BTreeSet<&str> = served.map(|template| template.name).collect();
    adapters.chain(templates.into_iter().map(|name| extension("mixer.templates", name, None))).collect()
}

fn extension(category: &str, name: &str, version: Option<SemanticVersion>) -> Extension {
    let version = version.map(|SemanticVersion { major, minor, patch }| BuildVersion {
        version: Some(EnvoyVersion { major_number: major, minor_number: minor, patch }),
        ..BuildVersion::default()
    });
    Extension { name: name.to_owned(), category: category.to_owned(), version, ..Extension::default() }
}

/// Applies the configuration that is embedded in the program.
async fn use_sample(mut controller: Controller, sample: &str, namespace: &str) -> anyhow::Result<()> {
    let parsed = config::parse(sample, SAMPLE, namespace);
    let changes = Change::full_sets(parsed.resources);
    let update = Update { source: SAMPLE.into(), changes, faults: parsed.faults };
    controller.apply(update).await.map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("the sample configuration has errors: {}", faults.join("; "))
    })
}

/// The adapters and the addresses of the server.
fn greeting(
    host: &Host,
    bound: &Bound,
    mcp: Option<SocketAddr>,
    is_configured: bool,
) -> anyhow::Result<String> {
    let mut text = "Adapters:\n".to_owned();
    for adapter in host.adapters().iter() {
        let templates: Vec<&str> = adapter.templates.iter().map(|template| template.name).collect();
        let _ = writeln!(text, "  {:<14} {}", adapter.name, templates.join(", "));
    }
    let address = bound.grpc_address()?;
    let _ = writeln!(text, "gRPC on {address}");
    if let Some(admin) = bound.admin_address()? {
        let scheme = if bound.has_admin_tls() { "https" } else { "http" };
        let _ = writeln!(text, "Admin on {}", value_parsers::http_url(scheme, &admin));
    }
    if let Some(mcp) = mcp {
        let _ = writeln!(text, "Sources of configuration can connect to {mcp}");
    }
    let flag = if address.tcp() == Some(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT))) {
        String::new()
    } else {
        format!(" --address {}", value_parsers::reachable(&address))
    };
    let program = super::program::invocation();
    let command = command_to_try(host, is_configured, &flag);
    let _ = writeln!(text, "Try `{program} {command}` in another terminal");
    Ok(text)
}

/// A command that this server answers; `address` is the flag with its address.
fn command_to_try(host: &Host, is_configured: bool, address: &str) -> String {
    let reports =
        |adapter: &AdapterInfo| adapter.templates.iter().all(|template| template.variety == Variety::Report);
    if !is_configured {
        let needs_nothing =
            |adapter: &&Arc<AdapterInfo>| adapter.settings.iter().all(|setting| !setting.is_required);
        return match host.adapters().iter().find(needs_nothing) {
            Some(adapter) => {
                format!("call {} --adapter {}{address}", adapter.templates[0].name, adapter.name)
            }
            None => "adapters".to_owned(),
        };
    }
    if host.adapters().iter().all(|adapter| reports(adapter)) {
        let attributes = "request.url_path=/admin,request.time=2026-01-02T03:04:05Z";
        return format!("report --attributes {attributes}{address}");
    }
    format!("check --attributes request.url_path=/admin{address}")
}

const DEFAULT_PORT: u16 = 9091;
