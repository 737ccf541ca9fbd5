use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version, header,
    uri::{InvalidUri, Scheme},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use prost::{Message, bytes::Bytes};
use serde::{Serialize, de::DeserializeOwned};

use super::{Access, AdapterError, Code, FileLocation, Secret};
use crate::framework::{
    frame::{frame, unframe},
    is_this_machine,
};

/// How long a request takes at most, unless it says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends the requests of a handler for [`Http`]: supplied by the server.
#[doc(hidden)]
pub trait HttpTransport: Send + Sync {
    /// Sends a request to the addresses that the configuration of the handler may reach, over the request's version of HTTP: 1.1, or 2 with
    /// the trailers of the answer among its headers.
    fn send(&self, request: Request<Bytes>, timeout: Duration) -> SendFuture;

    /// Returns a transport that trusts the certificates of a file in place of the system's.
    fn with_authorities(&self, file: FileLocation) -> Result<Arc<dyn HttpTransport>, TransportError>;
}

#[doc(hidden)]
pub type TransportError = Box<dyn std::error::Error + Send + Sync>;

#[doc(hidden)]
pub type SendFuture = Pin<Box<dyn Future<Output = Result<http::Response<Bytes>, TransportError>> + Send>>;

/// An extension of a request that the transport may send once more if its connection is lost.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Repeatable;

/// The error of a transport for a request that it cannot send later either.
#[doc(hidden)]
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct UnsendableError(pub TransportError);

/// A client of HTTP services, for `http://` and `https://`. It trusts the system's certificates, or the certificates of a
/// [file](super::Context::http_with_ca).
///
/// It connects only to hosts that the configuration may reach (`--allow-hosts`), keeps the connections of the handler for further requests, and follows
/// no redirects. An answer has at most 1 MiB.
#[derive(Clone)]
pub struct Http {
    transport: Option<Arc<dyn HttpTransport>>,
    access: Access,
}

/// A request that [`send`](Self::send) sends.
#[derive(Debug)]
#[must_use = "a request is sent by `send`"]
pub struct HttpRequest {
    http: Http,
    request: Result<Request<Bytes>, HttpError>,
    /// Headers with what precedes the secret in them.
    secrets: Vec<(HeaderName, &'static str, Secret)>,
    timeout: Duration,
}

/// An answer of any status.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    url: Uri,
    response: http::Response<Bytes>,
}

/// A request that was not answered, or not as expected.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {reason}")]
pub struct HttpError {
    url: String,
    reason: String,
    fault: Fault,
    #[source]
    source: Option<TransportError>,
}

/// The part of an exchange that is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The request, which cannot be sent later either.
    Request,
    /// The service, which gave no answer or failed.
    Service,
    /// The answer, which is not as expected.
    Answer,
}

impl Fault {
    /// Returns the fault of an answer without success.
    fn of(status: StatusCode) -> Self {
        if status.is_server_error() { Self::Service } else { Self::Answer }
    }
}

/// CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, ABORTED, INTERNAL and UNAVAILABLE. A server with RESOURCE_EXHAUSTED has answered: the message may be
/// too long for it.
const OUTAGES: [&str; 6] = ["1", "2", "4", "10", "13", "14"];

impl Http {
    #[doc(hidden)]
    pub fn new(transport: Option<Arc<dyn HttpTransport>>, access: Access) -> Self {
        Self { transport, access }
    }

    /// Begins a GET request.
    pub fn get(&self, url: &str) -> HttpRequest {
        self.request(Method::GET, url)
    }

    /// Begins a POST request.
    pub fn post(&self, url: &str) -> HttpRequest {
        self.request(Method::POST, url)
    }

    /// Begins a unary call of a gRPC method, `/envoy.service.auth.v3.Authorization/Check`, of the server at a URL. Its answer is read with
    /// [`HttpResponse::grpc`].
    pub fn grpc(&self, url: &str, method: &str, message: &impl Message) -> HttpRequest {
        let request = self.post(&format!("{}{method}", url.trim_end_matches('/'))).body(frame(message));
        let request = request.header(header::CONTENT_TYPE, "application/grpc").header(header::TE, "trailers");
        let inner = request.request.map(|mut inner| {
            *inner.version_mut() = Version::HTTP_2;
            inner
        });
        HttpRequest { request: inner, ..request }
    }

    /// Begins a request with a method.
    pub fn request(&self, method: Method, url: &str) -> HttpRequest {
        let request = Request::builder().method(method).uri(url).body(Bytes::new());
        let request = request.map_err(|error| HttpError::unsendable(url, error.to_string()));
        HttpRequest { http: self.clone(), request, secrets: Vec::new(), timeout: TIMEOUT }
    }
}

crate::framework::debug_fields!(Http { access });

impl HttpRequest {
    /// Adds a parameter to the query of the URL, percent-encoded.
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.and_then(|mut request| {
            let uri = request.uri();
            let separator = if uri.query().is_some() { '&' } else { '?' };
            let [name, value] = [name, value].map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC));
            let url = format!("{uri}{separator}{name}={value}");
            let extended = url.parse();
            *request.uri_mut() =
                extended.map_err(|error: InvalidUri| HttpError::unsendable(url, error.to_string()))?;
            Ok(request)
        });
        self
    }

    /// Sets a header, whose value may have all characters but control characters.
    pub fn header(mut self, name: HeaderName, value: &str) -> Self {
        match (HeaderValue::from_bytes(value.as_bytes()), &mut self.request) {
            (Ok(value), Ok(request)) => _ = request.headers_mut().insert(name, value),
            (Err(_), Ok(request)) => {
                let reason = format!("the header {name} has a byte that is not allowed");
                self.request = Err(HttpError::unsendable(request.uri(), reason));
            }
            (_, Err(_)) => {}
        }
        self
    }

    /// Sets headers. Values that are [sensitive](HeaderValue::set_sensitive) are not shown.
    pub fn headers(mut self, headers: &HeaderMap) -> Self {
        if let Ok(request) = &mut self.request {
            request.headers_mut().extend(headers.clone());
        }
        self
    }

    /// Sets `authorization` to a bearer token, if there is one. It is read when the request is sent: over TLS, or to this machine.
    pub fn bearer<'s>(mut self, token: impl Into<Option<&'s Secret>>) -> Self {
        let token = token.into().map(|token| (header::AUTHORIZATION, "Bearer ", token.clone()));
        self.secrets.extend(token);
        self
    }

    /// Sets a header to a secret, such as `x-api-key`, which is read when the request is sent: over TLS, or to this machine.
    pub fn secret_header(mut self, name: HeaderName, secret: &Secret) -> Self {
        self.secrets.push((name, "", secret.clone()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.request = self.request.map(|request| request.map(|_| body.into()));
        self
    }

    /// Sets the body to JSON, and `content-type`.
    pub fn json(self, body: &impl Serialize) -> Self {
        let with_type = self.header(header::CONTENT_TYPE, "application/json");
        match serde_json::to_vec(body) {
            Ok(body) => with_type.body(body),
            Err(error) => {
                let request = with_type.request.and_then(|request| {
                    Err(HttpError::unsendable(request.uri(), format!("the body is not JSON: {error}")))
                });
                Self { request, ..with_type }
            }
        }
    }

    /// Sends the request once more, within its time, if the connection is lost before an answer begins. For requests without an effect, as the
    /// service may receive it twice.
    pub fn repeatable(mut self) -> Self {
        if let Ok(request) = &mut self.request {
            request.extensions_mut().insert(Repeatable);
        }
        self
    }

    /// Limits the time of the whole exchange; 10 s unless set. A handler passes
    /// [`Call::time_left`](super::Call::time_left).
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sends the request.
    ///
    /// # Errors
    /// No answer, or a host that the configuration may not reach. An answer of any status is not an error.
    pub async fn send(self) -> Result<HttpResponse, HttpError> {
        let mut request = self.request?;
        let url = request.uri().clone();
        let host = url.host().unwrap_or_default();
        if !self.http.access.allows_host(host) {
            return Err(HttpError::unsendable(&url, format!("{host} is not in --allow-hosts")));
        }
        for (name, prefix, secret) in self.secrets {
            if url.scheme() != Some(&Scheme::HTTPS) && !is_this_machine(host) {
                return Err(HttpError::unsendable(&url, "would send the secret in the clear: use https"));
            }
            let text = secret.text().await;
            let text = text.map_err(|error| HttpError::new(&url, format!("{secret:?}: {error}")))?;
            let mut value = HeaderValue::from_str(&format!("{prefix}{}", text.expose()))
                .map_err(|_| HttpError::new(&url, format!("{secret:?} is not the value of a header")))?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        let Some(transport) = &self.http.transport else {
            return Err(HttpError::new(&url, "there is no HTTP client without a server"));
        };
        match transport.send(request, self.timeout).await {
            Ok(response) => Ok(HttpResponse { url, response }),
            Err(error) => {
                let fault = if error.is::<UnsendableError>() { Fault::Request } else { Fault::Service };
                let reason = error.to_string();
                Err(HttpError { source: Some(error), fault, ..HttpError::new(&url, reason) })
            }
        }
    }
}

impl HttpResponse {
    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns a text header by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the body.
    pub fn body(&self) -> &Bytes {
        self.response.body()
    }

    /// Returns the answer if its status is a success.
    ///
    /// # Errors
    /// Any other status.
    pub fn success(self) -> Result<Self, HttpError> {
        let status = self.status();
        if status.is_success() {
            Ok(self)
        } else {
            Err(self.error(Fault::of(status), format!("the answer is {status}")))
        }
    }

    /// Decodes the body from JSON.
    ///
    /// # Errors
    /// A body that is not such JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        serde_json::from_slice(self.body()).map_err(|error| self.unexpected(&error))
    }

    /// Decodes the body from protobuf.
    ///
    /// # Errors
    /// A body that is not such a message.
    pub fn protobuf<M: Message + Default>(&self) -> Result<M, HttpError> {
        M::decode(self.body().clone()).map_err(|error| self.unexpected(&error))
    }

    /// Decodes the message of a [gRPC call](Http::grpc) that ended in OK.
    ///
    /// # Errors
    /// Any other status, or an answer that is not such a message.
    pub fn grpc<M: Message + Default>(&self) -> Result<M, HttpError> {
        match self.header("grpc-status") {
            Some("0") => {}
            Some(code) => {
                let message = self.header("grpc-message").unwrap_or_default();
                let fault = if OUTAGES.contains(&code) { Fault::Service } else { Fault::Answer };
                return Err(self.error(fault, format!("the call ended in gRPC status {code}: {message}")));
            }
            None => {
                let status = self.status();
                return Err(
                    self.error(Fault::of(status), format!("the answer is {status} without a gRPC status"))
                );
            }
        }
        let message = unframe(self.body()).and_then(|message| M::decode(message).ok());
        message.ok_or_else(|| self.error(Fault::Answer, "the answer is not as expected"))
    }

    fn unexpected(&self, error: &dyn fmt::Display) -> HttpError {
        self.error(Fault::Answer, format!("the answer is not as expected: {error}"))
    }

    fn error(&self, fault: Fault, reason: impl Into<String>) -> HttpError {
        HttpError { fault, ..HttpError::new(&self.url, reason) }
    }
}

impl HttpError {
    fn new(url: impl ToString, reason: impl Into<String>) -> Self {
        Self { url: url.to_string(), reason: reason.into(), fault: Fault::Service, source: None }
    }

    fn unsendable(url: impl ToString, reason: impl Into<String>) -> Self {
        Self { fault: Fault::Request, ..Self::new(url, reason) }
    }

    /// Returns whether the request itself is at fault, so that it cannot be sent later either: a URL or a header is invalid, or the configuration
    /// may not reach the host.
    pub fn is_unsendable(&self) -> bool {
        self.fault == Fault::Request
    }

    /// Returns whether the service gave no answer or failed: with a status of 5xx or, of gRPC, UNAVAILABLE, INTERNAL and the like. Any other error is
    /// no reason to allow a request: the service would reject or misread it again.
    pub fn is_outage(&self) -> bool {
        self.fault == Fault::Service
    }
}

impl From<HttpError> for AdapterError {
    /// Converts an [outage](HttpError::is_outage) into UNAVAILABLE, and any other error into INTERNAL.
    fn from(error: HttpError) -> Self {
        let code = if error.is_outage() { Code::Unavailable } else { Code::Internal };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Context;

    #[tokio::test]
    async fn only_an_outage_is_unavailable() {
        let answer = |status: u16, grpc_status: &str| {
            let response = http::Response::builder().status(status).header("grpc-status", grpc_status);
            HttpResponse {
                url: Uri::from_static("http://127.0.0.1/"),
                response: response.body(Bytes::new()).unwrap(),
            }
        };
        let code = |error: HttpError| AdapterError::from(error).code();
        for (status, expected) in
            [(503, Code::Unavailable), (302, Code::Internal), (404, Code::Internal), (429, Code::Internal)]
        {
            assert_eq!(code(answer(status, "0").success().unwrap_err()), expected, "{status}");
        }
        for (status, expected) in [
            ("14", Code::Unavailable),
            ("13", Code::Unavailable),
            ("3", Code::Internal),
            ("8", Code::Internal),
        ] {
            assert_eq!(code(answer(200, status).grpc::<()>().unwrap_err()), expected, "{status}");
        }
        assert_eq!(code(answer(200, "0").json::<bool>().unwrap_err()), Code::Internal);
        let unsendable = Context::detached(()).http().get("http://a b/").send().await.unwrap_err();
        assert!(unsendable.is_unsendable() && !unsendable.is_outage());
        assert_eq!(code(unsendable), Code::Internal);
    }

    #[test]
    fn parameters_are_added_to_the_query_and_encoded() {
        let http = Context::detached(()).http();
        for (url, expected) in [
            ("http://127.0.0.1", "http://127.0.0.1/?na%20me=anna%20%26%20b%C3%B6b&page=2"),
            ("http://127.0.0.1/users?all", "http://127.0.0.1/users?all&na%20me=anna%20%26%20b%C3%B6b&page=2"),
        ] {
            let request = http.get(url).query("na me", "anna & böb").query("page", "2");
            assert_eq!(request.request.unwrap().uri(), expected);
        }
    }

    #[tokio::test]
    async fn a_secret_is_sent_over_tls_or_to_this_machine() {
        let context = Context::detached(());
        let token =
            context.secret("token_file", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).await.unwrap();
        for (url, is_refused) in [
            ("http://example.com/", true),
            ("http://127.0.0.1.example.com/", true),
            ("https://example.com/", false),
            ("http://[::1]/", false),
            ("http://localhost/", false),
        ] {
            let request = || context.http().get(url);
            let api_key = HeaderName::from_static("x-api-key");
            for request in [request().bearer(&token), request().secret_header(api_key, &token)] {
                let error = request.send().await.unwrap_err().to_string();
                assert_eq!(
                    error.contains("would send the secret in the clear"),
                    is_refused,
                    "{url}: {error}"
                );
            }
        }
    }

    /// Answers with the headers of the request.
    struct Echo;

    impl HttpTransport for Echo {
        fn send(&self, request: Request<Bytes>, _: Duration) -> SendFuture {
            let mut response = http::Response::new(Bytes::new());
            *response.headers_mut() = request.headers().clone();
            Box::pin(std::future::ready(Ok(response)))
        }

        fn with_authorities(&self, _: FileLocation) -> Result<Arc<dyn HttpTransport>, TransportError> {
            Ok(Arc::new(Self))
        }
    }

    #[tokio::test]
    async fn secrets_are_in_their_headers_and_not_shown() {
        let path = std::env::temp_dir().join(format!("mixer-adapter-key-{}", std::process::id()));
        std::fs::write(&path, "s3cr3t\n").unwrap();
        let secret = Context::detached(()).secret("key_file", &path).await.unwrap();
        let http = Http::new(Some(Arc::new(Echo)), Access::unrestricted());
        let request = http.get("https://example.com/").bearer(&secret);
        let request = request.secret_header(HeaderName::from_static("x-api-key"), &secret);
        assert!(!format!("{request:?}").contains("s3cr3t"));
        let answer = request.send().await.unwrap();
        assert_eq!(answer.header("authorization"), Some("Bearer s3cr3t"));
        assert_eq!(answer.header("x-api-key"), Some("s3cr3t"));
        assert!(answer.headers().values().all(HeaderValue::is_sensitive));
        std::fs::remove_file(path).unwrap();
    }
}
