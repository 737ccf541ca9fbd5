//! TLS of connections for configuration.

use std::{path::PathBuf, sync::Arc};

use clap::Args;

use super::UsageError;
use mixer_adapter_net::tls::{AccessSettings, Client, ClientOptions, Credentials, Server};

/// Certificates of this program, and the servers that it trusts.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS with servers of configuration")]
pub(super) struct ClientTlsArgs {
    /// Certificate chain of this program for mcps:// and xdss://
    ///
    /// This file and the next two may appear later, and are reloaded when they change
    #[arg(long, hide_short_help = true, value_name = "FILE", default_value = "/etc/certs/cert-chain.pem")]
    cert_file: PathBuf,

    /// Private key of that certificate
    #[arg(long, hide_short_help = true, value_name = "FILE", default_value = "/etc/certs/key.pem")]
    key_file: PathBuf,

    /// CA certificates to verify peers with
    #[arg(long, hide_short_help = true, value_name = "FILE", default_value = "/etc/certs/root-cert.pem")]
    ca_cert_file: PathBuf,

    /// SANs of mcps:// and xdss:// servers, such as spiffe://...; a certificate must have at least one
    ///
    /// Separated by commas [default: the host name of the URL]
    #[arg(long, hide_short_help = true, value_name = "SAN", value_delimiter = ',')]
    mcp_server_san: Vec<String>,
}

/// TLS of outbound and inbound connections.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS with servers of configuration")]
pub(super) struct TlsArgs {
    #[command(flatten)]
    pub(super) identity: ClientTlsArgs,

    /// SANs of peers that may connect to an mcps:// port, such as spiffe://...
    ///
    /// Separated by commas [default: nobody]
    #[arg(long, hide_short_help = true, value_name = "SAN", value_delimiter = ',')]
    mcp_allow: Vec<String>,

    /// File with further SANs, `allowed: [SAN]` in YAML as for Galley's --accessListFile
    ///
    /// Reloaded when it changes
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    mcp_allow_file: Option<PathBuf>,
}

impl ClientTlsArgs {
    /// TLS of outbound connections. A client with a token may have no certificate.
    pub(super) fn client(&self, has_token: bool) -> Result<Arc<Client>, UsageError> {
        let mut options = ClientOptions::mutual(self.credentials(), self.mcp_server_san.clone());
        if has_token && !self.cert_file.exists() {
            options.identity = None;
        }
        Client::new(options).map_err(UsageError::of)
    }

    /// Returns whether the certificate is another one than the default, which need not exist.
    pub(super) fn names_certificate(&self) -> bool {
        self.cert_file != Credentials::default().certificate
    }

    fn credentials(&self) -> Credentials {
        Credentials {
            certificate: self.cert_file.clone(),
            key: self.key_file.clone(),
            authorities: self.ca_cert_file.clone(),
        }
    }
}

impl TlsArgs {
    /// TLS of a listener.
    pub(super) fn server(&self) -> Result<Arc<Server>, UsageError> {
        let access = AccessSettings { allow: self.mcp_allow.clone(), file: self.mcp_allow_file.clone() };
        Server::new(self.identity.credentials(), access).map_err(UsageError::of)
    }
}
