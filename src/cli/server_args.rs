//! The servers that commands ask, and how commands authenticate themselves there.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use http::HeaderValue;

use super::{UsageError, input, value_parsers};
use mixer_adapter_core::framework::is_this_machine;
use mixer_adapter_net::tls::{Client, ClientOptions, KeyPair};

/// The gRPC server of a command.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// The server: this program's `serve`, a real Mixer or an adapter; HOST:PORT, or unix:/PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9091", value_parser = value_parsers::server)]
    pub(super) address: String,

    #[command(flatten)]
    pub(super) security: ClientSecurityArgs,
}

/// The admin port of a server.
#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    /// The admin port of the server; HOST:PORT
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:15014", value_parser = value_parsers::target)]
    pub(super) admin: String,

    #[command(flatten)]
    pub(super) security: ClientSecurityArgs,
}

/// TLS and the token of connections to a server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Security of the connection")]
pub(super) struct ClientSecurityArgs {
    /// Connect over TLS
    ///
    /// The files below imply it. Without --tls-ca-file the authorities of the system are trusted
    #[arg(long)]
    tls: bool,

    /// CA certificates to verify the server with
    #[arg(long, value_name = "FILE")]
    tls_ca_file: Option<PathBuf>,

    /// Certificate chain to show to the server
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    tls_cert_file: Option<PathBuf>,

    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,

    /// Name that the server's certificate must have [default: the host of the address]
    #[arg(long, value_name = "NAME")]
    pub(super) tls_server_name: Option<String>,

    /// File with a bearer token to show to the server
    ///
    /// The last word of its last line, so that the server's own file of names and tokens will do
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The security of the connections to a server.
#[derive(Clone, Debug)]
pub(super) struct ClientSecurity {
    pub(super) tls: Option<Arc<Client>>,
    pub(super) server_name: Option<String>,
    /// The value of the header `authorization`.
    pub(super) token: Option<HeaderValue>,
}

impl ClientSecurityArgs {
    /// Reads the files of connections to `address`.
    pub(super) fn open(&self, address: &str) -> anyhow::Result<ClientSecurity> {
        let identity = self.tls_cert_file.clone().zip(self.tls_key_file.clone());
        let is_tls =
            self.tls || self.tls_ca_file.is_some() || identity.is_some() || self.tls_server_name.is_some();
        let tls = is_tls.then(|| {
            Client::load(ClientOptions {
                system_roots: self.tls_ca_file.is_none(),
                authorities: self.tls_ca_file.clone(),
                identity: identity.map(|(certificate, key)| KeyPair { certificate, key }),
                ..ClientOptions::default()
            })
        });
        if self.token_file.is_some() && !is_tls && !is_local(address) {
            anyhow::bail!(usage!(
                "--token-file: a token is sent to other machines over TLS only: add --tls-ca-file FILE with the authority of {address}, or --tls for those of the system"
            ));
        }
        Ok(ClientSecurity {
            tls: tls.transpose()?,
            server_name: self.tls_server_name.clone(),
            token: self.token()?,
        })
    }

    fn token(&self) -> Result<Option<HeaderValue>, UsageError> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let fault = |reason: &dyn std::fmt::Display| usage!("--token-file: {} {reason}", file.display());
        let text = input::read_text(file).map_err(|error| fault(&format_args!("cannot be read: {error}")))?;
        let token = text.split_whitespace().next_back().ok_or_else(|| fault(&"has no token"))?;
        let header = HeaderValue::try_from(format!("Bearer {token}"));
        let mut header = header.map_err(|_| fault(&"has a token that no header can have"))?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

impl ClientSecurity {
    /// Returns the flags that the failure of a connection asks for. Without TLS, `address` is asked whether it speaks TLS.
    pub(super) async fn hint(&self, address: &str, failure: &str) -> Option<String> {
        let hint = match &self.tls {
            None if speaks_tls(address).await => {
                "the server speaks TLS: add --tls-ca-file FILE with the authority of its certificate, or --tls for those of the system"
            }
            Some(_) if failure.contains("InvalidContentType") => {
                "the server does not speak TLS: leave out --tls and the flags that begin so"
            }
            Some(_) if failure.contains("UnknownIssuer") => {
                "add --tls-ca-file FILE with the authority of the server's certificate"
            }
            Some(_) if failure.contains("not valid for name") => {
                "add --tls-server-name NAME with a name of the server's certificate"
            }
            Some(_) if failure.contains("CertificateRequired") => {
                "the server requires a certificate: add --tls-cert-file FILE and --tls-key-file FILE"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// The flags that an unauthenticated client lacks.
pub(super) const AUTHENTICATE: &str =
    "add --token-file FILE, or --tls-cert-file FILE and --tls-key-file FILE";

/// Returns whether an address is of this machine.
fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    address.starts_with("unix:") || is_this_machine(host)
}

/// The longest wait for the answer to something that is not TLS.
const PROBE: std::time::Duration = std::time::Duration::from_secs(2);

/// Returns whether a server answers something that is not TLS by an alert of TLS.
async fn speaks_tls(address: &str) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let probe = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.ok()?;
        let mut record = [0; 2];
        stream.read_exact(&mut record).await.ok()?;
        Some(record == [21, 3])
    };
    tokio::time::timeout(PROBE, probe).await.ok().flatten().unwrap_or(false)
}
