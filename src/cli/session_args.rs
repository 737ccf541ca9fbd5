//! The Redis in which servers share sessions.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use clap::Args;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::UsageError;
use crate::{random::random_id, service::RedisSessions};
use mixer_adapter_redis::{Client, ConnectionError, Connector, Servers, Topology, UrlError};

/// Where servers share sessions.
#[derive(Debug, Args)]
#[command(next_help_heading = "Handlers and sessions")]
pub(super) struct SessionArgs {
    /// Share sessions in this Redis [default: in memory]
    ///
    /// With other servers. redis://HOST:PORT/DATABASE, or rediss:// for TLS. All servers need the same --session-key-file. The configurations of
    /// sessions are stored there
    #[arg(long, value_name = "URL", value_parser = redis_url, requires = "session_key_file")]
    sessions: Option<Servers>,

    /// User of the Redis of --sessions [default: its default user]
    #[arg(long, hide_short_help = true, value_name = "NAME", requires = "sessions")]
    sessions_username: Option<String>,

    /// File with the password of the Redis of --sessions
    ///
    /// It is read again for each connection. Other machines receive it over TLS only
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "sessions")]
    sessions_password_file: Option<PathBuf>,

    /// CA certificates to verify the Redis of --sessions with [default: the system's]
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "sessions")]
    sessions_ca_file: Option<PathBuf>,

    /// Name of the master, if the hosts of --sessions are Sentinels
    #[arg(long, hide_short_help = true, value_name = "NAME", requires = "sessions")]
    sessions_sentinel_master: Option<String>,

    /// File with the password of the Sentinels of --sessions
    ///
    /// As the password of the Redis
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "sessions_sentinel_master")]
    sessions_sentinel_password_file: Option<PathBuf>,
}

/// The start of the names of all keys.
const KEY_PREFIX: &str = "mixer-adapter";
/// How long the server waits for Redis at its start. It serves calls without.
const START_TIMEOUT: Duration = Duration::from_secs(1);

fn redis_url(url: &str) -> anyhow::Result<Servers> {
    Servers::parse(url).map_err(|error| match error {
        UrlError::UserInfo => anyhow!(
            "must not have a user name or a password; they are in --sessions-username and --sessions-password-file"
        ),
        error => error.into(),
    })
}

/// Sessions in Redis, and why it is not reached.
pub(super) struct OpenedSessions {
    pub(super) store: Arc<RedisSessions>,
    pub(super) warning: Arc<Mutex<Option<String>>>,
}

impl SessionArgs {
    /// Reads the files, and connects on a runtime.
    pub(super) fn open(&self, runtime: &Runtime) -> anyhow::Result<Option<OpenedSessions>> {
        let Some(servers) = self.servers()? else { return Ok(None) };
        let connector =
            runtime.block_on(Connector::open(servers, &mixer_adapter_core::Context::detached(())));
        let connector = connector.context("cannot use --sessions")?;
        let warning = Arc::new(Mutex::new(None));
        let shown = warning.clone();
        let on_change = move |error: Option<&ConnectionError>| {
            *shown.lock() = error.map(|error| {
                format!("the Redis of --sessions is away, so that sessions of other servers are not found: {error}")
            });
            match error {
                None => tracing::info!("connected to the Redis of --sessions"),
                Some(error) => {
                    tracing::warn!(%error, "the Redis of --sessions is away; known sessions go on")
                }
            }
        };
        let id = format!("{:016x}", random_id());
        let client = Arc::new(Client::new(connector, KEY_PREFIX.to_owned(), id, on_change));
        runtime.spawn(client.clone().maintain());
        // A server starts without Redis.
        let attempted = async { tokio::time::timeout(START_TIMEOUT, client.attempted()).await };
        let _ = runtime.block_on(attempted);
        Ok(Some(OpenedSessions { store: Arc::new(RedisSessions::new(client)), warning }))
    }

    fn servers(&self) -> Result<Option<Servers>, UsageError> {
        let Some(named) = &self.sessions else { return Ok(None) };
        let topology = self.sessions_sentinel_master.clone().map_or(Topology::Single, Topology::Sentinel);
        if topology == Topology::Single && named.addresses.len() > 1 {
            return Err(usage!(
                "--sessions has several hosts: they are Sentinels with --sessions-sentinel-master NAME"
            ));
        }
        let [password_file, sentinel_password_file, ca_file] =
            [&self.sessions_password_file, &self.sessions_sentinel_password_file, &self.sessions_ca_file]
                .map(|file| {
                    file.as_ref().map_or_else(String::new, |file| file.to_string_lossy().into_owned())
                });
        let servers = Servers {
            topology,
            username: self.sessions_username.clone().unwrap_or_default(),
            password_file,
            sentinel_password_file,
            ca_file,
            ..named.clone()
        };
        if servers.exposes_password() {
            return Err(usage!(
                "the passwords of --sessions are sent to other machines, which Sentinels can name, over TLS only: write rediss:// in --sessions"
            ));
        }
        if self.sessions_ca_file.is_some() && !servers.tls {
            return Err(usage!("--sessions-ca-file is for TLS: write rediss:// in --sessions"));
        }
        Ok(Some(servers))
    }
}
