use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::{Client, TlsStream};

/// Opens the TLS connections of a gRPC channel, for `Endpoint::connect_with_connector` of tonic.
#[derive(Clone, Debug)]
pub struct Connector(Arc<Client>);

impl Connector {
    /// Creates a connector. The host of a URL is the name that the certificate of the server must have, whatever its scheme.
    pub fn new(client: Arc<Client>) -> Self {
        Self(client)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let tls = self.0.clone();
        let connected = async move {
            let host = url.host().unwrap_or_default();
            let port = url.port_u16().unwrap_or(443);
            let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
            stream.set_nodelay(true)?;
            tls.connect(host, stream, &["h2"]).await.map(TokioIo::new).map_err(io::Error::other)
        };
        connected.boxed()
    }
}
