use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::time;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, server::WebPkiClientVerifier},
    server::TlsStream,
};

use super::{
    Access, AccessSettings, Credentials, Identity, KeyPair, ServerOptions, TlsError, TlsFile,
    chain_limit::ClientVerifier, handshake_threads::WITH_CLIENTS, materials::TlsMaterials,
    reloader::CertReloader,
};
use crate::{Stream, read_file};

/// The accepting end of mutual TLS, with the list of peers that are allowed.
#[derive(Debug)]
pub struct Server {
    access: Option<Access>,
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
        let options = ServerOptions {
            identity: KeyPair { certificate, key },
            client_authorities: Some(authorities),
            optional_certificates: false,
            http1: false,
        };
        Ok(Arc::new(Self { access: Some(Access::new(access)), config: reloader(options) }))
    }

    /// Creates a server without a list of peers, and reads its files.
    ///
    /// # Errors
    /// A file that cannot be used, and [`TlsError::Disabled`] in builds without TLS.
    pub fn load(options: ServerOptions) -> Result<Arc<Self>, TlsError> {
        let config = reloader(options);
        config.check()?;
        Ok(Arc::new(Self { access: None, config }))
    }

    /// Opens TLS on an accepted connection, and returns the identity of the peer.
    ///
    /// # Errors
    /// A handshake that fails or takes too long.
    pub async fn accept(
        &self,
        stream: Stream,
        limit: Duration,
    ) -> Result<(TlsStream<Stream>, Option<Identity>), TlsError> {
        let peer = match &stream {
            Stream::Left(tcp) => {
                tcp.peer_addr().map_or_else(|_| "a client".to_owned(), |peer| peer.to_string())
            }
            Stream::Right(_) => "a client of the Unix socket".to_owned(),
        };
        let acceptor = TlsAcceptor::from(self.config.current().await);
        let handshake = WITH_CLIENTS.run(acceptor.accept(stream));
        let stream = match time::timeout(limit, handshake).await {
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
    pub fn access(&self) -> Option<&Access> {
        self.access.as_ref()
    }

    /// Reads the files again.
    pub fn reload(&self) {
        // Its faults are logged.
        let _ = self.config.check();
    }

    /// Waits until the files can be used.
    pub async fn ready(&self) {
        self.config.current().await;
    }

    /// Checks the files from time to time, so that faults are logged before a connection needs them.
    pub async fn watch(&self) -> Infallible {
        tokio::select! {
            never = self.config.watch() => never,
            never = async {
                match &self.access {
                    Some(access) => access.watch().await,
                    None => std::future::pending().await,
                }
            } => never,
        }
    }
}

fn reloader(options: ServerOptions) -> Arc<CertReloader<ServerConfig>> {
    let KeyPair { certificate, key } = options.identity.clone();
    let own = [(TlsFile::Certificate, certificate), (TlsFile::Key, key)];
    let authorities = options.client_authorities.clone();
    let authorities = authorities.map(|authorities| (TlsFile::Authorities, authorities));
    let files = authorities.into_iter().chain(own).collect();
    CertReloader::new(DEBOUNCE, files, Box::new(read_file), move |materials| config(materials, &options))
}

fn config(materials: &TlsMaterials, options: &ServerOptions) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let Some((chain, key)) = materials.identity()? else {
        return Err(TlsError::Config("a server needs a certificate and a key".to_owned()));
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Config(error.to_string()))?;
    let builder = match options.client_authorities {
        None => builder.with_no_client_auth(),
        Some(_) => {
            let mut verifier = WebPkiClientVerifier::builder_with_provider(materials.roots(false)?, provider);
            if options.optional_certificates {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier.build().map_err(|error| TlsError::Config(error.to_string()))?;
            builder.with_client_cert_verifier(Arc::new(ClientVerifier(verifier)))
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| materials.mismatch(error))?;
    let protocols: &[&str] = if options.http1 { &["http/1.1"] } else { &["h2", "http/1.1"] };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok(config)
}
