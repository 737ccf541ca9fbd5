use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::{Map, Value as Json, json};

use super::Verdict;
use mixer_adapter_core::{
    framework::status::status_name,
    proto::{self, Any, Status},
    value,
};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    HeaderOperation, RouteDirective, header_operation::Operation,
};
use mixer_adapter_host::handler::details_of;

impl Verdict {
    /// Codes and header operations by name, durations as Go writes them, referenced attributes by their words.
    pub(crate) fn to_json(&self) -> Json {
        let mut json = json!({
            "status": status_json(&self.status),
            "valid_duration": duration_text(self.valid_duration),
            "valid_use_count": self.valid_use_count,
        });
        if let Some(references) = &self.references {
            json["referenced_attributes"] = json!(references);
        }
        if let Some(directive) = &self.directive {
            json["route_directive"] = directive_json(directive);
        }
        json
    }
}

/// A status with the name of its code; with details, if it has any.
pub(crate) fn status_json(status: &Status) -> Json {
    let mut json = json!({ "code": status_name(status.code), "message": status.message });
    if !status.details.is_empty() {
        json["details"] = status.details.iter().map(detail_json).collect();
    }
    json
}

/// A gRPC error as a message.
pub(crate) fn proto_status(status: &tonic::Status) -> Status {
    Status { code: status.code() as i32, message: status.message().to_owned(), details: details_of(status) }
}

static KNOWN: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(proto::DESCRIPTORS).ok());

/// A detail of a status: its fields if its message is known here, as `DirectHttpResponse` is, or else its bytes in base64.
pub(crate) fn detail_json(detail: &Any) -> Json {
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

/// The fields of a message that are present, by their names in the proto file.
pub(crate) fn fields_json(message: &DynamicMessage) -> Map<String, Json> {
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
    match message.serialize_with_options(serde_json::value::Serializer, &options) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn directive_json(directive: &RouteDirective) -> Json {
    let mut json = json!({});
    if directive.direct_response_code != 0 {
        json["direct_response_code"] = directive.direct_response_code.into();
        json["direct_response_body"] = directive.direct_response_body.as_str().into();
    }
    for (name, list) in [
        ("request_header_operations", &directive.request_header_operations),
        ("response_header_operations", &directive.response_header_operations),
    ] {
        if !list.is_empty() {
            json[name] = list.iter().map(operation_json).collect();
        }
    }
    json
}

fn operation_json(operation: &HeaderOperation) -> Json {
    let mut json = json!({ "operation": operation.operation().as_str_name(), "name": operation.name });
    if operation.operation() != Operation::Remove {
        json["value"] = operation.value.as_str().into();
    }
    json
}

/// A duration as Go writes it.
pub(super) fn duration_text(duration: Option<prost_types::Duration>) -> String {
    value::Duration { value: duration }.to_string()
}
