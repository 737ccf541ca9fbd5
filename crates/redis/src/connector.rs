//! Connections to Redis.

use std::{io, net::SocketAddr, time::Duration};

use mixer_adapter_core::{
    AdapterError, Context,
    adapter::{Access, Secret},
};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, FromRedisValue, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisError, RedisFuture, ScriptInvocation, TlsCertificates,
    aio::MultiplexedConnection,
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    io::{AsyncDNSResolver, tcp::TcpSettings},
    sentinel::{SentinelClientBuilder, SentinelServerType},
};

use crate::servers::{Servers, Topology};

/// How long a connection may take to establish, TLS and authentication included.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that could not be established, or that ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// Redis refuses, or is not reached.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// A file with a password changed and cannot be read.
    #[error("the password cannot be read: {0}")]
    Password(io::Error),
    /// Redis does not answer.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// A connection to the server with all keys, or to the nodes of a cluster. Clones share it.
#[derive(Clone)]
pub(crate) enum Connection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    /// Runs a script, and loads it first if the server does not have it.
    pub(crate) async fn invoke<T: FromRedisValue>(
        &mut self,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, RedisError> {
        match self {
            Self::Server(connection) => call.invoke_async(connection).await,
            Self::Cluster(connection) => call.invoke_async(connection).await,
        }
    }

    /// Runs a command.
    pub(crate) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        match self {
            Self::Server(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }
}

/// Establishes connections.
#[derive(Debug)]
pub struct Connector {
    servers: Servers,
    password: Option<Secret>,
    sentinel_password: Option<Secret>,
    certificates: Option<TlsCertificates>,
    access: Access,
}

impl Connector {
    /// Reads the files of the configuration.
    ///
    /// # Errors
    /// INVALID_ARGUMENT that names the field of a file that cannot be read.
    pub async fn open(servers: Servers, context: &Context) -> Result<Self, AdapterError> {
        let password = context.optional_secret("password_file", &servers.password_file).await?;
        let sentinel_password =
            context.optional_secret("sentinel_password_file", &servers.sentinel_password_file).await?;
        let certificates = match servers.ca_file.as_str() {
            "" => None,
            path => {
                let root_cert = Some(context.read("ca_file", path).await?);
                Some(TlsCertificates { client_tls: None, root_cert })
            }
        };
        Ok(Self { servers, password, sentinel_password, certificates, access: context.access().clone() })
    }

    /// Connects to the master, which Sentinels name, or to the nodes of a cluster.
    pub(crate) async fn connect(&self) -> Result<Connection, ConnectionError> {
        let redis = RedisConnectionInfo::default().set_db(self.servers.database);
        let redis = match self.servers.username.as_str() {
            "" => redis,
            name => redis.set_username(name),
        };
        let redis = match &self.password {
            Some(secret) => {
                redis.set_password(secret.text().await.map_err(ConnectionError::Password)?.expose())
            }
            None => redis,
        };
        let client = match &self.servers.topology {
            Topology::Cluster => return Ok(Connection::Cluster(self.cluster(&redis).await?)),
            Topology::Sentinel(master) => self.master(master, &redis).await?,
            Topology::Single => {
                let address = self.addresses().next().ok_or_else(no_address)?;
                let info = address.into_connection_info()?.set_redis_settings(redis);
                let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
                match &self.certificates {
                    Some(certificates) => Client::build_with_tls(info, certificates.clone())?,
                    None => Client::open(info)?,
                }
            }
        };
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let config = config.set_dns_resolver(Resolver(self.access.clone()));
        Ok(Connection::Server(client.get_multiplexed_async_connection_with_config(&config).await?))
    }

    async fn cluster(&self, redis: &RedisConnectionInfo) -> Result<ClusterConnection, RedisError> {
        let nodes = self.addresses().map(|address| address.into_connection_info());
        let mut builder = ClusterClient::builder(nodes.collect::<Result<Vec<_>, RedisError>>()?)
            // A redirection counts as a retry.
            .retries(3)
            .min_retry_wait(1)
            .max_retry_wait(10)
            .connection_timeout(CONNECT_TIMEOUT)
            .response_timeout(CONNECT_TIMEOUT)
            .tcp_settings(TcpSettings::default().set_nodelay(true))
            .async_dns_resolver(Resolver(self.access.clone()));
        if let Some(name) = redis.username() {
            builder = builder.username(name);
        }
        if let Some(password) = redis.password() {
            builder = builder.password(password);
        }
        if let Some(certificates) = &self.certificates {
            builder = builder.certs(certificates.clone());
        }
        builder.build()?.get_async_connection().await
    }

    /// Asks the Sentinels for the server that is the master now.
    async fn master(&self, name: &str, redis: &RedisConnectionInfo) -> Result<Client, ConnectionError> {
        let mut builder = SentinelClientBuilder::new(self.addresses(), name, SentinelServerType::Master)?
            .set_client_to_redis_db(redis.db())
            .set_client_to_redis_tcp_settings(TcpSettings::default().set_nodelay(true));
        if let Some(name) = redis.username() {
            builder = builder.set_client_to_redis_username(name);
        }
        if let Some(password) = redis.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(secret) = &self.sentinel_password {
            let password = secret.text().await.map_err(ConnectionError::Password)?;
            builder = builder.set_client_to_sentinel_password(password.expose());
        }
        if self.servers.tls {
            builder = builder.set_client_to_redis_tls_mode(redis::TlsMode::Secure);
        }
        if let Some(certificates) = &self.certificates {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates.clone());
        }
        Ok(builder.build()?.async_get_client().await?)
    }

    fn addresses(&self) -> impl Iterator<Item = ConnectionAddr> {
        self.servers.addresses.iter().cloned().map(|(host, port)| {
            if self.servers.tls {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            } else {
                ConnectionAddr::Tcp(host, port)
            }
        })
    }
}

fn no_address() -> RedisError {
    (ErrorKind::InvalidClientConfig, "the URL has no host").into()
}

/// Returns the addresses of a host to which the configuration may connect; the nodes of a cluster name other hosts.
struct Resolver(Access);

impl AsyncDNSResolver for Resolver {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            if !self.0.allows_host(host) {
                return Err((
                    ErrorKind::InvalidClientConfig,
                    "the host is not in --allow-hosts",
                    host.to_owned(),
                )
                    .into());
            }
            let all = tokio::net::lookup_host((host, port)).await?;
            let allowed = all.filter(|address| self.0.allows_address(host, address.ip()));
            let allowed: Vec<SocketAddr> = allowed.collect();
            if allowed.is_empty() {
                let reason = "the host has no address to which the configuration may connect";
                return Err((ErrorKind::InvalidClientConfig, reason, host.to_owned()).into());
            }
            Ok(Box::new(allowed.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}
