//! What an adapter answers, by the variety of its template.

use std::{borrow::Cow, sync::LazyLock};

use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage as _, SerializeOptions};
use prost_types::Duration;
use serde_json::{Map, Value as Json, json};
use tonic::Status;

use super::request::Prepared;
use mixer_adapter_core::{
    proto::{self, CheckResult, QuotaResult},
    status::status_name,
    template::Variety,
    value,
};

/// A decoded answer.
pub(super) enum Answer {
    Check(CheckResult),
    Quota(QuotaResult),
    Report,
    Output(DynamicMessage),
    CheckWithOutput(CheckResult, Option<DynamicMessage>),
}

impl Answer {
    /// An answer that is not its message is INTERNAL, as a real Mixer takes it.
    pub(super) fn decode(prepared: &Prepared, encoded: prost::bytes::Bytes) -> Result<Self, Status> {
        let template = &prepared.template;
        let message = template.response_message();
        let decoded = match template.variety() {
            Variety::Check => CheckResult::decode(encoded).map(Self::Check),
            Variety::Quota => QuotaResult::decode(encoded).map(Self::Quota),
            Variety::Report => Ok(Self::Report),
            Variety::AttributeGenerator => DynamicMessage::decode(message.clone(), encoded).map(Self::Output),
            Variety::CheckWithOutput => {
                DynamicMessage::decode(message.clone(), encoded).and_then(with_output)
            }
        };
        decoded.map_err(|error| {
            Status::internal(format!("the adapter's answer is no {}: {error}", message.full_name()))
        })
    }

    /// In few words, to count answers by.
    pub(super) fn summary(&self, prepared: &Prepared) -> Cow<'static, str> {
        match self {
            Self::Check(check) | Self::CheckWithOutput(check, _) => status_name(status_code(check)),
            Self::Quota(result) => granted(result, prepared).into(),
            Self::Report => "reported".into(),
            Self::Output(_) => "answered".into(),
        }
    }

    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::Check(check) => check_json(check),
            Self::Quota(result) => quota_json(result),
            Self::Report => json!({}),
            Self::Output(output) => Json::Object(output_json(output)),
            Self::CheckWithOutput(check, output) => {
                json!({ "result": check_json(check), "output": output.as_ref().map(output_json) })
            }
        }
    }
}

/// `HandleXResponse`: the result and the output.
fn with_output(response: DynamicMessage) -> Result<Answer, prost::DecodeError> {
    let message = |name: &str| {
        let field = response.get_field_by_name(name)?;
        field.as_message().filter(|_| response.has_field_by_name(name)).cloned()
    };
    let check = message("result").map(|result| result.transcode_to()).transpose()?;
    Ok(Answer::CheckWithOutput(check.unwrap_or_default(), message("output")))
}

pub(super) fn status_code(check: &CheckResult) -> i32 {
    check.status.as_ref().map_or(0, |status| status.code)
}

/// Mixer looks a grant up by the instance's full name, and takes a missing one for nothing.
fn granted(result: &QuotaResult, prepared: &Prepared) -> &'static str {
    let asked = prepared.quota_request.iter().flat_map(|request| &request.quotas).next();
    let amounts = asked.map(|(name, params)| {
        (params.amount, result.quotas.get(name).map_or(0, |result| result.granted_amount))
    });
    match amounts {
        Some((_, 0)) | None => "nothing granted",
        Some((amount, granted)) if granted < amount => "partly granted",
        Some(_) => "granted",
    }
}

fn check_json(check: &CheckResult) -> Json {
    let status = check.status.clone().unwrap_or_default();
    let mut json = json!({
        "status": { "code": status_name(status.code), "message": status.message },
        "valid_duration": duration(check.valid_duration),
        "valid_use_count": check.valid_use_count,
    });
    if !status.details.is_empty() {
        json["status"]["details"] = status.details.iter().map(detail_json).collect();
    }
    json
}

fn quota_json(result: &QuotaResult) -> Json {
    let quotas = result.quotas.iter().map(|(name, grant)| {
        let mut json = json!({
            "granted_amount": grant.granted_amount,
            "valid_duration": duration(grant.valid_duration),
        });
        if let Some(status) = &grant.status {
            json["status"] = json!({ "code": status_name(status.code), "message": status.message });
        }
        (name.clone(), json)
    });
    json!({ "quotas": quotas.collect::<Map<_, _>>() })
}

/// As Go writes it, and as `--config` reads it.
pub(super) fn duration(duration: Option<Duration>) -> String {
    value::Duration { value: duration }.to_string()
}

static KNOWN: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(proto::DESCRIPTORS).ok());

/// A detail of a status: its fields where its message is known here, as `DirectHttpResponse` is.
fn detail_json(detail: &proto::Any) -> Json {
    let message = KNOWN.as_ref().and_then(|known| known.get_message_by_name(detail.message_name()));
    let message = message.and_then(|message| DynamicMessage::decode(message, detail.value.clone()).ok());
    let mut fields = match message {
        Some(message) => fields_json(&message),
        None => {
            let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &detail.value);
            Map::from_iter([("value".to_owned(), base64.into())])
        }
    };
    fields.insert("@type".to_owned(), detail.type_url.as_str().into());
    Json::Object(fields)
}

/// The fields that are present, by their names in the proto file. Mixer takes no others for attributes.
pub(super) fn output_json(output: &DynamicMessage) -> Map<String, Json> {
    let mut fields = fields_json(output);
    for (field, value) in output.fields() {
        if let Some(text) = value.as_message().and_then(attribute_text) {
            fields.insert(field.name().to_owned(), text.into());
        }
    }
    fields
}

/// Attribute values in messages of their own, as people read them.
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

fn fields_json(message: &DynamicMessage) -> Map<String, Json> {
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
    match message.serialize_with_options(serde_json::value::Serializer, &options) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}
