//! Asks an external authorization service: another server of `envoy.service.auth.v3.Authorization`, or an HTTP service in the way of Envoy's
//! `http_service` or of forward authentication.

mod decision;
mod error;
mod grpc;
mod http;
mod question;
mod settings;
#[cfg(test)]
mod tests;

use mixer_adapter_core::{
    Adapter, AdapterError, Call, Check, Code, Context, Handle,
    adapter::{Http, Secret},
    http::StatusCode,
    log::{log_text, warn_limited},
    metrics::Events,
};
use mixer_adapter_templates::{Authorization, authorization};
use tokio::{sync::Semaphore, time::timeout};

use self::{
    error::AskError,
    params::{OnError, Protocol},
    question::Question,
};

mixer_adapter_core::include_proto!("adapter.extauthz.config");

pub use settings::ExtAuthzSettings;

/// The handler: the authorization service, and what happens without its answer.
#[derive(Debug)]
pub struct ExtAuthz {
    settings: ExtAuthzSettings,
    http: Http,
    token: Option<Secret>,
    calls: Semaphore,
    failed: Events,
}

impl Adapter for ExtAuthz {
    const NAME: &str = "extauthz";
    const DESCRIPTION: &str = "Asks an external authorization service, by Envoy's gRPC or by HTTP.";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const EXAMPLE: &str = include_str!("../example.yaml");
    type Config = ExtAuthzSettings;
    type Templates = (Authorization,);

    async fn open(settings: ExtAuthzSettings, context: Context) -> Result<Self, AdapterError> {
        let token = context.optional_secret("token_file", &settings.token_file).await?;
        let calls = Semaphore::new(settings.max_concurrent_calls);
        let http = context.http_with_ca("ca_file", &settings.ca_file).await?;
        let failed = context.metrics().events("calls_failed");
        Ok(Self { settings, http, token, calls, failed })
    }
}

impl Handle<Authorization> for ExtAuthz {
    async fn handle(&self, call: Call<authorization::InstanceMsg>) -> Result<Check, AdapterError> {
        let limit = call.time_left(self.settings.timeout);
        let decision = timeout(limit, self.ask(&call)).await.unwrap_or(Err(AskError::Timeout(limit)));
        Ok(match decision {
            // The interval alone limits a cached answer.
            Ok(check) => check.valid_for(self.settings.caching_interval).uses(u32::MAX),
            Err(error) => self.without_decision(&error).no_cache(),
        })
    }
}

impl ExtAuthz {
    /// Asks the service, which may take any time.
    async fn ask(&self, call: &Call<authorization::InstanceMsg>) -> Result<Check, AskError> {
        let depth = question::next_depth(call)?;
        let _permit = self.calls.acquire().await;
        // After the wait: it copies headers and the body.
        let question = Question::new(call, depth)?;
        let ExtAuthzSettings { url, protocol, client_headers, upstream_headers, .. } = &self.settings;
        let request = match protocol {
            Protocol::Grpc => grpc::request(&self.http, url, question)?,
            Protocol::Http => http::request(&self.http, url, &question)?,
            Protocol::ForwardAuth => http::forward_request(&self.http, url, &question)?,
        };
        let answer = request.bearer(&self.token).repeatable().send().await?;
        match protocol {
            Protocol::Grpc => grpc::decision(&answer),
            Protocol::Http if answer.status() == StatusCode::OK => {
                Ok(http::allowed(&answer, upstream_headers))
            }
            Protocol::ForwardAuth if answer.status().is_success() => {
                Ok(http::allowed(&answer, upstream_headers))
            }
            Protocol::Http | Protocol::ForwardAuth => http::denial(answer, client_headers),
        }
    }

    fn without_decision(&self, error: &AskError) -> Check {
        self.failed.add(1);
        warn_limited!(error = log_text(error), "the authorization service made no decision");
        match self.settings.on_error {
            OnError::Allow if error.is_outage() => {
                http::allowed_without_answer(&self.settings.upstream_headers)
            }
            OnError::Allow | OnError::Deny => {
                Check::deny(Code::Unavailable, "the authorization service made no decision")
            }
        }
    }
}
