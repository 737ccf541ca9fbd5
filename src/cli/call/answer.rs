//! The answers of an adapter, by the variety of its template.

use prost::Message as _;
use prost_reflect::{DynamicMessage, ReflectMessage as _};
use serde_json::{Map, Value as Json, json};
use tonic::Status;

use super::request::PreparedCall;
use crate::{
    answer::{Rendered, Verdict, fields_json},
    cli::counted,
};
use mixer_adapter_core::{
    proto::{CheckResult, QuotaResult, istio::mixer::adapter::model::v1beta1::quota_result},
    template::Variety,
    value,
};
use mixer_adapter_engine::proto::istio::mixer::v1::check_response;

/// Decodes and renders an answer. A malformed one is INTERNAL, as in a real Mixer.
pub(super) fn render(prepared: &PreparedCall, encoded: prost::bytes::Bytes) -> Result<Rendered, Status> {
    let template = &prepared.template;
    let message = template.response_message();
    let rendered = match template.variety() {
        Variety::Check => CheckResult::decode(encoded).map(|result| Rendered::from(&Verdict::from(result))),
        Variety::Quota => QuotaResult::decode(encoded).map(|result| {
            let requests = prepared.quota_request.iter().flat_map(|request| &request.quotas);
            let amounts = requests.map(|(name, params)| (name.as_str(), params.amount));
            let answers = result.quotas.iter().map(|(name, answer)| (name.clone(), as_of_mixer(answer)));
            let quotas = Rendered::quotas(amounts, &answers.collect());
            Rendered { text: quotas.text, json: json!({ "quotas": quotas.json }) }
        }),
        Variety::Report => Ok(Rendered {
            text: format!("reported, {} in one call\n", counted(prepared.instances.len(), "instance")),
            json: json!({}),
        }),
        Variety::AttributeGenerator => {
            DynamicMessage::decode(message.clone(), encoded).map(|answer| output(Some(&answer)))
        }
        Variety::CheckWithOutput => DynamicMessage::decode(message.clone(), encoded).and_then(with_output),
    };
    rendered.map_err(|error| {
        Status::internal(format!("the adapter's answer is not a valid {}: {error}", message.full_name()))
    })
}

/// Returns the answer of an adapter to a quota request as a Mixer passes it on.
fn as_of_mixer(answer: &quota_result::Result) -> check_response::QuotaResult {
    check_response::QuotaResult {
        granted_amount: answer.granted_amount,
        valid_duration: answer.valid_duration,
        status: answer.status.clone(),
        referenced_attributes: None,
    }
}

/// Renders result and output of a `HandleXResponse`.
fn with_output(response: DynamicMessage) -> Result<Rendered, prost::DecodeError> {
    let result =
        present(&response, "result").map(|result| result.transcode_to::<CheckResult>()).transpose()?;
    let result = Rendered::from(&Verdict::from(result.unwrap_or_default()));
    let output = output(present(&response, "output").as_ref());
    Ok(Rendered {
        text: result.text + &output.text,
        json: json!({ "result": result.json, "output": output.json }),
    })
}

fn present(response: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
    let field = response.get_field_by_name(name)?;
    field.as_message().filter(|_| response.has_field_by_name(name)).cloned()
}

/// Renders the output of an adapter, which may be absent.
fn output(output: Option<&DynamicMessage>) -> Rendered {
    let fields = output.map(output_json);
    let lines = fields.iter().flatten().map(|(name, value)| format!("  {name}: {value}\n"));
    let lines: String = lines.collect();
    let text = if lines.is_empty() { "no output\n".to_owned() } else { format!("output\n{lines}") };
    Rendered { text, json: fields.map_or(Json::Null, Json::Object) }
}

/// Returns the fields that are present; Mixer makes attributes of them.
fn output_json(output: &DynamicMessage) -> Map<String, Json> {
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
