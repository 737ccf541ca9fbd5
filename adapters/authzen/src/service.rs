//! Requests to the service.

use std::{sync::Arc, time::Duration};

use mixer_adapter_core::{
    AdapterError, Context,
    adapter::{Http, HttpError, HttpRequest, HttpResponse, Secret},
    http::StatusCode,
};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{sync::Mutex, time::timeout};

use super::{
    decision::Decision,
    evaluation::Evaluation,
    settings::{AuthZenSettings, ServiceUrl},
};

/// The decision service.
#[derive(Debug)]
pub(super) struct Service {
    http: Http,
    url: ServiceUrl,
    token: Option<Secret>,
    endpoint: Endpoint,
}

/// The endpoint of evaluations.
#[derive(Debug)]
enum Endpoint {
    Fixed(Arc<str>),
    /// `None` until the metadata has named it.
    Discovered(Mutex<Option<Arc<str>>>),
}

/// The part of the service's metadata that is read.
#[derive(Debug, Deserialize)]
struct Metadata {
    policy_decision_point: String,
    access_evaluation_endpoint: String,
}

/// An evaluation without a decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum EvaluationError {
    #[error(transparent)]
    Unavailable(HttpError),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Rejected(HttpError),
    #[error("the metadata is that of {0:?}, which is not the url of the configuration")]
    OtherService(String),
    #[error("the metadata names an endpoint on another host: {0:?}")]
    OtherHost(String),
}

impl EvaluationError {
    /// Returns whether the service was away or failed. Otherwise it rejected the evaluation, or its answer was not a decision.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Timeout(_))
    }
}

impl Service {
    pub(super) async fn open(settings: &AuthZenSettings, context: &Context) -> Result<Self, AdapterError> {
        let token = match settings.token_file.as_str() {
            "" => None,
            path => Some(context.secret("token_file", path).await?),
        };
        let url = settings.url.clone();
        let endpoint = if settings.discovery {
            Endpoint::Discovered(Mutex::default())
        } else {
            Endpoint::Fixed(url.evaluation().into())
        };
        Ok(Self { http: context.http(), url, token, endpoint })
    }

    /// Asks for a decision, for at most `limit`.
    pub(super) async fn evaluate(
        &self,
        evaluation: &Evaluation,
        limit: Duration,
    ) -> Result<Decision, EvaluationError> {
        let exchange = async {
            let endpoint = self.endpoint().await?;
            let answer = self.send(self.http.post(&endpoint).json(evaluation)).await?;
            if answer.status() == StatusCode::NOT_FOUND
                && let Endpoint::Discovered(endpoint) = &self.endpoint
            {
                // The service may have moved its endpoint.
                *endpoint.lock().await = None;
            }
            decode(answer)
        };
        timeout(limit, exchange).await.unwrap_or(Err(EvaluationError::Timeout(limit)))
    }

    /// Returns the endpoint of evaluations. One call asks for the metadata, and others wait for it.
    async fn endpoint(&self) -> Result<Arc<str>, EvaluationError> {
        let discovered = match &self.endpoint {
            Endpoint::Fixed(endpoint) => return Ok(endpoint.clone()),
            Endpoint::Discovered(discovered) => discovered,
        };
        let mut endpoint = discovered.lock().await;
        if let Some(endpoint) = &*endpoint {
            return Ok(endpoint.clone());
        }
        let metadata: Metadata = decode(self.send(self.http.get(&self.url.metadata())).await?)?;
        if !self.url.is(&metadata.policy_decision_point) {
            return Err(EvaluationError::OtherService(metadata.policy_decision_point));
        }
        // The token is for the host of the configuration.
        let named = metadata.access_evaluation_endpoint;
        if !self.url.has_origin_of(&named) {
            return Err(EvaluationError::OtherHost(named));
        }
        Ok(endpoint.insert(named.into()).clone())
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, EvaluationError> {
        let request = match &self.token {
            Some(token) => request.bearer(token),
            None => request,
        };
        request.send().await.map_err(EvaluationError::Unavailable)
    }
}

/// Decodes an answer with a status of success.
fn decode<T: DeserializeOwned>(answer: HttpResponse) -> Result<T, EvaluationError> {
    let error = if answer.status().is_server_error() {
        EvaluationError::Unavailable
    } else {
        EvaluationError::Rejected
    };
    answer.success().map_err(error)?.json().map_err(EvaluationError::Rejected)
}
