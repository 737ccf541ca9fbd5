use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::{net::TcpStream, time};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, server::WebPkiClientVerifier},
    server::TlsStream,
};

use super::{
    Access, AccessSettings, Credentials, Identity, TlsError, TlsFile, materials::TlsMaterials,
    reloader::CertReloader,
};

/// The accepting end of mutual TLS, with the list of peers that are allowed.
#[derive(Debug)]
pub struct Server {
    access: Access,
    config: Arc<CertReloader<ServerConfig>>,
}

/// Files are checked at most this often, however many clients connect.
const DEBOUNCE: Duration = Duration::from_millis(500);

impl Server {
    /// Creates a server whose files need not exist yet.
    ///
    /// # Errors
    /// [`TlsError::Disabled`] in builds without TLS.
    pub fn new(credentials: Credentials, access: AccessSettings) -> Result<Arc<Self>, TlsError> {
        let Credentials { certificate, key, authorities } = credentials;
        let files = vec![
            (TlsFile::Authorities, authorities),
            (TlsFile::Certificate, certificate),
            (TlsFile::Key, key),
        ];
        let config = CertReloader::new(DEBOUNCE, files, config);
        Ok(Arc::new(Self { access: Access::new(access), config }))
    }

    /// Opens TLS on an accepted connection, and returns the identity of the peer.
    ///
    /// # Errors
    /// A handshake that fails or takes too long.
    pub async fn accept(
        &self,
        stream: TcpStream,
        limit: Duration,
    ) -> Result<(TlsStream<TcpStream>, Option<Identity>), TlsError> {
        let peer = stream.peer_addr().map_or_else(|_| "a client".to_owned(), |peer| peer.to_string());
        let acceptor = TlsAcceptor::from(self.config.current().await);
        let stream = match time::timeout(limit, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(source)) => return Err(TlsError::Handshake { peer, source }),
            Err(_) => return Err(TlsError::Timeout { peer, limit }),
        };
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let identity = Identity::of_chain(chain)
            .map_err(|error| TlsError::Handshake { peer, source: std::io::Error::other(error) })?;
        Ok((stream, identity))
    }

    /// Returns the list of peers that are allowed.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Waits until the files can be used.
    pub async fn ready(&self) {
        self.config.current().await;
    }

    /// Checks the files from time to time, so that faults are logged before a connection needs them.
    pub async fn watch(&self) -> Infallible {
        tokio::select! {
            never = self.config.watch() => never,
            never = self.access.watch() => never,
        }
    }
}

fn config(materials: &TlsMaterials) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let clients =
        WebPkiClientVerifier::builder_with_provider(materials.roots(false)?, provider.clone()).build();
    let clients = clients.map_err(|error| TlsError::Config(error.to_string()))?;
    let Some((chain, key)) = materials.identity()? else {
        return Err(TlsError::Config("a server needs a certificate and a key".to_owned()));
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Config(error.to_string()))?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(|error| materials.mismatch(error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
