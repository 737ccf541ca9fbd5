//! Servers that show certificates.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
    },
    server::TlsStream,
};

use super::{
    Port, port,
    scripted::{Act, Scripted, Seen},
};
pub(super) use test_pki::{Authority, Certified, Files};

fn server_config(certified: &Certified, clients: Option<&Authority>) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let chain = CertificateDer::pem_slice_iter(certified.certificate.as_bytes()).map(Result::unwrap);
    let key = PrivateKeyDer::from_pem_slice(certified.key.as_bytes()).unwrap();
    let mut config = builder.with_single_cert(chain.collect(), key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// The handshake of a client: the requested server name, and its certificate.
pub(super) type Shown = Arc<Mutex<Vec<(Option<String>, Option<Vec<u8>>)>>>;

pub(super) struct Secured {
    pub(super) server: Scripted,
    pub(super) shown: Shown,
}

/// A scripted server over TLS; with `clients`, mutual.
pub(super) async fn secured(
    certified: &Certified,
    clients: Option<&Authority>,
    script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
) -> Secured {
    secured_on(&port(), certified, clients, script).await
}

pub(super) async fn secured_on(
    port: &Port,
    certified: &Certified,
    clients: Option<&Authority>,
    script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
) -> Secured {
    let acceptor = TlsAcceptor::from(Arc::new(server_config(certified, clients)));
    let shown = Shown::default();
    let noted = shown.clone();
    let wrap = move |stream: TcpStream| {
        let (acceptor, noted) = (acceptor.clone(), noted.clone());
        async move {
            let stream: TlsStream<TcpStream> = acceptor.accept(stream).await.ok()?;
            let (_, tls) = stream.get_ref();
            let certificate = tls.peer_certificates().map(|chain| chain[0].to_vec());
            noted.lock().unwrap().push((tls.server_name().map(str::to_owned), certificate));
            Some(stream)
        }
    };
    Secured { server: Scripted::over(port, script, wrap).await, shown }
}

/// Answers one HTTP request a connection, over TLS, always the same.
pub(super) async fn https(certified: &Certified, body: String) -> std::net::SocketAddr {
    let mut config = server_config(certified, None);
    config.alpn_protocols.clear();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}
