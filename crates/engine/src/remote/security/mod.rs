//! How a handler and its adapter authenticate each other: TLS with a token, or mutual TLS (docs/behaviour/connections.md).

mod file;
mod header;
mod oauth;
mod refreshing;
mod settings;
mod token;

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tokio::runtime::Handle;
use tonic::Status;

pub(super) use self::settings::Settings;
use self::token::Token;
use super::{Options, address::Address};
use mixer_adapter_core::adapter::ConfigErrors;
use mixer_adapter_net::{
    Stream,
    tls::{self, TlsError, TlsStream},
};

/// The TLS and the token of one handler's connections.
pub(super) struct Security {
    tls: Arc<tls::Client>,
    /// The name in SNI, and except with mutual TLS, the name that the certificate must have.
    name: String,
    /// The server name of the settings, which is also sent as `:authority`.
    pub(super) configured_name: Option<String>,
    token: Option<Token>,
}

impl Security {
    /// Reads the files that the settings name.
    pub(super) fn load(
        settings: Settings,
        address: &Address,
        options: &Options,
        runtime: &Handle,
    ) -> Result<Self, ConfigErrors> {
        let Settings { trust, server_name, token } = settings;
        let security = Self::new(trust.client(&options.adapter_sans)?, server_name, address)?;
        let token = token.map(|token| Token::load(token, &security.tls, options, runtime)).transpose()?;
        Ok(Self { token, ..security })
    }

    /// Uses TLS without a token.
    pub(super) fn new(
        tls: Arc<tls::Client>,
        server_name: Option<String>,
        address: &Address,
    ) -> Result<Self, ConfigErrors> {
        let name = server_name.as_deref().unwrap_or(address.host()).to_owned();
        tls::check_server_name(&name)
            .map_err(|error| ConfigErrors::single("connection.address", error.to_string()))?;
        Ok(Self { tls, name, configured_name: server_name, token: None })
    }

    /// Opens TLS on a new connection, with certificates as their files are now.
    pub(super) async fn connect(&self, stream: Stream) -> Result<TlsStream<Stream>, TlsError> {
        self.tls.connect(&self.name, stream, &["h2"]).await
    }

    /// Returns the header with the token of a call.
    pub(super) async fn token(&self) -> Result<Option<(HeaderName, HeaderValue)>, Status> {
        match &self.token {
            Some(token) => token.header().await.map(Some),
            None => Ok(None),
        }
    }
}

// Without anything secret.
mixer_adapter_core::framework::debug_fields!(Security { name });
