use std::{convert::Infallible, sync::Arc};

use tokio::{net::TcpStream, sync::OnceCell, time};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, server::WebPkiClientVerifier},
    server::TlsStream,
};

use super::{
    Access, AccessSettings, Credentials, Identity, Reloaded,
    files::{HANDSHAKE, POLL, REST, patiently},
};

/// The end of connections that is dialed: mutual TLS, and a list of who is let in.
#[derive(Debug)]
pub struct Server {
    credentials: Credentials,
    access: Access,
    config: OnceCell<Arc<Reloaded<ServerConfig, String>>>,
}

impl Server {
    /// A server with these files, which need not be there yet.
    pub fn new(credentials: Credentials, access: AccessSettings) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self { credentials, access: Access::new(access), config: OnceCell::new() }))
    }

    /// TLS over a connection that was accepted, and who is at its other end.
    pub async fn secure(
        &self,
        stream: TcpStream,
    ) -> Result<(TlsStream<TcpStream>, Option<Identity>), String> {
        let config = Reloaded::current(self.config().await).await;
        let secured = time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await;
        let secured = secured.map_err(|_| "the client does not answer".to_owned())?;
        let secured = secured.map_err(|error| error.to_string())?;
        let chain = secured.get_ref().1.peer_certificates().unwrap_or_default();
        let identity = Identity::of_chain(chain)?;
        Ok((secured, identity))
    }

    /// Who is let in.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Waits until the files are there and can be used.
    pub async fn ready(&self) {
        self.config().await;
    }

    /// Looks at the files now and then, for as long as it is waited for: what is wrong with them is told before they are needed.
    pub async fn watch(&self) -> Infallible {
        loop {
            Reloaded::current(self.config().await).await;
            self.access.current().await;
            time::sleep(POLL).await;
        }
    }

    async fn config(&self) -> &Arc<Reloaded<ServerConfig, String>> {
        self.config.get_or_init(|| patiently(|| self.load())).await
    }

    fn load(&self) -> Result<Reloaded<ServerConfig, String>, String> {
        let (read, made) = (self.credentials.clone(), self.credentials.clone());
        Reloaded::load(REST, move || read.read(), move |files| made.server(files))
    }
}

impl Credentials {
    fn server(&self, files: &[Vec<u8>]) -> Result<ServerConfig, String> {
        let [certificate, key, authorities] = files else { return Err("a file is missing".to_owned()) };
        let provider = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(self.roots(authorities)?, provider.clone());
        let clients = clients.build().map_err(|error| error.to_string())?;
        let (chain, key) = self.pair(certificate, key)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(|error| self.unfit(error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}
