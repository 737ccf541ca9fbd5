//! `/explain`: attributes in, the answer and its trace out, as JSON.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::{RawQuery, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
    routing::get,
};
use bytes::Bytes;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::Instant,
};
use tonic::Status;

use super::MAX_TRACE;
use crate::{
    answer::{Rendered, proto_status, status_json},
    service::{
        limits::{admit_check, admit_report},
        mixer::{admission, check_request, report_request, trace_check, trace_report},
    },
};
use mixer_adapter_core::framework::status::status_name;
use mixer_adapter_engine::{
    Mixer,
    attribute::{ParseAttributesError, ParsedAttributes, Vocabulary, parse_json, parse_pairs},
    dictionary::WORDS,
    proto::istio::mixer::v1::{CheckRequest, ReportRequest, check_request::QuotaParams},
    trace::Trace,
};
use mixer_adapter_host::handler::Caller;

/// Deadline of the calls of adapters for one explanation.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of explanations at a time, so that they leave the processors and the memory to calls.
const MAX_EXPLANATIONS: usize = 4;

/// The maximum size of an explanation in bytes. It has its steps twice, as JSON and as text.
const MAX_ANSWER: usize = 4 << 20;

/// Returns the router of `/explain` for an engine.
///
/// `GET /explain?request.path=/x&source.ip=ip:10.0.0.1` checks a request with these attributes. `POST` takes them as a JSON
/// object; a list of objects is reported. `quota=NAME` in the query of a `POST` asks a check for a quota, too.
///
/// Explanations are made on `runtime`: they call adapters, which may block.
pub(in crate::service) fn router(mixer: Arc<Mixer>, runtime: Handle) -> Router {
    let free = Arc::new(Semaphore::new(MAX_EXPLANATIONS));
    Router::new().route("/explain", get(by_query).post(by_body)).with_state(Explainer {
        mixer,
        runtime,
        free,
    })
}

#[derive(Clone)]
struct Explainer {
    mixer: Arc<Mixer>,
    runtime: Handle,
    /// The explanations that may begin.
    free: Arc<Semaphore>,
}

/// The response of `/explain` and `/decisions` if they are not allowed.
pub(in crate::service) async fn refusal() -> (StatusCode, &'static str) {
    let why = "this port is open to other machines, and an explanation shows rules and what adapters are sent, a decision \
               the attributes of its request: `serve --admin-token-file FILE` allows it to clients with a token, `serve --explain` to all\n";
    (StatusCode::FORBIDDEN, why)
}

async fn by_query(State(explainer): State<Explainer>, RawQuery(query): RawQuery) -> Response {
    let (quotas, attributes): (Vec<(String, String)>, Vec<_>) =
        parameters(query).into_iter().partition(|(name, _)| name == "quota");
    if !quotas.is_empty() {
        let reason = "a quota request changes the quota: POST the attributes as a JSON object\n";
        return (StatusCode::METHOD_NOT_ALLOWED, reason).into_response();
    }
    explainer
        .explain(move |types: &Vocabulary| Ok(Requested::check(&parse_pairs(attributes, types)?, quotas)))
        .await
}

async fn by_body(
    State(explainer): State<Explainer>,
    RawQuery(query): RawQuery,
    Json(attributes): Json<Value>,
) -> Response {
    let quotas = parameters(query);
    if let Some((name, _)) = quotas.iter().find(|(name, _)| name != "quota") {
        return bad_request(&format!(
            "the query of a POST has only quota=NAME, not {name:?}; write attributes into the body"
        ));
    }
    explainer
        .explain(move |types: &Vocabulary| match &attributes {
            Value::Array(requests) => {
                let requests: Result<Vec<_>, _> =
                    requests.iter().map(|request| parse_json(request, types)).collect();
                Ok(Requested::Report(report_request(&requests?, WORDS.len())))
            }
            request => Ok(Requested::check(&parse_json(request, types)?, quotas)),
        })
        .await
}

impl Explainer {
    async fn explain(
        self,
        read: impl FnOnce(&Vocabulary) -> Result<Requested, ParseAttributesError> + Send + 'static,
    ) -> Response {
        let Ok(permit) = self.free.try_acquire_owned() else {
            let reason =
                format!("{MAX_EXPLANATIONS} explanations are in progress, which is the maximum; try again\n");
            return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
        };
        // It counts until it has ended, also if the client does not wait for that.
        let made = self.runtime.spawn(async move { (explain(&self.mixer, read).await, permit) });
        match made.await {
            Ok((Ok((answer, trace)), permit)) => encoded(answer, trace, permit).await,
            Ok((Err(response), _)) => response,
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

/// Returns the response with an explanation. It is encoded on another thread, which delays no call.
async fn encoded(answer: Result<Rendered, Status>, trace: Trace, permit: OwnedSemaphorePermit) -> Response {
    let Ok(Ok(text)) = spawn_blocking(move || serde_json::to_vec(&explanation(answer, &trace))).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    if text.len() > MAX_ANSWER {
        let reason = format!(
            "the explanation has {} bytes, more than {MAX_ANSWER}; leave out long attributes, or requests of a report\n",
            text.len()
        );
        return (StatusCode::PAYLOAD_TOO_LARGE, reason).into_response();
    }
    let body = Body::from(Bytes::from_owner(Explanation { text, _permit: permit }));
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// The text of an explanation, which is in progress until the client has read it.
struct Explanation {
    text: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Explanation {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// The request to explain.
enum Requested {
    Check(Box<CheckRequest>),
    Report(ReportRequest),
}

impl Requested {
    /// A check with a request of 1 for each of the quotas.
    fn check(attributes: &ParsedAttributes, quotas: Vec<(String, String)>) -> Self {
        let mut request = check_request(attributes, WORDS.len());
        let params = QuotaParams { amount: 1, best_effort: false };
        request.quotas = quotas.into_iter().map(|(_, name)| (name, params)).collect();
        Self::Check(Box::new(request))
    }
}

async fn explain(
    mixer: &Arc<Mixer>,
    read: impl FnOnce(&Vocabulary) -> Result<Requested, ParseAttributesError> + Send,
) -> Result<(Result<Rendered, Status>, Trace), Response> {
    let Some(snapshot) = mixer.snapshot() else {
        let reason = "there is no configuration yet\n";
        return Err((StatusCode::SERVICE_UNAVAILABLE, reason).into_response());
    };
    let caller = Caller { deadline: Some(Instant::now() + TIMEOUT), ..Caller::default() };
    let trace = Trace::with_limit(MAX_TRACE);
    Ok(match read(snapshot.vocabulary()) {
        Err(error) => return Err(bad_request(&error.to_string())),
        Ok(Requested::Check(request)) => match admission(admit_check)(mixer, &request.encode_to_vec()) {
            Ok(()) => {
                let (answer, trace) = trace_check(mixer, (*request).clone(), caller, trace).await;
                (answer.map(|response| Rendered::check(&request, &response)), trace)
            }
            Err(status) => (Err(status), Trace::default()),
        },
        Ok(Requested::Report(request)) => match admission(admit_report)(mixer, &request.encode_to_vec()) {
            Ok(()) => {
                let (answer, trace) = trace_report(mixer, request, caller, trace).await;
                (answer.map(|_| Rendered { text: "reported\n".to_owned(), json: json!({}) }), trace)
            }
            Err(status) => (Err(status), Trace::default()),
        },
    })
}

/// The answer and its trace, as data with all steps, and as a text with the deciding steps.
fn explanation(answer: Result<Rendered, Status>, trace: &Trace) -> Value {
    match answer {
        Ok(Rendered { text, json }) => {
            json!({ "response": json, "trace": trace, "text": format!("{text}{}", trace.brief()) })
        }
        Err(status) => {
            let (name, steps) = (status_name(status.code() as i32), trace.brief());
            let text = format!("{name}: {}\n{steps}", status.message());
            json!({ "error": status_json(&proto_status(&status)), "trace": trace, "text": text })
        }
    }
}

fn bad_request(reason: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response()
}

/// The parameters of a query, with `+` and `%` decoded.
fn parameters(query: Option<String>) -> Vec<(String, String)> {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::{body::to_bytes, http::Request};
    use tower_service::Service as _;

    use super::*;

    async fn text(response: Response) -> String {
        String::from_utf8(to_bytes(response.into_body(), usize::MAX).await.unwrap().into()).unwrap()
    }

    #[tokio::test]
    async fn further_explanations_are_refused_until_one_has_ended() {
        let free = Arc::new(Semaphore::new(1));
        let (mixer, runtime) = (Arc::new(Mixer::default()), Handle::current());
        let explainer = Explainer { mixer, runtime, free: free.clone() };
        let mut router = Router::new().route("/explain", get(by_query).post(by_body)).with_state(explainer);
        let in_progress = free.try_acquire_owned().unwrap();
        let mut explain = async || {
            let get = Request::get("/explain?request.path=/").body(Body::empty()).unwrap();
            let response = router.call(get).await.unwrap();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            text(response).await
        };
        assert_eq!(explain().await, "4 explanations are in progress, which is the maximum; try again\n");
        drop(in_progress);
        assert_eq!(explain().await, "there is no configuration yet\n");
    }

    #[tokio::test]
    async fn an_explanation_is_in_progress_until_it_is_read() {
        let free = Arc::new(Semaphore::new(1));
        let answer = Ok(Rendered { text: String::new(), json: json!({}) });
        let permit = free.clone().try_acquire_owned().unwrap();
        let response = encoded(answer, Trace::default(), permit).await;
        let unread = to_bytes(response.into_body(), MAX_ANSWER).await.unwrap();
        assert_eq!(free.available_permits(), 0);
        drop(unread);
        assert_eq!(free.available_permits(), 1);
    }

    #[tokio::test]
    async fn an_explanation_beyond_the_limit_is_not_sent() {
        let free = Arc::new(Semaphore::new(1));
        let permit = free.clone().try_acquire_owned().unwrap();
        let answer = Ok(Rendered { text: "a".repeat(MAX_ANSWER), json: json!({}) });
        let response = encoded(answer, Trace::default(), permit).await;
        assert_eq!((response.status(), free.available_permits()), (StatusCode::PAYLOAD_TOO_LARGE, 1));
        assert!(text(response).await.contains("more than 4194304;"));
    }
}
