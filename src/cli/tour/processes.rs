//! The processes of a tour: this program's server, an upstream and Envoy.

use std::{env, net::SocketAddr, path::Path, process::Stdio, time::Duration};

use anyhow::Context as _;
use axum::{Router, extract::Request};
use bytes::Bytes;
use mixer_adapter_net::HttpClient;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStdout, Command},
};

use crate::cli::program;

/// How long a process may take to start.
const START: Duration = Duration::from_secs(30);

/// This program with a command, without the environment of another one.
pub(super) fn own(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(env::current_exe().context("this program's file is unknown")?);
    let prefix = program::prefix();
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with(&prefix) {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

/// The output of this program with a command.
pub(super) async fn output(arguments: &[&str]) -> anyhow::Result<String> {
    let ran = own(arguments)?.output().await?;
    let [printed, error] = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    anyhow::ensure!(ran.status.success(), "{}:\n{}", arguments[0], (printed + &error).trim());
    Ok(printed)
}

/// A server of this program; killed when this is dropped.
pub(super) struct ServerProcess {
    pub(super) grpc: String,
    pub(super) admin: String,
    /// The endpoint of the prometheus adapter.
    pub(super) metrics: String,
    pub(super) lines: Lines<BufReader<ChildStdout>>,
    pub(super) child: Child,
}

impl ServerProcess {
    /// Starts a server with a configuration and further flags. `log` is its filter unless the flags have one.
    pub(super) async fn start(config: &str, flags: &[String], log: Option<&str>) -> anyhow::Result<Self> {
        // Free now; another process could take it before the adapter does.
        let metrics = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.to_string();
        let mut command = own(&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])?;
        command.args(["--config", config]).args(flags);
        command.envs(log.map(|log| (format!("{}LOG", program::prefix()), log)));
        command.env("MIXER_ADAPTER_PROMETHEUS_LISTEN", &metrics).stdout(Stdio::piped());
        let mut child = command.spawn().context("the server cannot be started")?;
        let mut lines = BufReader::new(child.stdout.take().context("the server has no output")?).lines();
        let mut address = async |before: &str| {
            while let Some(line) = lines.next_line().await? {
                if let Some(address) = line.strip_prefix(before) {
                    return Ok(address.to_owned());
                }
            }
            anyhow::bail!("the server did not start")
        };
        let (grpc, admin) = (address("gRPC on ").await?, address("Admin on http://").await?);
        address("Try ").await?;
        let server = Self { grpc, admin, metrics, lines, child };
        until("the server is ready", async || get(&server.admin, "/readyz").await.is_ok()).await?;
        Ok(server)
    }
}

/// A running Envoy; killed when this is dropped.
pub(super) struct EnvoyProcess {
    pub(super) front: String,
    pub(super) admin: String,
    pub(super) child: Child,
}

impl EnvoyProcess {
    pub(super) async fn start(program: &Path, folder: &Path, bootstrap: &str) -> anyhow::Result<Self> {
        let (config, admin) = (folder.join("envoy.yaml"), folder.join("envoy-admin"));
        std::fs::write(&config, bootstrap).context("the bootstrap of Envoy cannot be written")?;
        let mut child = Command::new(program)
            .arg("-c")
            .arg(&config)
            .arg("--admin-address-path")
            .arg(&admin)
            .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "error"])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let mut addresses = None;
        until("Envoy listens", async || {
            addresses = addresses_of_envoy(&admin).await;
            addresses.is_some() || child.try_wait().is_ok_and(|ended| ended.is_some())
        })
        .await?;
        let (admin, front) = addresses.context("Envoy did not start")?;
        Ok(Self { front, admin, child })
    }
}

/// The addresses of Envoy's admin port and of its listener.
async fn addresses_of_envoy(file: &Path) -> Option<(String, String)> {
    let admin = std::fs::read_to_string(file).ok().filter(|address| !address.is_empty())?;
    let listeners = get(&admin, "/listeners").await.ok()?;
    let front = listeners.lines().find_map(|line| line.strip_prefix("front::"))?;
    Some((admin, front.to_owned()))
}

/// Starts an upstream that answers with the request as it arrived.
pub(super) async fn start_upstream() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let echo =
        |request: Request| async move { format!("upstream: {} {}\n", request.method(), request.uri()) };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(echo)).await });
    Ok(address)
}

/// Waits until a condition holds, which is polled.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
    let poll = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(START, poll).await.with_context(|| format!("not within {START:?}: {what}"))
}

/// The body of a page with the status 200.
pub(super) async fn get(address: &str, path: &str) -> anyhow::Result<String> {
    let response = request(address, path, &[]).await?;
    anyhow::ensure!(response.status().is_success(), "{path}: {}", response.status());
    Ok(String::from_utf8_lossy(response.body()).into_owned())
}

pub(super) async fn request(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> anyhow::Result<http::Response<Bytes>> {
    let mut request = http::Request::get(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Ok(HttpClient::new(START, 1 << 20).send(request.body(Bytes::new())?).await?)
}
