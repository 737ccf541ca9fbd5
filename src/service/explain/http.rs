//! `/explain`: attributes in, the answer and its trace out, as JSON.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{RawQuery, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::get,
};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Status;

use super::written;
use crate::service::mixer::{check_json, compress, explain_check, explain_report, status_json};
use mixer_adapter_engine::{
    Mixer,
    attribute::{Unreadable, Vocabulary, Written, read_json, read_pairs},
    dictionary::WORDS,
    proto::istio::mixer::v1::{
        CheckRequest, CompressedAttributes, ReportRequest, check_request::QuotaParams,
        report_request::RepeatedAttributesSemantics,
    },
    trace::Trace,
};
use mixer_adapter_host::handler::Caller;

/// How long adapters may take for one explanation.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `/explain` of that engine.
///
/// `GET /explain?request.path=/x&source.ip=ip:10.0.0.1` checks a request with these attributes. `POST` takes them as a JSON
/// object; a list of objects is reported. `quota=NAME` in the query asks a check for a quota, too.
pub(in crate::service) fn router(mixer: Arc<Mixer>) -> Router {
    Router::new().route("/explain", get(by_query).post(by_body)).with_state(mixer)
}

/// What `/explain` answers where it is not served.
pub(in crate::service) async fn refusal() -> (StatusCode, &'static str) {
    let why = "this port is open to other machines, and an explanation shows rules and what adapters are sent: \
               `serve --explain` allows it\n";
    (StatusCode::FORBIDDEN, why)
}

async fn by_query(State(mixer): State<Arc<Mixer>>, RawQuery(query): RawQuery) -> Response {
    let (quotas, attributes): (Vec<_>, Vec<_>) = parameters(query).partition(|(name, _)| name == "quota");
    let read = |types: &Vocabulary| Ok(Asked::Check(compressed(&read_pairs(attributes, types)?)));
    explain(&mixer, read, quotas.into_iter().map(|(_, quota)| quota).collect()).await
}

async fn by_body(
    State(mixer): State<Arc<Mixer>>,
    RawQuery(query): RawQuery,
    Json(attributes): Json<Value>,
) -> Response {
    let mut quotas = Vec::new();
    for (name, value) in parameters(query) {
        if name != "quota" {
            return refuse(&format!(
                "attributes are in the body of a POST; the query has quota=NAME, not {name:?}"
            ));
        }
        quotas.push(value);
    }
    let read = |types: &Vocabulary| {
        let one = |attributes| Ok(compressed(&read_json(attributes, types)?));
        match &attributes {
            Value::Array(requests) => requests.iter().map(one).collect::<Result<_, _>>().map(Asked::Report),
            request => one(request).map(Asked::Check),
        }
    };
    explain(&mixer, read, quotas).await
}

async fn explain(
    mixer: &Mixer,
    read: impl FnOnce(&Vocabulary) -> Result<Asked, Unreadable>,
    quotas: Vec<String>,
) -> Response {
    let Some(snapshot) = mixer.snapshot() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "there is no configuration yet\n").into_response();
    };
    let caller = Caller { connection: 0, deadline: Some(Instant::now() + TIMEOUT) };
    let global_word_count = WORDS.len() as u32;
    let (response, trace) = match read(snapshot.vocabulary()) {
        Err(error) => return refuse(&error.to_string()),
        Ok(Asked::Check(attributes)) => {
            let quotas = quotas.into_iter().map(|name| (name, QuotaParams { amount: 1, best_effort: false }));
            let request = CheckRequest {
                attributes: Some(attributes),
                global_word_count,
                deduplication_id: String::new(),
                quotas: quotas.collect(),
            };
            let (answer, trace) = explain_check(mixer, request, caller).await;
            (answer.map(|response| check_json(&response)), trace)
        }
        Ok(Asked::Report(attributes)) => {
            let request = ReportRequest {
                attributes,
                default_words: Vec::new(),
                global_word_count,
                repeated_attributes_semantics: RepeatedAttributesSemantics::IndependentEncoding.into(),
            };
            let (answer, trace) = explain_report(mixer, request, caller).await;
            (answer.map(|_| json!({})), trace)
        }
    };
    Json(explanation(response, &trace)).into_response()
}

/// What is asked.
enum Asked {
    Check(CompressedAttributes),
    Report(Vec<CompressedAttributes>),
}

fn compressed(attributes: &Written) -> CompressedAttributes {
    compress(attributes.iter().map(|(name, value)| (name.as_str(), value)), WORDS.len())
}

fn explanation(response: Result<Value, Status>, trace: &Trace) -> Value {
    match response {
        Ok(response) => json!({ "response": response, "trace": trace }),
        Err(status) => json!({ "error": status_json(&written(&status)), "trace": trace }),
    }
}

fn refuse(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response()
}

/// The parameters of a query, with `+` and `%` decoded.
fn parameters(query: Option<String>) -> impl Iterator<Item = (String, String)> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let query = query.unwrap_or_default();
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty()).map(move |parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        (decode(name), decode(value))
    });
    parameters.collect::<Vec<_>>().into_iter()
}
