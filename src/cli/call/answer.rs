//! The answers of an adapter, by the variety of its template.

use prost::Message as _;
use prost_reflect::{DynamicMessage, ReflectMessage as _};
use serde_json::{Map, Value as Json, json};
use tonic::Status;

use super::request::PreparedCall;
use crate::answer::{Verdict, fields_json, quotas_json};
use mixer_adapter_core::{
    proto::{CheckResult, QuotaResult},
    template::Variety,
    value,
};

/// A decoded answer.
pub(super) enum Answer {
    Check(Verdict),
    Quota(QuotaResult),
    Report,
    Output(DynamicMessage),
    CheckWithOutput(Verdict, Option<DynamicMessage>),
}

impl Answer {
    /// Decodes an answer. A malformed one is INTERNAL, as in a real Mixer.
    pub(super) fn decode(prepared: &PreparedCall, encoded: prost::bytes::Bytes) -> Result<Self, Status> {
        let template = &prepared.template;
        let message = template.response_message();
        let decoded = match template.variety() {
            Variety::Check => CheckResult::decode(encoded).map(|result| Self::Check(result.into())),
            Variety::Quota => QuotaResult::decode(encoded).map(Self::Quota),
            Variety::Report => Ok(Self::Report),
            Variety::AttributeGenerator => DynamicMessage::decode(message.clone(), encoded).map(Self::Output),
            Variety::CheckWithOutput => {
                DynamicMessage::decode(message.clone(), encoded).and_then(with_output)
            }
        };
        decoded.map_err(|error| {
            Status::internal(format!("the adapter's answer is not a valid {}: {error}", message.full_name()))
        })
    }

    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::Check(verdict) => verdict.to_json(),
            Self::Quota(result) => json!({ "quotas": quotas_json(&result.quotas) }),
            Self::Report => json!({}),
            Self::Output(output) => Json::Object(output_json(output)),
            Self::CheckWithOutput(verdict, output) => {
                json!({ "result": verdict.to_json(), "output": output.as_ref().map(output_json) })
            }
        }
    }
}

/// Splits a `HandleXResponse` into result and output.
fn with_output(response: DynamicMessage) -> Result<Answer, prost::DecodeError> {
    let message = |name: &str| {
        let field = response.get_field_by_name(name)?;
        field.as_message().filter(|_| response.has_field_by_name(name)).cloned()
    };
    let result = message("result").map(|result| result.transcode_to::<CheckResult>()).transpose()?;
    Ok(Answer::CheckWithOutput(result.unwrap_or_default().into(), message("output")))
}

/// Returns the fields that are present; Mixer makes attributes of them.
pub(super) fn output_json(output: &DynamicMessage) -> Map<String, Json> {
    let mut fields = fields_json(output);
    for (field, value) in output.fields() {
        if let Some(text) = value.as_message().and_then(attribute_text) {
            fields.insert(field.name().to_owned(), text.into());
        }
    }
    fields
}

/// The text of an attribute value that is a message.
fn attribute_text(message: &DynamicMessage) -> Option<String> {
    Some(match message.descriptor().full_name().strip_prefix("istio.policy.v1beta1.")? {
        "IPAddress" => message.transcode_to::<value::IpAddress>().ok()?.to_string(),
        "Duration" => message.transcode_to::<value::Duration>().ok()?.to_string(),
        "TimeStamp" => message.transcode_to::<value::TimeStamp>().ok()?.to_string(),
        "DNSName" => message.transcode_to::<value::DnsName>().ok()?.value,
        "EmailAddress" => message.transcode_to::<value::EmailAddress>().ok()?.value,
        "Uri" => message.transcode_to::<value::Uri>().ok()?.value,
        _ => return None,
    })
}
