//! Asks a decision service whether a subject may perform an action, with the Access Evaluation and Evaluations APIs of AuthZEN 1.0
//! over HTTP.

mod decision;
mod error;
mod evaluation;
mod service;
mod settings;
#[cfg(test)]
mod tests;

use mixer_adapter_core::{
    Adapter, AdapterError, Call, Check, Code, Context, Handle,
    adapter::HeaderOperation,
    log::{log_text, warn_limited},
    metrics::Events,
};
use mixer_adapter_templates::{Authorization, authorization};

use self::{error::EvaluationError, evaluation::Question, params::OnError, service::Service};

mixer_adapter_core::include_proto!("adapter.authzen.config");

pub use settings::AuthZenSettings;

/// The handler: the decision service, and what happens without a decision.
#[derive(Debug)]
pub struct AuthZen {
    service: Service,
    settings: AuthZenSettings,
    failed: Events,
}

impl Adapter for AuthZen {
    const NAME: &str = "authzen";
    const DESCRIPTION: &str = "Asks a decision service with the AuthZEN Authorization API.";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const EXAMPLE: &str = include_str!("../example.yaml");
    type Config = AuthZenSettings;
    type Templates = (Authorization,);

    async fn open(settings: AuthZenSettings, context: Context) -> Result<Self, AdapterError> {
        let service = Service::open(&settings, &context).await?;
        Ok(Self { service, settings, failed: context.metrics().events("evaluations_failed") })
    }
}

impl Handle<Authorization> for AuthZen {
    async fn handle(&self, call: Call<authorization::InstanceMsg>) -> Result<Check, AdapterError> {
        Ok(match self.decide(&call).await {
            // The interval alone limits a cached decision.
            Ok(check) => check.valid_for(self.settings.caching_interval).uses(u32::MAX),
            Err(error) => self.without_decision(&error).no_cache(),
        })
    }
}

impl AuthZen {
    async fn decide(&self, call: &Call<authorization::InstanceMsg>) -> Result<Check, EvaluationError> {
        let AuthZenSettings { timeout, upstream_headers, client_headers, .. } = &self.settings;
        let question = Question::new(call, &self.settings)?;
        let decision = self.service.evaluate(&question, call.time_left(*timeout)).await?;
        decision.into_check(upstream_headers, client_headers)
    }

    fn without_decision(&self, error: &EvaluationError) -> Check {
        self.failed.add(1);
        warn_limited!(error = log_text(error), "the decision service made no decision");
        match self.settings.on_error {
            OnError::Allow if error.is_outage() => {
                let headers = self.settings.upstream_headers.iter();
                let removed = headers.map(|header| HeaderOperation::remove(header.name.as_str()));
                Check::allow().with_header_operations(removed.collect(), Vec::new())
            }
            OnError::Allow | OnError::Deny => {
                Check::deny(Code::Unavailable, "the decision service made no decision")
            }
        }
    }
}
