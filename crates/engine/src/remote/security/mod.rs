//! How a handler and its adapter trust each other: TLS with a token, or mutual TLS (docs/behaviour/connections.md).

mod file;
mod material;
mod oauth;
mod post;
mod renewed;
mod settings;
mod token;

use std::{fmt, sync::Arc};

use http::{HeaderName, HeaderValue};
use tokio::{net::TcpStream, runtime::Handle};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls::pki_types::ServerName};
use tonic::Status;

pub(super) use self::settings::Settings;
use self::{material::Material, token::Token};
use super::{Options, address::Address};
use mixer_adapter_core::adapter::ConfigErrors;

/// What one handler's connections are secured with.
pub(super) struct Security {
    material: Arc<Material>,
    /// The name that the server is asked for, and must have but for mutual TLS.
    name: ServerName<'static>,
    configured_name: Option<String>,
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
        let name = server_name.as_ref().unwrap_or(&address.host).clone();
        let name = ServerName::try_from(name.clone()).map_err(|_| {
            ConfigErrors::single(
                "connection.address",
                format!("{name:?} cannot be the name in a certificate"),
            )
        })?;
        let material = Arc::new(Material::load(trust, &options.adapter_sans)?);
        let token = match token {
            Some(token) => Some(Token::load(token, &material, options, runtime)?),
            None => None,
        };
        Ok(Self { material, name, configured_name: server_name, token })
    }

    /// The name in the settings, which also goes into `:authority`.
    pub(super) fn server_name(&self) -> Option<&str> {
        self.configured_name.as_deref()
    }

    /// TLS over a new connection, with certificates as they are in their files now.
    pub(super) async fn secure(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let config = self.material.current().await;
        let secured = TlsConnector::from(config).connect(self.name.clone(), stream).await;
        secured.map_err(|error| format!("TLS as {:?}: {error}", self.name.to_str()))
    }

    /// The header that a call is to carry.
    pub(super) async fn token(&self) -> Result<Option<(HeaderName, HeaderValue)>, Status> {
        match &self.token {
            Some(token) => token.header().await.map(Some),
            None => Ok(None),
        }
    }
}

/// Without anything secret.
impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("name", &self.name).finish_non_exhaustive()
    }
}
