use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use form_urlencoded::{Serializer, byte_serialize};
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;
use tonic::Status;

use super::{
    file,
    material::Material,
    post::{Answer, post},
    renewed::Kept,
    settings::OAuthSettings,
    token::Header,
};
use mixer_adapter_core::adapter::ConfigErrors;

/// Fetches tokens as an OAuth client with credentials of its own (RFC 6749, section 4.4).
pub(super) struct OAuth {
    settings: OAuthSettings,
    header: Header,
    material: Arc<Material>,
    /// The server does not take the credentials in the `authorization` header, but with the other parameters.
    as_params: AtomicBool,
}

/// What a server answers.
#[derive(serde::Deserialize)]
struct Grant {
    access_token: String,
    #[serde(default)]
    token_type: String,
    #[serde(default)]
    expires_in: Option<Seconds>,
}

/// Some servers write it as text.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(f64),
    Text(String),
}

/// What a server answers in place of a token.
#[derive(Default, serde::Deserialize)]
struct Refusal {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

/// How long a token serves whose lifetime the server does not tell.
const UNTOLD: Duration = Duration::from_secs(300);
/// The longest lifetime that is believed.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
const CLIENT_SECRET: &str = "connection.authentication.tls.oauth.client_secret";
const TOKEN_URL: &str = "connection.authentication.tls.oauth.token_url";

impl OAuth {
    /// Reads the secret's file once, to find out early that it cannot be read.
    pub(super) fn new(
        settings: OAuthSettings,
        material: Arc<Material>,
        header: Header,
    ) -> Result<Self, ConfigErrors> {
        secret(file::read(CLIENT_SECRET, &settings.client_secret)?)?;
        Ok(Self { settings, header, material, as_params: AtomicBool::new(false) })
    }

    /// A new token.
    pub(super) async fn fetch(self: Arc<Self>) -> Result<Kept<HeaderValue>, Status> {
        let asked = Instant::now();
        let failed = |why: String| {
            Status::unavailable(format!("{TOKEN_URL}: no token from {}: {why}", self.settings.endpoint()))
        };
        let content = file::read_aside(CLIENT_SECRET.to_owned(), self.settings.client_secret.clone()).await;
        let secret = content.and_then(secret).map_err(|error| Status::unavailable(error.to_string()))?;
        let as_params = self.as_params.load(Relaxed);
        let mut answer = self.ask(&secret, as_params).await.map_err(failed)?;
        // As other clients do: servers that do not take the one way often take the other.
        if answer.status.is_client_error() && !as_params {
            let other = self.ask(&secret, true).await.map_err(failed)?;
            if other.status.is_success() {
                self.as_params.store(true, Relaxed);
                answer = other;
            }
        }
        let grant = granted(&answer).map_err(failed)?;
        let value = self.header.value(grant.access_token.as_bytes(), &grant.token_type);
        let value = value.map_err(|why| failed(format!("the answer {why}")))?;
        let lifetime = grant.lifetime();
        Ok(Kept {
            value,
            renew_at: asked + lifetime - (lifetime / 5).min(Duration::from_secs(60)),
            wait_at: asked + lifetime - (lifetime / 10).min(Duration::from_secs(10)),
            good_until: Some(asked + lifetime),
        })
    }

    async fn ask(&self, secret: &str, as_params: bool) -> Result<Answer, String> {
        let authorization = (!as_params).then(|| basic(&self.settings.client_id, secret));
        let form = self.form(as_params.then_some(secret));
        post(&self.settings.token_url, self.material.roots(), authorization, form).await
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
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let credentials = STANDARD.encode(format!("{}:{}", encoded(client_id), encoded(secret)));
    // Base64 is always a header's value.
    let value = HeaderValue::try_from(format!("Basic {credentials}"));
    let mut value = value.unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

fn secret(content: Vec<u8>) -> Result<String, ConfigErrors> {
    let refused = |why: &str| ConfigErrors::single(CLIENT_SECRET, why);
    let mut secret = String::from_utf8(content).map_err(|_| refused("holds something that is not UTF-8"))?;
    secret.truncate(secret.trim_end().len());
    if secret.is_empty() { Err(refused("holds no secret")) } else { Ok(secret) }
}

fn granted(answer: &Answer) -> Result<Grant, String> {
    if answer.status != StatusCode::OK {
        let refusal: Refusal = serde_json::from_slice(&answer.body).unwrap_or_default();
        return Err(format!("HTTP {} {} {}", answer.status, refusal.error, refusal.error_description)
            .trim_end()
            .to_owned());
    }
    // The error must not show what was read: that is a token.
    serde_json::from_slice(&answer.body).map_err(|_| "the answer is not JSON with an access_token".to_owned())
}

impl Grant {
    fn lifetime(&self) -> Duration {
        let seconds = match &self.expires_in {
            Some(Seconds::Number(seconds)) => Some(*seconds),
            Some(Seconds::Text(text)) => text.parse().ok(),
            None => None,
        };
        match seconds {
            // Zero is how some servers say that they do not tell.
            Some(seconds) if seconds > 0.0 => {
                Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST)
            }
            _ => UNTOLD,
        }
    }
}
