use serde_json::{Value as Json, json};

use super::{
    json::{duration_text, references_json, status_json},
    references::{self, ReferencedAttribute},
};
use mixer_adapter_core::proto::{
    Status, istio::mixer::adapter::model::v1beta1::quota_result::Result as AdapterQuotaResult,
};
use mixer_adapter_engine::proto::istio::mixer::v1::check_response::QuotaResult;

/// The answer to a quota request, of a Mixer or of one adapter.
pub(crate) struct QuotaAnswer {
    granted_amount: i64,
    valid_duration: Option<prost_types::Duration>,
    status: Option<Status>,
    /// `None` in the answer of an adapter.
    references: Option<Vec<ReferencedAttribute>>,
}

impl QuotaAnswer {
    pub(super) fn to_json(&self) -> Json {
        let mut json = json!({
            "granted_amount": self.granted_amount,
            "valid_duration": duration_text(self.valid_duration),
        });
        if let Some(references) = &self.references {
            json["referenced_attributes"] = references_json(references);
        }
        if let Some(status) = &self.status {
            json["status"] = status_json(status);
        }
        json
    }
}

impl From<&QuotaResult> for QuotaAnswer {
    fn from(result: &QuotaResult) -> Self {
        let references = result.referenced_attributes.as_ref().map(references::decode);
        Self {
            granted_amount: result.granted_amount,
            valid_duration: result.valid_duration,
            status: result.status.clone(),
            references: Some(references.unwrap_or_default()),
        }
    }
}

impl From<&AdapterQuotaResult> for QuotaAnswer {
    fn from(result: &AdapterQuotaResult) -> Self {
        Self {
            granted_amount: result.granted_amount,
            valid_duration: result.valid_duration,
            status: result.status.clone(),
            references: None,
        }
    }
}

/// The answer to a request for `amount`. A Mixer and its proxies read a missing answer as a grant of nothing.
pub(super) fn line(name: &str, amount: i64, answer: Option<&QuotaAnswer>) -> String {
    match answer {
        Some(QuotaAnswer { granted_amount, valid_duration, .. }) => {
            let duration = duration_text(*valid_duration);
            format!("quota {name}: granted {granted_amount} of {amount}, valid for {duration}")
        }
        None => format!("quota {name}: not in the answer, which grants 0 of {amount}"),
    }
}
