use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use form_urlencoded::{Serializer, byte_serialize};
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use tokio::time::Instant;
use tonic::Status;

use super::{
    file,
    header::{Header, TokenError},
    refreshing::Cached,
    settings::{OAuthSettings, TOKEN_URL},
};
use mixer_adapter_core::adapter::{Access, ConfigErrors};
use mixer_adapter_net::{HttpClient, HttpError, tls};

/// Fetches tokens by the client credentials grant of OAuth (RFC 6749, section 4.4).
pub(super) struct OAuth {
    settings: OAuthSettings,
    header: Header,
    http: HttpClient,
    /// Whether the server takes the credentials as parameters instead of the `authorization` header.
    as_params: AtomicBool,
}

/// The answer of a token server.
#[derive(serde::Deserialize)]
struct Grant {
    access_token: String,
    #[serde(default)]
    token_type: String,
    #[serde(default)]
    expires_in: Option<Seconds>,
}

/// Some servers send it as text.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(f64),
    Text(String),
}

/// The answer of a token server in place of a token.
#[derive(Debug, Default, serde::Deserialize)]
struct ErrorAnswer {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

/// A failed request for a token.
#[derive(Debug, thiserror::Error)]
enum OAuthError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("{}", format!("HTTP {_0} {} {}", _1.error, _1.error_description).trim_end())]
    Refused(StatusCode, ErrorAnswer),
    #[error("the answer is not JSON with an access_token")]
    NotAGrant,
    #[error("the answer {0}")]
    Token(#[from] TokenError),
}

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer in bytes.
const MAX_ANSWER: usize = 256 << 10;
/// The lifetime of a token where the server names none.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);
/// The longest lifetime that is used.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
const CLIENT_SECRET: &str = "connection.authentication.tls.oauth.client_secret";

impl OAuth {
    /// Reads the secret's file once, to report early that it cannot be read.
    pub(super) fn new(
        settings: OAuthSettings,
        tls: Arc<tls::Client>,
        header: Header,
        access: Access,
    ) -> Result<Self, ConfigErrors> {
        secret(file::read(CLIENT_SECRET, &settings.client_secret)?)?;
        let http = HttpClient::new(TIMEOUT, MAX_ANSWER)
            .with_tls(tls)
            .with_address_filter(move |host, address| access.allows_address(host, address));
        Ok(Self { settings, header, http, as_params: AtomicBool::new(false) })
    }

    /// Fetches a new token.
    pub(super) async fn fetch(&self) -> Result<Cached<HeaderValue>, Status> {
        let asked = Instant::now();
        let content = file::read_blocking(CLIENT_SECRET, self.settings.client_secret.clone()).await;
        let secret = content.and_then(secret).map_err(|error| Status::unavailable(error.to_string()))?;
        let (value, lifetime) = self.request_token(&secret).await.map_err(|error| {
            Status::unavailable(format!("{TOKEN_URL}: no token from {}: {error}", self.settings.endpoint()))
        })?;
        Ok(Cached {
            value,
            refresh_at: asked + lifetime - (lifetime / 5).min(Duration::from_secs(60)),
            wait_at: asked + lifetime - (lifetime / 10).min(Duration::from_secs(10)),
            good_until: Some(asked + lifetime),
        })
    }

    async fn request_token(&self, secret: &str) -> Result<(HeaderValue, Duration), OAuthError> {
        let as_params = self.as_params.load(Relaxed);
        let mut answer = self.send(secret, as_params).await?;
        // As other clients do: servers that refuse one form often take the other.
        if answer.status().is_client_error() && !as_params {
            let other = self.send(secret, true).await?;
            if other.status().is_success() {
                self.as_params.store(true, Relaxed);
                answer = other;
            }
        }
        let grant = granted(&answer)?;
        let value = self.header.value(grant.access_token.as_bytes(), &grant.token_type)?;
        Ok((value, grant.lifetime()))
    }

    /// Posts the form. Redirects are not followed: the form holds a secret.
    async fn send(&self, secret: &str, as_params: bool) -> Result<Response<Bytes>, HttpError> {
        let form = self.form(as_params.then_some(secret));
        let mut request = Request::new(Bytes::from(form));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.settings.token_url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if !as_params {
            headers.insert(AUTHORIZATION, basic(&self.settings.client_id, secret));
        }
        self.http.send(request).await
    }

    /// The parameters, with the credentials if they go there.
    fn form(&self, secret: Option<&str>) -> String {
        let mut form = Serializer::new(String::new());
        form.extend_pairs(&self.settings.params);
        if let Some(secret) = secret {
            form.append_pair("client_id", &self.settings.client_id).append_pair("client_secret", secret);
        }
        form.finish()
    }
}

/// The credentials in a header (RFC 6749, section 2.3.1).
fn basic(client_id: &str, secret: &str) -> HeaderValue {
    let [client_id, secret] =
        [client_id, secret].map(|text| byte_serialize(text.as_bytes()).collect::<String>());
    let credentials = STANDARD.encode(format!("{client_id}:{secret}"));
    // Base64 is always a header's value.
    let value = HeaderValue::try_from(format!("Basic {credentials}"));
    let mut value = value.unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

fn secret(content: Vec<u8>) -> Result<String, ConfigErrors> {
    let reason = match String::from_utf8(content) {
        Ok(secret) if !secret.trim_end().is_empty() => return Ok(secret.trim_end().to_owned()),
        Ok(_) => "holds no secret",
        Err(_) => "holds something that is not UTF-8",
    };
    Err(ConfigErrors::single(CLIENT_SECRET, reason))
}

fn granted(answer: &Response<Bytes>) -> Result<Grant, OAuthError> {
    if answer.status() != StatusCode::OK {
        let body = serde_json::from_slice(answer.body()).unwrap_or_default();
        return Err(OAuthError::Refused(answer.status(), body));
    }
    // The error must not show the answer, which holds a token.
    serde_json::from_slice(answer.body()).map_err(|_| OAuthError::NotAGrant)
}

impl Grant {
    fn lifetime(&self) -> Duration {
        let seconds = match &self.expires_in {
            Some(Seconds::Number(seconds)) => Some(*seconds),
            Some(Seconds::Text(text)) => text.parse().ok(),
            None => None,
        };
        match seconds {
            // Some servers send zero for an unknown lifetime.
            Some(seconds) if seconds > 0.0 => {
                Duration::try_from_secs_f64(seconds).unwrap_or(MAX_LIFETIME).min(MAX_LIFETIME)
            }
            _ => DEFAULT_LIFETIME,
        }
    }
}
