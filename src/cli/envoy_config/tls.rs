//! TLS of Envoy's connections.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use clap::Args;
use serde::Serialize;

use super::host_and_port;
use crate::cli::value_parsers::socket_path;

/// Files of certificates, as Envoy finds them.
#[derive(Debug, Args, Serialize)]
#[command(next_help_heading = "TLS")]
pub(super) struct EnvoyTlsArgs {
    /// CA certificates of this server's gRPC port, which Envoy then connects to by TLS
    #[arg(long, value_name = "FILE")]
    server_ca_file: Option<PathBuf>,

    /// SAN that the certificate of this server's port has, such as spiffe://... [default: the host of --address]
    #[arg(long, value_name = "SAN", requires = "server_ca_file")]
    server_san: Option<String>,

    /// Certificate chain that Envoy shows to this server
    #[arg(long, value_name = "FILE", requires_all = ["server_ca_file", "envoy_key_file"])]
    envoy_cert_file: Option<PathBuf>,

    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "envoy_cert_file")]
    envoy_key_file: Option<PathBuf>,

    /// Token that Envoy shows to this server as `authorization: Bearer TOKEN`
    ///
    /// A file that Envoy reads when it starts
    #[arg(long, value_name = "FILE", requires = "server_ca_file", conflicts_with_all = ["istio", "gateway"])]
    server_token_file: Option<PathBuf>,

    /// Certificate chain of Envoy's listener, which then serves TLS alone
    #[arg(long, value_name = "FILE", requires = "listener_key_file")]
    listener_cert_file: Option<PathBuf>,

    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "listener_cert_file")]
    listener_key_file: Option<PathBuf>,

    /// CA certificates of clients, which then have to show a certificate
    ///
    /// Its name is source.principal
    #[arg(long, value_name = "FILE", requires = "listener_cert_file")]
    listener_client_ca_file: Option<PathBuf>,

    /// CA certificates of the service behind Envoy, which Envoy then connects to by TLS
    #[arg(long, value_name = "FILE")]
    upstream_ca_file: Option<PathBuf>,

    /// Certificate chain that Envoy shows to the service
    #[arg(long, value_name = "FILE", requires_all = ["upstream_ca_file", "upstream_key_file"])]
    upstream_cert_file: Option<PathBuf>,

    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "upstream_cert_file")]
    upstream_key_file: Option<PathBuf>,
}

/// TLS of connections to a server.
#[derive(Serialize)]
pub(super) struct ClientTls<'a> {
    authorities: &'a Path,
    certificate: Option<&'a Path>,
    key: Option<&'a Path>,
    /// `None` for an IP address.
    sni: Option<&'a str>,
    san: &'a str,
    san_type: &'static str,
}

impl EnvoyTlsArgs {
    /// TLS of connections to this server; `None` for plain text.
    pub(super) fn server<'a>(&'a self, address: &'a str) -> Option<ClientTls<'a>> {
        let identity = [&self.envoy_cert_file, &self.envoy_key_file].map(Option::as_deref);
        let san = self.server_san.as_deref();
        Some(ClientTls::new(self.server_ca_file.as_deref()?, identity, address, san))
    }

    /// TLS of connections to the service behind Envoy; `None` for plain text.
    pub(super) fn upstream<'a>(&'a self, address: &'a str) -> Option<ClientTls<'a>> {
        let identity = [&self.upstream_cert_file, &self.upstream_key_file].map(Option::as_deref);
        Some(ClientTls::new(self.upstream_ca_file.as_deref()?, identity, address, None))
    }
}

impl<'a> ClientTls<'a> {
    fn new(
        authorities: &'a Path,
        [certificate, key]: [Option<&'a Path>; 2],
        address: &'a str,
        san: Option<&'a str>,
    ) -> Self {
        let host = if socket_path(address).is_some() { "localhost" } else { host_and_port(address).0 };
        let san = san.unwrap_or(host);
        let san_type = match san.parse::<IpAddr>() {
            Ok(_) => "IP_ADDRESS",
            Err(_) if san.contains("://") => "URI",
            Err(_) => "DNS",
        };
        let sni = Some(host).filter(|host| host.parse::<IpAddr>().is_err());
        Self { authorities, certificate, key, sni, san, san_type }
    }
}
