//! Gets a list with HTTP.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, Request, Response, StatusCode, Uri,
    header::{CONTENT_ENCODING, LOCATION},
};
use mixer_adapter_core::{Context, adapter::Access};
use mixer_adapter_net::{
    HttpClient, HttpError,
    grpc::CallMemory,
    tls::{SystemClient, TlsError},
};

use super::shared::Shared;

/// How long a fetch may take, redirects and body included. The original waited forever.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest list in bytes. The original had no limit.
const MAX_SIZE: usize = 16 << 20;
/// The number of redirects that are followed, as in Go.
const MAX_REDIRECTS: usize = 10;

/// A list that cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the answer is {0} instead of 200 OK")]
    Status(StatusCode),
    #[error("the answer is {status} and its location {location:?} {reason}")]
    Redirect { status: StatusCode, location: String, reason: &'static str },
    #[error("the answer is compressed ({0}), which was not requested")]
    Compressed(String),
    #[error("its host {0} is not in --allow-hosts")]
    Host(String),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// Fetches one list, each time over a new connection.
#[derive(Clone, Debug)]
pub(super) struct Fetcher {
    pub(super) url: Uri,
    timeout: Duration,
    client: HttpClient,
    access: Access,
    tls: Arc<SystemClient>,
    /// Limits that are shared with other handlers; none for configurations of the operator.
    pub(super) shared: Option<Arc<Shared>>,
}

impl Fetcher {
    /// Creates a fetcher that connects to the hosts that the configuration may reach.
    pub(super) fn new(url: Uri, context: &Context) -> Self {
        let access = context.access().clone();
        let shared = access.fetched_bytes().map(|bytes| context.shared(|| Shared::new(bytes)));
        let tls = context.shared(SystemClient::default);
        Self { shared, tls, ..Self::bounded(url, access, TIMEOUT, MAX_SIZE) }
    }

    fn bounded(url: Uri, access: Access, timeout: Duration, max_size: usize) -> Self {
        let client = HttpClient::new(timeout, max_size);
        let client = if access.is_limited() {
            let access = access.clone();
            client.with_address_filter(move |host, address| access.allows_address(host, address))
        } else {
            client
        };
        Self { url, timeout, client, access, tls: Arc::default(), shared: None }
    }

    /// Waits until the host of the list may be asked.
    pub(super) async fn turn(&self) {
        self.turn_at(&self.url).await;
    }

    /// Waits until the list may be refreshed.
    pub(super) async fn refresh_turn(&self) {
        if let Some(shared) = &self.shared {
            shared.refresh_turn(self.url.host().unwrap_or_default()).await;
        }
    }

    async fn turn_at(&self, url: &Uri) {
        if let Some(shared) = &self.shared {
            shared.turn(url.host().unwrap_or_default()).await;
        }
    }

    /// Fetches the list as it is now, after its [turn](Self::turn). The answers count in `memory`.
    pub(super) async fn fetch(&self, memory: Option<&CallMemory>) -> Result<Bytes, FetchError> {
        let client = match memory {
            Some(memory) => self.client.clone().with_memory(memory.clone()),
            None => self.client.clone(),
        };
        tokio::time::timeout(self.timeout, self.get(client))
            .await
            .unwrap_or(Err(FetchError::Timeout(self.timeout)))
    }

    async fn get(&self, client: HttpClient) -> Result<Bytes, FetchError> {
        let mut url = self.url.clone();
        for redirects in 0..=MAX_REDIRECTS {
            // Redirects lead to other hosts.
            let host = url.host().unwrap_or_default();
            if !self.access.allows_host(host) {
                return Err(FetchError::Host(host.to_owned()));
            }
            if redirects > 0 {
                self.turn_at(&url).await;
            }
            let response = self.request(client.clone(), &url).await?;
            if !response.status().is_redirection() {
                return body(response);
            }
            url = redirected(&url, response.status(), response.headers())?;
        }
        let (status, location) = (StatusCode::FOUND, url.to_string());
        Err(FetchError::Redirect { status, location, reason: "is one redirect too many" })
    }

    async fn request(&self, client: HttpClient, url: &Uri) -> Result<Response<Bytes>, FetchError> {
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = url.clone();
        let client = match url.scheme_str() {
            Some("https") => client.with_tls(self.tls.get()?),
            _ => client,
        };
        Ok(client.send(request).await?)
    }
}

fn body(response: Response<Bytes>) -> Result<Bytes, FetchError> {
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    // Compressed data read as a list would be an empty list.
    if let Some(encoding) = response.headers().get(CONTENT_ENCODING)
        && encoding != "identity"
    {
        return Err(FetchError::Compressed(String::from_utf8_lossy(encoding.as_bytes()).into_owned()));
    }
    Ok(response.into_body())
}

/// Returns the target of a redirect. One from https to http is refused.
fn redirected(from: &Uri, status: StatusCode, headers: &HeaderMap) -> Result<Uri, FetchError> {
    let location = headers.get(LOCATION).map(|location| String::from_utf8_lossy(location.as_bytes()));
    let location = location.unwrap_or_default().into_owned();
    let refused = |reason| FetchError::Redirect { status, location: location.clone(), reason };
    let to: Uri = location.parse().map_err(|_| refused("is not a valid URL"))?;
    let mut parts = to.into_parts();
    if parts.authority.is_none() {
        if !location.starts_with('/') {
            return Err(refused("is neither a URL nor an absolute path"));
        }
        parts.scheme = from.scheme().cloned();
        parts.authority = from.authority().cloned();
    }
    let to = Uri::from_parts(parts).map_err(|_| refused("is not a valid URL"))?;
    match (from.scheme_str(), to.scheme_str()) {
        (Some("http"), Some("http")) => Ok(to),
        (_, Some("https")) if cfg!(feature = "https") => Ok(to),
        (Some("https"), Some("http")) => Err(refused("would give up https")),
        _ => Err(refused("is not one of http or https that can be followed")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::{Router, http::header, response::Redirect, routing::get};
    use mixer_adapter_core::adapter::AccessLimits;

    use super::*;

    async fn serve(router: Router) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    fn provider() -> Router {
        Router::new()
            .route("/list", get(|| async { "ABC\nDEF" }))
            .route("/moved", get(|| async { Redirect::permanent("/list") }))
            .route("/round", get(|| async { Redirect::temporary("/round") }))
            .route("/nowhere", get(|| async { StatusCode::MOVED_PERMANENTLY }))
            .route("/file", get(|| async { Redirect::temporary("file:///etc/passwd") }))
            .route("/gone", get(|| async { StatusCode::GONE }))
            .route("/created", get(|| async { (StatusCode::CREATED, "ABC") }))
            .route("/long", get(|| async { "x".repeat(1001) }))
            .route("/zipped", get(|| async { ([(header::CONTENT_ENCODING, "gzip")], "\u{1f}") }))
            .route("/hang", get(std::future::pending::<()>))
            .route(
                "/stall",
                get(|| async {
                    axum::body::Body::from_stream(futures_util::stream::pending::<
                        Result<Bytes, std::io::Error>,
                    >())
                }),
            )
    }

    async fn fetch(url: &str) -> Result<Bytes, FetchError> {
        fetch_within(url, Access::unrestricted()).await
    }

    async fn fetch_within(url: &str, access: Access) -> Result<Bytes, FetchError> {
        Fetcher::bounded(url.parse().unwrap(), access, Duration::from_millis(300), 1000).fetch(None).await
    }

    #[tokio::test]
    async fn redirects_and_addresses_stay_within_what_is_allowed() {
        let url = serve(provider()).await;
        let access = |hosts: &str| Access::limited(AccessLimits::default().hosts(hosts.parse().unwrap()));
        assert!(fetch_within(&format!("{url}/list"), access("127.0.0.1")).await.is_ok());
        let named = url.replace("127.0.0.1", "localhost");
        let away = Router::new().route(
            "/away",
            get(move || {
                let list = format!("{named}/list");
                async move { Redirect::temporary(&list) }
            }),
        );
        let away = serve(away).await;
        let redirected = fetch_within(&format!("{away}/away"), access("127.0.0.1")).await.unwrap_err();
        assert!(matches!(&redirected, FetchError::Host(host) if host == "localhost"), "{redirected}");
        assert!(fetch_within(&format!("{away}/away"), access("127.0.0.1,localhost")).await.is_ok());
    }

    #[tokio::test]
    async fn redirects_are_followed() {
        let url = serve(provider()).await;
        for path in ["/list", "/moved"] {
            assert_eq!(fetch(&format!("{url}{path}")).await.unwrap(), "ABC\nDEF", "{path}");
        }
    }

    #[tokio::test]
    async fn each_failure_has_its_reason() {
        let url = serve(provider()).await;
        for (path, message) in [
            ("/gone", "the answer is 410 Gone instead of 200 OK"),
            ("/created", "the answer is 201 Created instead of 200 OK"),
            ("/long", "the answer has more than 1000 bytes"),
            ("/hang", "no answer within 300ms"),
            ("/stall", "no answer within 300ms"),
            ("/zipped", "the answer is compressed (gzip), which was not requested"),
            ("/nowhere", "the answer is 301 Moved Permanently and its location \"\" is not a valid URL"),
            ("/file", "the answer is 307 Temporary Redirect and its location \"file:///etc/passwd\" is"),
            ("/round", "is one redirect too many"),
        ] {
            let error = fetch(&format!("{url}{path}")).await.unwrap_err().to_string();
            assert!(error.contains(message), "{path}: {error}");
        }
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let error = fetch(&format!("http://{closed}/")).await.unwrap_err().to_string();
        assert!(error.contains("Connection refused"), "{error}");
    }

    #[test]
    fn a_redirect_from_https_to_http_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, "http://b/list".parse().unwrap());
        let error = redirected(&Uri::from_static("https://a/list"), StatusCode::FOUND, &headers).unwrap_err();
        assert!(error.to_string().contains("would give up https"), "{error}");
    }

    #[cfg(feature = "https")]
    #[tokio::test]
    async fn a_server_without_tls_cannot_serve_https() {
        let url = serve(provider()).await.replace("http://", "https://");
        let error = fetch(&url).await.unwrap_err();
        assert!(matches!(error, FetchError::Http(HttpError::Tls(_))), "{error}");
    }
}
