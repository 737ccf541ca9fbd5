//! Requests to the service.

use std::{sync::Arc, time::Duration};

use mixer_adapter_core::{
    AdapterError, Context,
    adapter::{Http, HttpRequest, HttpResponse, Secret},
    http::StatusCode,
};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{sync::Mutex, time::timeout};

use super::{
    decision::{Decision, Decisions},
    error::EvaluationError,
    evaluation::Question,
    settings::{AuthZenSettings, EVALUATION_PATH, EVALUATIONS_PATH, ServiceUrl},
};

/// The decision service.
#[derive(Debug)]
pub(super) struct Service {
    http: Http,
    url: ServiceUrl,
    token: Option<Secret>,
    endpoints: EndpointSource,
}

/// Where the endpoints come from.
#[derive(Debug)]
enum EndpointSource {
    Fixed(Endpoints),
    /// `None` until the metadata has named them.
    Discovered(Mutex<Option<Endpoints>>),
}

/// The URLs that are asked.
#[derive(Debug)]
struct Endpoints {
    evaluation: Arc<str>,
    evaluations: Option<Arc<str>>,
}

impl Endpoints {
    fn get(&self, question: &Question) -> Option<Arc<str>> {
        if question.len() == 1 { Some(self.evaluation.clone()) } else { self.evaluations.clone() }
    }
}

/// The part of the service's metadata that is read.
#[derive(Debug, Deserialize)]
struct Metadata {
    policy_decision_point: String,
    access_evaluation_endpoint: String,
    access_evaluations_endpoint: Option<String>,
}

impl Service {
    pub(super) async fn open(settings: &AuthZenSettings, context: &Context) -> Result<Self, AdapterError> {
        let token = context.optional_secret("token_file", &settings.token_file).await?;
        let url = settings.url.clone();
        let endpoints = if settings.discovery {
            EndpointSource::Discovered(Mutex::default())
        } else {
            let [evaluation, evaluations] =
                [EVALUATION_PATH, EVALUATIONS_PATH].map(|path| url.below(path).into());
            EndpointSource::Fixed(Endpoints { evaluation, evaluations: Some(evaluations) })
        };
        let http = context.http_with_ca("ca_file", &settings.ca_file).await?;
        Ok(Self { http, url, token, endpoints })
    }

    /// Asks for a decision, for at most `limit`.
    pub(super) async fn evaluate(
        &self,
        question: &Question,
        limit: Duration,
    ) -> Result<Decision, EvaluationError> {
        let exchange = async {
            let endpoint = self.endpoint(question).await?;
            let answer = self.send(self.http.post(&endpoint).json(question)).await?;
            if answer.status() == StatusCode::NOT_FOUND
                && let EndpointSource::Discovered(endpoints) = &self.endpoints
            {
                // The service may have moved its endpoints.
                *endpoints.lock().await = None;
            }
            match question.len() {
                1 => decode(answer),
                several => decode::<Decisions>(answer)?.combine(several).ok_or(EvaluationError::Incomplete),
            }
        };
        timeout(limit, exchange).await.unwrap_or(Err(EvaluationError::Timeout(limit)))
    }

    /// Returns the endpoint for a question. One call asks for the metadata, and others wait for it.
    async fn endpoint(&self, question: &Question) -> Result<Arc<str>, EvaluationError> {
        let discovered = match &self.endpoints {
            EndpointSource::Fixed(endpoints) => {
                return endpoints.get(question).ok_or(EvaluationError::NoEvaluations);
            }
            EndpointSource::Discovered(discovered) => discovered,
        };
        let mut endpoints = discovered.lock().await;
        if let Some(endpoints) = &*endpoints {
            return endpoints.get(question).ok_or(EvaluationError::NoEvaluations);
        }
        let metadata: Metadata = decode(self.send(self.http.get(&self.url.metadata())).await?)?;
        if !self.url.is(&metadata.policy_decision_point) {
            return Err(EvaluationError::OtherService(metadata.policy_decision_point));
        }
        // The token is for no other host.
        let evaluation = metadata.access_evaluation_endpoint;
        if !self.url.has_origin_of(&evaluation) {
            return Err(EvaluationError::OtherHost(evaluation));
        }
        let evaluations = metadata.access_evaluations_endpoint.filter(|named| self.url.has_origin_of(named));
        let found = Endpoints { evaluation: evaluation.into(), evaluations: evaluations.map(Arc::from) };
        endpoints.insert(found).get(question).ok_or(EvaluationError::NoEvaluations)
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, EvaluationError> {
        Ok(request.bearer(&self.token).repeatable().send().await?)
    }
}

/// Decodes an answer with a status of success.
fn decode<T: DeserializeOwned>(answer: HttpResponse) -> Result<T, EvaluationError> {
    Ok(answer.success()?.json()?)
}
