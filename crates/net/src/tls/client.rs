use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, crypto::ring, pki_types::ServerName},
};

use super::{
    ClientOptions, HANDSHAKE, Identity, ReadFile, ServerIdentity, TlsError, TlsFile,
    handshake_threads::WITH_SERVERS, materials::TlsMaterials, reloader::CertReloader,
    server_verifier::ServerVerifier,
};
use crate::read_file;

/// A connection over TLS.
pub type TlsStream<S = TcpStream> = tokio_rustls::client::TlsStream<S>;

/// The dialing end of TLS.
#[derive(Debug)]
pub struct Client(Arc<CertReloader<ClientConfig>>);

impl Client {
    /// Creates a client whose files need not exist yet; connections wait for them.
    ///
    /// # Errors
    /// [`TlsError::Disabled`] in builds without TLS.
    pub fn new(options: ClientOptions) -> Result<Arc<Self>, TlsError> {
        Ok(Self::with_reader(options, Box::new(read_file)))
    }

    /// Creates a client and reads its files.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn load(options: ClientOptions) -> Result<Arc<Self>, TlsError> {
        Self::load_with(options, Box::new(read_file))
    }

    /// Creates a client and reads its files with `read`, which also reads them again for each connection.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn load_with(options: ClientOptions, read: ReadFile) -> Result<Arc<Self>, TlsError> {
        let client = Self::with_reader(options, read);
        client.0.check()?;
        Ok(client)
    }

    fn with_reader(options: ClientOptions, read: ReadFile) -> Arc<Self> {
        let files = options.files();
        // Files are read again for each connection; connections are rare.
        let reloader =
            CertReloader::new(Duration::ZERO, files, read, move |materials| config(materials, &options));
        Arc::new(Self(reloader))
    }

    /// Opens TLS on a new connection to the server `name`, for `protocols` (ALPN), with the current content of
    /// the certificate files.
    ///
    /// # Errors
    /// A name that no certificate can have, and a handshake that fails or takes too long.
    pub async fn connect<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        &self,
        name: &str,
        stream: S,
        protocols: &[&str],
    ) -> Result<TlsStream<S>, TlsError> {
        let server = server_name(name)?;
        let protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let connector = TlsConnector::from(self.0.current().await);
        let handshake = WITH_SERVERS.run(connector.with_alpn(protocols).connect(server, stream));
        match time::timeout(HANDSHAKE, handshake).await {
            Ok(connected) => {
                connected.map_err(|source| TlsError::Handshake { peer: name.to_owned(), source })
            }
            Err(_) => Err(TlsError::Timeout { peer: name.to_owned(), limit: HANDSHAKE }),
        }
    }

    /// Waits until the files can be used.
    pub async fn ready(&self) {
        self.0.current().await;
    }

    /// Checks the files from time to time, so that faults are logged before a connection needs them.
    pub async fn watch(&self) -> std::convert::Infallible {
        self.0.watch().await
    }
}

/// Checks that a certificate can be for `name`: a DNS name or an IP address, IPv6 also in brackets.
///
/// # Errors
/// [`TlsError::ServerName`].
pub fn check_server_name(name: &str) -> Result<(), TlsError> {
    server_name(name).map(drop)
}

fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    let host = name.trim_matches(['[', ']']).to_owned();
    ServerName::try_from(host).map_err(|_| TlsError::ServerName(name.to_owned()))
}

fn config(materials: &TlsMaterials, options: &ClientOptions) -> Result<ClientConfig, TlsError> {
    let roots = materials.roots(options.system_roots)?;
    let identity = materials.identity()?;
    let accepted = match &options.server {
        ServerIdentity::DialedName => None,
        ServerIdentity::AnyOf(sans) => Some(sans.clone()),
        ServerIdentity::SameAsClient => {
            let own = identity.as_ref().and_then(|(chain, _)| chain.first());
            let own = own.map(Identity::of).transpose();
            let own = own.map_err(|error| {
                materials.unusable(TlsFile::Certificate, format!("cannot be read: {error}"))
            })?;
            let uris = own.map(|own| own.uris().to_vec()).unwrap_or_default();
            if uris.is_empty() {
                return Err(materials.unusable(
                    TlsFile::Certificate,
                    "has no URI SAN, which the server must share; use a certificate that has one, or name the SANs of servers",
                ));
            }
            Some(uris)
        }
    };
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Config(error.to_string()))?;
    let verifier = ServerVerifier::new(roots, accepted, provider)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, key).map_err(|error| materials.mismatch(error))
        }
    }
}
