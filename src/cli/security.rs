//! TLS of the connections that configuration comes and goes by.

use std::{path::PathBuf, sync::Arc};

use clap::Args;

use super::Usage;
use mixer_adapter_net::tls::{AccessSettings, Client, ClientOptions, Credentials, Server, TlsError};

/// Who this program is on mcps:// connections, and whom it dials.
#[derive(Debug, Args)]
pub(super) struct Identity {
    /// This program's certificate, for mcps://. The files of this and the next two are waited for, and followed when they change
    #[arg(
        long,
        value_name = "FILE",
        env = "MIXER_ADAPTER_CERT_FILE",
        default_value = "/etc/certs/cert-chain.pem"
    )]
    cert_file: PathBuf,

    /// The key of that certificate
    #[arg(long, value_name = "FILE", env = "MIXER_ADAPTER_KEY_FILE", default_value = "/etc/certs/key.pem")]
    key_file: PathBuf,

    /// The authorities that the certificates of others are to come from
    #[arg(
        long,
        value_name = "FILE",
        env = "MIXER_ADAPTER_CA_CERT_FILE",
        default_value = "/etc/certs/root-cert.pem"
    )]
    ca_cert_file: PathBuf,

    /// Whom to take for the server of mcps://, by a SAN of its certificate, spiffe://...; several with commas [default: who has
    /// the name that is dialed]
    #[arg(long, value_name = "SAN", env = "MIXER_ADAPTER_MCP_SERVER_SAN", value_delimiter = ',')]
    mcp_server_san: Vec<String>,
}

/// The same, and who may dial this program.
#[derive(Debug, Args)]
pub(super) struct Security {
    #[command(flatten)]
    identity: Identity,

    /// Who may dial an mcps:// port, by a SAN of the certificate, spiffe://...; several with commas [default: nobody]
    #[arg(long, value_name = "SAN", env = "MIXER_ADAPTER_MCP_ALLOW", value_delimiter = ',')]
    mcp_allow: Vec<String>,

    /// A file with more of these, `allowed: [SAN]` in YAML as for Galley's --accessListFile; followed when it changes
    #[arg(long, value_name = "FILE", env = "MIXER_ADAPTER_MCP_ALLOW_FILE")]
    mcp_allow_file: Option<PathBuf>,
}

impl Identity {
    /// For connections that are dialed.
    pub(super) fn client(&self) -> Result<Arc<Client>, Usage> {
        let options = ClientOptions::mutual(self.credentials(), self.mcp_server_san.clone());
        Client::new(options).map_err(usage)
    }

    fn credentials(&self) -> Credentials {
        Credentials {
            certificate: self.cert_file.clone(),
            key: self.key_file.clone(),
            authorities: self.ca_cert_file.clone(),
        }
    }
}

impl Security {
    /// For connections that are dialed.
    pub(super) fn client(&self) -> Result<Arc<Client>, Usage> {
        self.identity.client()
    }

    /// For a port.
    pub(super) fn server(&self) -> Result<Arc<Server>, Usage> {
        let access = AccessSettings { allow: self.mcp_allow.clone(), file: self.mcp_allow_file.clone() };
        Server::new(self.identity.credentials(), access).map_err(usage)
    }
}

fn usage(error: TlsError) -> Usage {
    Usage(error.to_string())
}
