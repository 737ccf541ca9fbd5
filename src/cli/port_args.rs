//! Security of the gRPC port, and of the admin port.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context as _;
use clap::Args;
use mixer_adapter_net::{
    Authorization, Tokens,
    tls::{KeyPair, Server, ServerOptions},
};
#[cfg(feature = "tls")]
use mixer_adapter_net::{JwtOptions, JwtVerifier};

use super::{UsageError, value_parsers};
use crate::service::{AdminSecurity, SERVICE_GROUPS, service_group};

/// The clients that may connect to the gRPC port, and the services that they may call.
#[derive(Debug, Args)]
#[command(next_help_heading = "Security of the gRPC port")]
pub(super) struct PortArgs {
    /// Certificate chain, for TLS alone
    ///
    /// This file and the next three are reloaded when they change
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    tls_cert_file: Option<PathBuf>,

    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,

    /// CA certificates of clients, which must then have a certificate
    ///
    /// Or a token, with --token-file or --jwks
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_client_ca_file: Option<PathBuf>,

    /// SANs of clients, such as spiffe://...; a certificate must have at least one
    ///
    /// Separated by commas [default: any]
    #[arg(
        long,
        hide_short_help = true,
        value_name = "SAN",
        value_delimiter = ',',
        requires = "tls_client_ca_file"
    )]
    client_san: Vec<String>,

    /// File of bearer tokens that clients must have
    ///
    /// Each line has a name and a token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// JSON Web Key Set for bearer tokens of clients
    ///
    /// The tokens are JSON Web Tokens signed with RS256 or ES256. Their subject is the name of the client. Reloaded when it changes
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE")]
    jwks: Option<PathBuf>,

    /// Issuer that JSON Web Tokens must have [default: any whose keys are in the file]
    #[cfg(feature = "tls")]
    #[arg(long, hide_short_help = true, value_name = "ISSUER", requires = "jwks")]
    jwt_issuer: Option<String>,

    /// Accepted audiences of JSON Web Tokens, separated by commas [default: only tokens without an audience]
    #[cfg(feature = "tls")]
    #[arg(long, hide_short_help = true, value_name = "AUDIENCE", value_delimiter = ',', requires = "jwks")]
    jwt_audience: Vec<String>,

    /// Header that tokens are in
    ///
    /// In `authorization` they may have `Bearer` before them
    #[arg(long, hide_short_help = true, value_name = "NAME", default_value = "authorization", value_parser = value_parsers::header)]
    token_header: http::HeaderName,

    /// Allow a client to call a group of services [default: all clients]
    ///
    /// The client is named by its SAN, or the name or subject of its token. Other clients may not call the group. Groups: templates, sessions, mixer, explain, reflection, envoy. Can be repeated, or
    /// separated by commas
    #[arg(long, value_name = "GROUP=NAME", value_delimiter = ',', value_parser = value_parsers::grant)]
    allow: Vec<(String, String)>,

    /// File of tokens; requests to the admin port must have one of them
    ///
    /// As a bearer token, or as the password that a browser asks for; the file is like that of --token-file. Then /explain and /decisions
    /// answer on non-loopback ports, too. /healthz, /readyz and /metrics need no token
    #[arg(long, hide_short_help = true, help_heading = ADMIN, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,

    /// Serve the admin port over TLS, with the certificate of --tls-cert-file
    #[arg(long, hide_short_help = true, help_heading = ADMIN, requires = "tls_cert_file")]
    admin_tls: bool,
}

const ADMIN: &str = "Security of the admin port";

/// The security of the ports.
pub(super) struct PortSecurity {
    pub(super) tls: Option<Arc<Server>>,
    pub(super) authorization: Arc<Authorization>,
    pub(super) admin: AdminSecurity,
}

impl PortArgs {
    /// Reads the files.
    pub(super) fn open(&self) -> anyhow::Result<PortSecurity> {
        let identity = self.tls_cert_file.clone().zip(self.tls_key_file.clone());
        let options = identity.map(|(certificate, key)| ServerOptions {
            identity: KeyPair { certificate, key },
            client_authorities: self.tls_client_ca_file.clone(),
            optional_certificates: self.knows_tokens(),
            http1: false,
        });
        // Browsers and Prometheus need no certificate.
        let admin = options.clone().filter(|_| self.admin_tls);
        let admin = admin.map(|options| {
            let options = ServerOptions { client_authorities: None, http1: true, ..options };
            Server::load(options).context("cannot serve TLS on the admin port")
        });
        let tokens = self.admin_token_file.clone().map(|file| Tokens::load(file, None));
        let admin = AdminSecurity { tls: admin.transpose()?, tokens: tokens.transpose()? };
        let tls = options.map(|options| Server::load(options).context("cannot serve TLS on the gRPC port"));
        let tls = tls.transpose()?;
        let mut authorization = Authorization::open(service_group);
        if self.tls_client_ca_file.is_some() {
            authorization = authorization.with_certificates(self.client_san.clone());
        }
        if let Some(file) = &self.token_file {
            let tokens = Tokens::load(file.clone(), Some(self.token_header.clone()))?;
            authorization = authorization.with_tokens(tokens);
        }
        #[cfg(feature = "tls")]
        if let Some(file) = &self.jwks {
            let mut options = JwtOptions::new(file.clone());
            options.issuer = self.jwt_issuer.clone();
            options.audiences = self.jwt_audience.clone();
            options.header = self.token_header.clone();
            authorization = authorization.with_jwt(JwtVerifier::load(options)?);
        }
        if !self.allow.is_empty() && !authorization.authenticates() {
            let reason = "--allow needs clients that are authenticated: add --tls-client-ca-file, --token-file or --jwks";
            return Err(UsageError(reason.to_owned()).into());
        }
        for (group, name) in &self.allow {
            let group = SERVICE_GROUPS.iter().find(|known| *known == group).ok_or_else(|| {
                usage!("unknown group {group:?} in --allow; write one of {}", SERVICE_GROUPS.join(", "))
            })?;
            authorization = authorization.with_name(group, name.clone());
        }
        Ok(PortSecurity { tls, authorization: Arc::new(authorization), admin })
    }

    fn knows_tokens(&self) -> bool {
        #[cfg(feature = "tls")]
        if self.jwks.is_some() {
            return true;
        }
        self.token_file.is_some()
    }
}

impl PortSecurity {
    /// Reads certificates and tokens again.
    pub(super) fn reload(&self) {
        [&self.tls, &self.admin.tls].into_iter().flatten().for_each(|tls| tls.reload());
        if let Some(tokens) = &self.admin.tokens {
            tokens.reload();
        }
        self.authorization.reload();
    }
}
