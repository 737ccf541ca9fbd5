use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST},
    uri::Scheme,
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};

/// What a server answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// How long it may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer in bytes.
const LARGEST: usize = 256 << 10;

/// Posts a form. Redirections are not followed: the form holds a secret.
pub(super) async fn post(
    url: &Uri,
    roots: Arc<RootCertStore>,
    authorization: Option<HeaderValue>,
    form: String,
) -> Result<Answer, String> {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let tls = url.scheme() == Some(&Scheme::HTTPS);
    let port = url.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::post(path)
        .header(HOST, url.authority().map_or(host, |authority| authority.as_str()))
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(ACCEPT, "application/json")
        .header(CONNECTION, "close")
        .body(Full::new(Bytes::from(form)))
        .map_err(|error| error.to_string())?;
    request.headers_mut().extend(authorization.map(|value| (AUTHORIZATION, value)));
    let answered = async {
        let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
        if !tls {
            return exchange(stream, request).await;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        exchange(stream.map_err(|error| error.to_string())?, request).await
    };
    tokio::time::timeout(TIMEOUT, answered)
        .await
        .unwrap_or_else(|_| Err(format!("it did not answer within {TIMEOUT:?}")))
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok(Answer { status, body })
    };
    // The connection does the work that the answer waits for, and may end before or after that.
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = answer.as_mut() => answer,
        _ = driver => answer.await,
    }
}
