//! https, with the certificates the system trusts.

use std::{io, sync::LazyLock};

use bytes::Bytes;
use http_body_util::Empty;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::crypto::ring;

type Connector = HttpsConnector<HttpConnector>;

/// Reading the certificates takes some milliseconds: once, and only where they are used.
static CONNECTOR: LazyLock<Result<Connector, String>> = LazyLock::new(|| {
    let builder = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(ring::default_provider())
        .map_err(|error| error.to_string())?;
    Ok(builder.https_only().enable_http1().build())
});

/// A client for one request; an error if the system trusts nobody.
pub(super) fn client() -> io::Result<Client<Connector, Empty<Bytes>>> {
    match &*CONNECTOR {
        Ok(connector) => {
            Ok(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector.clone()))
        }
        Err(reason) => Err(io::Error::other(format!("no certificates to trust: {reason}"))),
    }
}
