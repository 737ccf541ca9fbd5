//! The attacked server: the binary with its defaults, on free ports.

use std::{
    io::Write as _,
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

use crate::source::Source;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    pid: u32,
    addresses: Addresses,
    /// The file of tokens, of a server that asks for them.
    tokens: Option<tempfile::NamedTempFile>,
}

/// What honest clients show to a server that asks for tokens.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The ports of a server, and its source of configuration.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    pub(crate) grpc: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// The metrics of the adapter `prometheus`, while it has a handler.
    pub(crate) prometheus: SocketAddr,
    /// The port for sources of configuration, if the server has one.
    pub(crate) mcp: SocketAddr,
    pub(crate) source: Option<Arc<Source>>,
}

impl Server {
    /// Starts the binary and waits until it listens, and is ready.
    pub(crate) async fn start(
        binary: &Path,
        grace: Duration,
        source: Option<Source>,
        needs_token: bool,
    ) -> anyhow::Result<Self> {
        let tokens = if needs_token { Some(tokens()?) } else { None };
        let (prometheus, mcp) = (free_address()?, free_address()?);
        let mut process = Command::new(binary)
            .env("MIXER_ADAPTER_PROMETHEUS_LISTEN", prometheus.to_string())
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"])
            .arg("--grace")
            .arg(format!("{}s", grace.as_secs()))
            .args(tokens.iter().flat_map(|file| ["--token-file".as_ref(), file.path().as_os_str()]))
            .args(source.as_ref().map(|source| source.arguments(mcp)).unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!("cannot start {}; build it with `cargo build --release`", binary.display())
            })?;
        let pid = process.id().context("the server has ended")?;
        let stdout = process.stdout.take().context("the server has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let (mut grpc, mut admin) = (None, None);
        while let Some(line) = lines.next_line().await? {
            if let Some(address) = line.strip_prefix("gRPC on ") {
                grpc = Some(address.parse()?);
            } else if let Some(address) = line.strip_prefix("Admin on http://") {
                admin = Some(address.parse()?);
            }
            if let (Some(grpc), Some(admin)) = (grpc, admin) {
                // Lines that follow, such as those of the adapter `stdio`, must not fill the pipe.
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                while !is_ready(admin).await? {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                let source = source.map(Arc::new);
                let addresses = Addresses { grpc, admin, prometheus, mcp, source };
                return Ok(Self { process, pid, addresses, tokens });
            }
        }
        anyhow::bail!("the server ended before it listened")
    }

    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses.clone()
    }

    /// Returns what honest clients have to show.
    pub(crate) fn token(&self) -> Option<&'static str> {
        self.tokens.as_ref().map(|_| TOKEN)
    }

    /// Returns the most memory the server has had, in bytes.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
        let kibibytes: u64 = peak.trim().trim_end_matches(" kB").parse()?;
        Ok(kibibytes << 10)
    }

    /// Sends SIGTERM and returns the time until the server has ended, at most `limit`.
    pub(crate) async fn stop(mut self, limit: Duration) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("a process id")?;
        kill_process(pid, Signal::TERM)?;
        match tokio::time::timeout(limit, self.process.wait()).await {
            Ok(ended) => {
                ended?;
            }
            Err(_) => self.process.kill().await?,
        }
        Ok(start.elapsed())
    }
}

/// A file with the token of honest clients.
fn tokens() -> anyhow::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new()?;
    writeln!(file, "honest {TOKEN}")?;
    Ok(file)
}

/// Returns an address that is free now.
fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

/// Returns whether a server is ready.
async fn is_ready(admin: SocketAddr) -> anyhow::Result<bool> {
    Ok(get(admin, "/readyz").await?.starts_with("HTTP/1.1 200"))
}

/// Returns what a port answers to a GET, headers included.
pub(crate) async fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
