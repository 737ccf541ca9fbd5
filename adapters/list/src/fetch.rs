//! Gets a list with HTTP.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, Request, Response, StatusCode, Uri,
    header::{CONTENT_ENCODING, LOCATION, USER_AGENT},
};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

/// How long a fetch may take, redirections and body included. The original waited for ever.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest list in bytes. The original took any length.
const LONGEST: usize = 16 << 20;
/// How many redirections are followed, as Go does.
const REDIRECTIONS: usize = 10;

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{}", causes(.0.as_ref()))]
    Connection(Box<dyn Error + Send + Sync>),
    #[error("the answer is {0} instead of 200 OK")]
    Status(StatusCode),
    #[error("the answer is {status} and its location {location:?} {reason}")]
    Redirection { status: StatusCode, location: String, reason: &'static str },
    #[error("the answer is compressed ({0}), which was not asked for")]
    Compressed(String),
    #[error("the list is longer than {0} bytes")]
    TooLong(usize),
    #[error("there was no answer within {0:?}")]
    TooLate(Duration),
}

/// Gets one list again and again, over a new connection each time.
#[derive(Clone, Debug)]
pub(super) struct Fetcher {
    url: Uri,
    timeout: Duration,
    longest: usize,
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Fetcher {
    pub(super) fn new(url: Uri) -> Self {
        Self::bounded(url, TIMEOUT, LONGEST)
    }

    fn bounded(url: Uri, timeout: Duration, longest: usize) -> Self {
        // A connection kept for a minute or more saves nothing and may have died.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Self { url, timeout, longest, client }
    }

    pub(super) fn url(&self) -> &Uri {
        &self.url
    }

    /// The list as it is now.
    pub(super) async fn fetch(&self) -> Result<Bytes, FetchError> {
        match tokio::time::timeout(self.timeout, self.get()).await {
            Ok(fetched) => fetched,
            Err(_) => Err(FetchError::TooLate(self.timeout)),
        }
    }

    async fn get(&self) -> Result<Bytes, FetchError> {
        let mut url = self.url.clone();
        for _ in 0..=REDIRECTIONS {
            let response = self.request(&url).await?;
            if !response.status().is_redirection() {
                return self.body(response).await;
            }
            url = redirected(&url, response.status(), response.headers())?;
        }
        let (status, location) = (StatusCode::FOUND, url.to_string());
        Err(FetchError::Redirection { status, location, reason: "is one redirection too many" })
    }

    async fn request(&self, url: &Uri) -> Result<Response<Incoming>, FetchError> {
        let request = Request::get(url)
            .header(USER_AGENT, concat!("mixer-adapter/", env!("CARGO_PKG_VERSION")))
            .body(Empty::new())
            .map_err(|error| FetchError::Connection(error.into()))?;
        let response = match url.scheme_str() {
            #[cfg(feature = "https")]
            Some("https") => {
                let client = super::tls::client().map_err(|error| FetchError::Connection(error.into()))?;
                client.request(request).await
            }
            _ => self.client.request(request).await,
        };
        response.map_err(|error| FetchError::Connection(error.into()))
    }

    async fn body(&self, response: Response<Incoming>) -> Result<Bytes, FetchError> {
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        // Taken for a list, a compressed one would be a list of nothing.
        if let Some(encoding) = response.headers().get(CONTENT_ENCODING)
            && encoding != "identity"
        {
            return Err(FetchError::Compressed(String::from_utf8_lossy(encoding.as_bytes()).into_owned()));
        }
        match Limited::new(response.into_body(), self.longest).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLong(self.longest)),
            Err(error) => Err(FetchError::Connection(error)),
        }
    }
}

/// Where a redirection leads. What was asked for with https is not taken without.
fn redirected(from: &Uri, status: StatusCode, headers: &HeaderMap) -> Result<Uri, FetchError> {
    let location = headers.get(LOCATION).map(|location| String::from_utf8_lossy(location.as_bytes()));
    let location = location.unwrap_or_default().into_owned();
    let refused = |reason| FetchError::Redirection { status, location: location.clone(), reason };
    let to: Uri = location.parse().map_err(|_| refused("is no URL"))?;
    let mut parts = to.into_parts();
    if parts.authority.is_none() {
        if !location.starts_with('/') {
            return Err(refused("is neither a URL nor an absolute path"));
        }
        parts.scheme = from.scheme().cloned();
        parts.authority = from.authority().cloned();
    }
    let to = Uri::from_parts(parts).map_err(|_| refused("is no URL"))?;
    match (from.scheme_str(), to.scheme_str()) {
        (Some("http"), Some("http")) => Ok(to),
        (_, Some("https")) if cfg!(feature = "https") => Ok(to),
        (Some("https"), Some("http")) => Err(refused("would give up https")),
        _ => Err(refused("is not one of http or https that can be followed")),
    }
}

/// An error with all its causes, on one line.
fn causes(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::{Router, http::header, response::Redirect, routing::get};

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
        Fetcher::bounded(url.parse().unwrap(), Duration::from_millis(300), 1000).fetch().await
    }

    #[tokio::test]
    async fn a_list_is_fetched_also_where_it_moved() {
        let url = serve(provider()).await;
        for path in ["/list", "/moved"] {
            assert_eq!(fetch(&format!("{url}{path}")).await.unwrap(), "ABC\nDEF", "{path}");
        }
    }

    #[tokio::test]
    async fn whatever_goes_wrong_is_said() {
        let url = serve(provider()).await;
        for (path, message) in [
            ("/gone", "the answer is 410 Gone instead of 200 OK"),
            ("/created", "the answer is 201 Created instead of 200 OK"),
            ("/long", "the list is longer than 1000 bytes"),
            ("/hang", "there was no answer within 300ms"),
            ("/stall", "there was no answer within 300ms"),
            ("/zipped", "the answer is compressed (gzip), which was not asked for"),
            ("/nowhere", "the answer is 301 Moved Permanently and its location \"\" is no URL"),
            ("/file", "the answer is 307 Temporary Redirect and its location \"file:///etc/passwd\" is"),
            ("/round", "is one redirection too many"),
        ] {
            let error = fetch(&format!("{url}{path}")).await.unwrap_err().to_string();
            assert!(error.contains(message), "{path}: {error}");
        }
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let error = fetch(&format!("http://{closed}/")).await.unwrap_err().to_string();
        assert!(error.contains("Connection refused"), "{error}");
    }

    #[test]
    fn https_is_not_given_up_on_the_way() {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, "http://b/list".parse().unwrap());
        let error = redirected(&Uri::from_static("https://a/list"), StatusCode::FOUND, &headers).unwrap_err();
        assert!(error.to_string().contains("would give up https"), "{error}");
    }

    #[cfg(feature = "https")]
    #[tokio::test]
    async fn a_server_without_tls_is_no_https_provider() {
        let url = serve(provider()).await.replace("http://", "https://");
        let error = fetch(&url).await.unwrap_err();
        assert!(matches!(error, FetchError::Connection(_)), "{error}");
    }
}
