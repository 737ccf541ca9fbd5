use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::{
    Rendered,
    json::{duration_text, status_json},
    references,
};
use mixer_adapter_engine::proto::istio::mixer::v1::check_response::QuotaResult;

impl Rendered {
    /// Renders the answers to quota requests: a line for each request, and an object with the names of the quotas.
    pub(crate) fn quotas<'a>(
        requests: impl IntoIterator<Item = (&'a str, i64)>,
        answers: &BTreeMap<String, QuotaResult>,
    ) -> Self {
        let lines = requests.into_iter().map(|(name, amount)| line(name, amount, answers.get(name)) + "\n");
        let json = answers.iter().map(|(name, answer)| (name.clone(), to_json(answer)));
        Self { text: lines.collect(), json: json.collect() }
    }
}

fn to_json(answer: &QuotaResult) -> Json {
    let mut json = json!({
        "granted_amount": answer.granted_amount,
        "valid_duration": duration_text(answer.valid_duration),
    });
    // The answer of an adapter has none.
    if let Some(references) = &answer.referenced_attributes {
        json["referenced_attributes"] = json!(references::decode(references));
    }
    if let Some(status) = &answer.status {
        json["status"] = status_json(status);
    }
    json
}

/// The answer to a request for `amount`. A Mixer and its proxies read a missing answer as a grant of nothing.
fn line(name: &str, amount: i64, answer: Option<&QuotaResult>) -> String {
    match answer {
        Some(QuotaResult { granted_amount, valid_duration, .. }) => {
            let duration = duration_text(*valid_duration);
            format!("quota {name}: granted {granted_amount} of {amount}, valid for {duration}")
        }
        None => format!("quota {name}: not in the answer, which grants 0 of {amount}"),
    }
}
