//! The client of a server's admin port.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{
    Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use serde_json::Value as Json;

use super::server_args::{AdminArgs, ClientSecurity};
use mixer_adapter_net::HttpClient;

/// The time for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of an answer in bytes. Explanations have up to 4 MiB.
const MAX_ANSWER: usize = 8 << 20;

/// Asks an admin port.
#[derive(Debug)]
pub(super) struct AdminClient {
    client: HttpClient,
    address: String,
    security: ClientSecurity,
}

impl AdminClient {
    pub(super) fn new(port: &AdminArgs) -> anyhow::Result<Self> {
        let (address, security) = (port.admin.clone(), port.security.open(&port.admin)?);
        let mut client = HttpClient::new(TIMEOUT, MAX_ANSWER);
        if let Some(tls) = &security.tls {
            client = client.with_tls(tls.clone()).with_server_name(security.server_name.clone());
        }
        Ok(Self { client, address, security })
    }

    /// Returns the JSON at a path.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Json> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// Returns the JSON in answer to JSON.
    pub(super) async fn post(&self, path: &str, body: &Json) -> anyhow::Result<Json> {
        self.send(Method::POST, path, body.to_string().into()).await
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Json> {
        let scheme = if self.security.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}{path}", self.address);
        let mut request =
            Request::builder().method(method).uri(&url).header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.security.token {
            request = request.header(AUTHORIZATION, token);
        }
        let answer = match self.client.send(request.body(body)?).await {
            Ok(answer) => answer,
            Err(error) => {
                let hint = self.security.hint(&self.address, &error.to_string()).await;
                let hint = hint.unwrap_or_else(|| "set --admin to the admin port of the server".to_owned());
                anyhow::bail!("{url}: {error}: {hint}");
            }
        };
        Self::read(&url, &answer)
    }

    fn read(url: &str, answer: &Response<Bytes>) -> anyhow::Result<Json> {
        let text = String::from_utf8_lossy(answer.body());
        match answer.status() {
            StatusCode::OK => serde_json::from_str(&text).with_context(|| format!("{url}: not valid JSON")),
            StatusCode::UNAUTHORIZED => anyhow::bail!("{url}: {}: add --token-file FILE", text.trim()),
            status => anyhow::bail!("{url}: {status}: {}", text.trim()),
        }
    }
}
