//! Answers to checks and quota requests as text and as JSON: the one renderer behind `check`, `call`, `explain`, `/explain` on
//! the admin port and the fake Mixer.

mod json;
mod quota;
mod references;
mod text;
mod verdict;

pub(crate) use json::{detail_json, fields_json, proto_status, status_json};
pub use verdict::Verdict;

use serde_json::{Value as Json, json};

use mixer_adapter_engine::proto::istio::mixer::v1::{CheckRequest, CheckResponse};

#[cfg(test)]
pub(crate) use references::{ReferencedAttribute, decode as decode_references};

/// An answer for people and for programs.
pub(crate) struct Rendered {
    /// Lines.
    pub(crate) text: String,
    pub(crate) json: Json,
}

impl Rendered {
    /// Renders a Mixer's answer to a check and to the quota requests that came with it.
    pub(crate) fn check(request: &CheckRequest, response: &CheckResponse) -> Self {
        let Self { mut text, mut json } = match &response.precondition {
            Some(precondition) => Self::from(&Verdict::from(precondition.clone())),
            None => Self { text: "the answer has no check result\n".to_owned(), json: json!({}) },
        };
        let amounts = request.quotas.iter().map(|(name, params)| (name.as_str(), params.amount));
        let quotas = Self::quotas(amounts, &response.quotas);
        text.push_str(&quotas.text);
        if !response.quotas.is_empty() {
            json["quotas"] = quotas.json;
        }
        Self { text, json }
    }
}

impl From<&Verdict> for Rendered {
    fn from(verdict: &Verdict) -> Self {
        Self { text: verdict.to_string(), json: verdict.to_json() }
    }
}
