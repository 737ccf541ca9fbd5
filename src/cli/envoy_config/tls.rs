//! TLS of Envoy's connections.

use std::{net::IpAddr, path::PathBuf};

use clap::Args;

use super::template::{fill, quoted};
use crate::cli::value_parsers::socket_path;

/// The protocols of connections for gRPC.
pub(super) const HTTP2_ALONE: &str = "alpn_protocols: [h2]";

/// Files of certificates, as Envoy finds them.
#[derive(Debug, Args)]
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

impl EnvoyTlsArgs {
    /// The transport socket of connections to this server; empty without TLS.
    pub(super) fn server(&self, address: &str) -> String {
        let certificate = self.envoy_cert_file.as_ref().zip(self.envoy_key_file.as_ref());
        client(
            self.server_ca_file.as_ref(),
            certificate,
            host(address),
            self.server_san.as_deref(),
            HTTP2_ALONE,
        )
    }

    /// The secrets of the bootstrap; empty without a token.
    pub(super) fn secrets(&self) -> String {
        let token = self.server_token_file.as_ref();
        token.map_or_else(String::new, |token| fill(SECRETS, &[("$FILE", &file(token))]))
    }

    /// The filters of calls to this server; empty without a token.
    pub(super) fn server_filters(&self) -> &'static str {
        if self.server_token_file.is_some() { SERVER_FILTERS } else { "" }
    }

    /// The transport socket of connections to the service, with these protocols; empty without TLS.
    pub(super) fn upstream(&self, address: &str, alpn: &str) -> String {
        let certificate = self.upstream_cert_file.as_ref().zip(self.upstream_key_file.as_ref());
        client(self.upstream_ca_file.as_ref(), certificate, host(address), None, alpn)
    }

    /// The transport socket of the listener, which is for HTTP unless it is for any protocol; empty without TLS.
    pub(super) fn listener(&self, is_any: bool) -> String {
        let Some(certificate) = self.listener_cert_file.as_ref().zip(self.listener_key_file.as_ref()) else {
            return String::new();
        };
        let clients = self.listener_client_ca_file.as_ref().map_or_else(String::new, |authorities| {
            format!("validation_context: {{trusted_ca: {}}}", file(authorities))
        });
        let require = if clients.is_empty() { "" } else { "require_client_certificate: true" };
        fill(
            LISTENER,
            &[
                ("$CERTIFICATE", &self::certificate(certificate)),
                ("$CLIENTS", &clients),
                ("$REQUIRE", require),
                ("$ALPN", if is_any { "" } else { "alpn_protocols: [h2, http/1.1]" }),
            ],
        )
    }
}

fn client(
    authorities: Option<&PathBuf>,
    certificate: Option<(&PathBuf, &PathBuf)>,
    host: &str,
    san: Option<&str>,
    alpn: &str,
) -> String {
    let Some(authorities) = authorities else { return String::new() };
    let san = san.unwrap_or(host);
    let san_type = match san.parse::<IpAddr>() {
        Ok(_) => "IP_ADDRESS",
        Err(_) if san.contains("://") => "URI",
        Err(_) => "DNS",
    };
    let sni = if host.parse::<IpAddr>().is_ok() { String::new() } else { format!("sni: {}", quoted(host)) };
    let certificate = certificate.map(self::certificate).unwrap_or_default();
    fill(
        CLIENT,
        &[
            ("$SNI", &sni),
            ("$ALPN", alpn),
            ("$CERTIFICATE", &certificate),
            ("$AUTHORITIES", &file(authorities)),
            ("$TYPE", san_type),
            ("$SAN", &quoted(san)),
        ],
    )
}

fn certificate((chain, key): (&PathBuf, &PathBuf)) -> String {
    format!("tls_certificates: [{{certificate_chain: {}, private_key: {}}}]", file(chain), file(key))
}

fn file(path: &std::path::Path) -> String {
    format!("{{filename: {}}}", quoted(&path.display().to_string()))
}

/// The host of an address, without the brackets of IPv6.
fn host(address: &str) -> &str {
    if socket_path(address).is_some() {
        return "localhost";
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

const CLIENT: &str = include_str!("templates/tls_client.yaml");

const SECRETS: &str = include_str!("templates/secrets.yaml");

const SERVER_FILTERS: &str = include_str!("templates/server_token.yaml");

const LISTENER: &str = include_str!("templates/tls_listener.yaml");
