use std::{convert::Infallible, sync::Arc};

use tokio::{net::TcpStream, sync::OnceCell, time};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, crypto::ring, pki_types::ServerName},
};

use super::{
    Credentials, Reloaded, SanVerifier,
    files::{HANDSHAKE, POLL, REST, patiently},
};

/// A connection that is TLS.
pub type Secured = TlsStream<TcpStream>;

/// The end of connections that dials: mutual TLS.
#[derive(Debug)]
pub struct Client {
    credentials: Credentials,
    servers: Vec<String>,
    config: OnceCell<Arc<Reloaded<ClientConfig, String>>>,
}

impl Client {
    /// A client with these files, which need not be there yet. A server's certificate is to have one of the SANs given, or
    /// where none are, the name that it is dialed by.
    pub fn new(credentials: Credentials, servers: Vec<String>) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self { credentials, servers, config: OnceCell::new() }))
    }

    /// TLS over a new connection to a server of that name.
    pub async fn secure(&self, name: &str, stream: TcpStream) -> Result<Secured, String> {
        let host = name.trim_matches(['[', ']']).to_owned();
        let server = ServerName::try_from(host)
            .map_err(|_| format!("{name:?} cannot be the name in a certificate"))?;
        let config = Reloaded::current(self.config().await).await;
        let secured = TlsConnector::from(config).connect(server, stream);
        let secured = time::timeout(HANDSHAKE, secured).await;
        let secured = secured.map_err(|_| format!("TLS with {name}: it does not answer"))?;
        secured.map_err(|error| format!("TLS with {name}: {error}"))
    }

    /// Waits until the files are there and can be used.
    pub async fn ready(&self) {
        self.config().await;
    }

    /// Looks at the files now and then, for as long as it is waited for: what is wrong with them is told before they are needed.
    pub async fn watch(&self) -> Infallible {
        loop {
            Reloaded::current(self.config().await).await;
            time::sleep(POLL).await;
        }
    }

    async fn config(&self) -> &Arc<Reloaded<ClientConfig, String>> {
        self.config.get_or_init(|| patiently(|| self.load())).await
    }

    fn load(&self) -> Result<Reloaded<ClientConfig, String>, String> {
        let (read, made) = (self.credentials.clone(), self.credentials.clone());
        let servers = self.servers.clone();
        Reloaded::load(REST, move || read.read(), move |files| made.client(files, &servers))
    }
}

impl Credentials {
    fn client(&self, files: &[Vec<u8>], servers: &[String]) -> Result<ClientConfig, String> {
        let [certificate, key, authorities] = files else { return Err("a file is missing".to_owned()) };
        let roots = self.roots(authorities)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match servers {
            [] => builder.with_root_certificates(roots),
            servers => {
                let verifier = SanVerifier::new(roots, servers.to_vec(), "the server");
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let (chain, key) = self.pair(certificate, key)?;
        let mut config = builder.with_client_auth_cert(chain, key).map_err(|error| self.unfit(error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}
