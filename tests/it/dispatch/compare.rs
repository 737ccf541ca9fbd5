//! What was recorded against what came: decoded, never as bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mixer_adapter::prost::Message as _;
use mixer_adapter_engine::proto::istio::mixer::v1::{CheckResponse, ReferencedAttributes};
use prost_reflect::{DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::{Value as Json, json};

use super::{backend::Captured, case::Expect, config::POOL, referenced::referenced_attributes};

pub(crate) fn compare_response(expect: &Expect, response: CheckResponse) -> Vec<String> {
    let mut expected = expect.response.clone().unwrap_or_default();
    let quota_names: Vec<String> = response.quotas.keys().cloned().collect();
    let references = |referenced: &Option<ReferencedAttributes>| {
        json!(referenced_attributes(&referenced.clone().unwrap_or_default()))
    };
    let precondition = response.precondition.clone().unwrap_or_default();
    let mut differences = Vec::new();
    let mut compare = |what: String, expected: Json, got: Json| {
        if expected != got {
            differences.push(format!("{what}: expected {expected}, got {got}"));
        }
    };
    compare(
        "referenced".to_owned(),
        take(&mut expected["precondition"], "referenced"),
        references(&precondition.referenced_attributes),
    );
    for name in &quota_names {
        let expected = take(&mut expected["quotas"][name], "referenced");
        compare(
            format!("referenced by quota {name}"),
            expected,
            references(&response.quotas[name].referenced_attributes),
        );
    }
    let message = POOL.get_message_by_name("istio.mixer.v1.CheckResponse").unwrap();
    let mut bare = response;
    if let Some(precondition) = &mut bare.precondition {
        precondition.referenced_attributes = None;
    }
    bare.quotas.values_mut().for_each(|quota| quota.referenced_attributes = None);
    let got =
        without_empty(canonical(&DynamicMessage::decode(message.clone(), &*bare.encode_to_vec()).unwrap()));
    let expected = DynamicMessage::deserialize(message, expected).unwrap();
    compare("response".to_owned(), without_empty(canonical(&expected)), got);
    differences
}

/// The adapter calls as a set; the order of instances counts unless the case says otherwise.
pub(crate) fn compare_captured(expect: &Expect, captured: Vec<Captured>) -> Vec<String> {
    let unordered = expect.instances_order == "unspecified";
    let mut got: Vec<String> = captured.iter().map(|call| describe(call, unordered)).collect();
    let mut expected: Vec<String> =
        expect.captured.iter().map(|call| expected_call(call, unordered)).collect();
    got.sort();
    expected.sort();
    if got == expected {
        return Vec::new();
    }
    let only = |some: &[String], others: &[String]| {
        some.iter().filter(|call| !others.contains(call)).cloned().collect::<Vec<_>>()
    };
    let mut differences: Vec<String> =
        only(&expected, &got).into_iter().map(|call| format!("missing adapter call {call}")).collect();
    differences
        .extend(only(&got, &expected).into_iter().map(|call| format!("unexpected adapter call {call}")));
    if differences.is_empty() {
        differences.push(format!("{} adapter calls expected, {} made", expected.len(), got.len()));
    }
    differences
}

fn describe(call: &Captured, unordered: bool) -> String {
    let mut request = call.request.clone();
    let dedup_id = request.get_field_by_name("dedup_id").map(|id| id.as_str().unwrap_or_default().to_owned());
    let generated = dedup_id.is_some_and(|id| !id.is_empty());
    request.clear_field_by_name("dedup_id");
    let config =
        request.get_field_by_name("adapter_config").filter(|_| request.has_field_by_name("adapter_config"));
    let config = config.map(|any| {
        let any = any.as_message().unwrap();
        let type_url = any.get_field_by_name("type_url").unwrap().as_str().unwrap().to_owned();
        let value = any.get_field_by_name("value").unwrap().as_bytes().unwrap().clone();
        let message = POOL.get_message_by_name(type_url.rsplit('/').next().unwrap()).unwrap();
        let params = canonical(&DynamicMessage::decode(message, value).unwrap());
        json!({ "type_url": type_url, "params": params })
    });
    request.clear_field_by_name("adapter_config");
    let request = sorted(canonical(&request), unordered);
    json!([call.backend, call.path, generated, config, request]).to_string()
}

fn expected_call(call: &Json, unordered: bool) -> String {
    let path = call["path"].as_str().unwrap();
    let (service, method) = path.trim_start_matches('/').split_once('/').unwrap();
    let service = POOL.get_service_by_name(service).unwrap();
    let input = service.methods().find(|known| known.name() == method).unwrap().input();
    let mut request = call["request"].clone();
    let dedup_id = take(&mut request, "dedup_id");
    let generated = dedup_id.as_str().is_some_and(|id| !id.is_empty());
    let config = match take(&mut request, "adapter_config") {
        Json::Null => None,
        config => Some(expected_config(&config)),
    };
    let request = DynamicMessage::deserialize(input, request).unwrap();
    let request = sorted(canonical(&request), unordered);
    json!([call["backend"], path, generated, config, request]).to_string()
}

fn expected_config(config: &Json) -> Json {
    let type_url = config["type_url"].as_str().unwrap();
    let message: MessageDescriptor = POOL.get_message_by_name(type_url.rsplit('/').next().unwrap()).unwrap();
    let value = STANDARD.decode(config["value_b64"].as_str().unwrap()).unwrap();
    json!({ "type_url": type_url, "params": canonical(&DynamicMessage::decode(message, &*value).unwrap()) })
}

/// A message as JSON in which an absent field and its default are one.
fn canonical(message: &DynamicMessage) -> Json {
    let options = SerializeOptions::new().use_proto_field_name(true).skip_default_fields(true);
    message.serialize_with_options(serde_json::value::Serializer, &options).unwrap()
}

/// Without messages that are there but empty: in answers of the Mixer API they count as absent.
fn without_empty(json: Json) -> Json {
    match json {
        Json::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, without_empty(value)));
            let kept = fields.filter(|(_, value)| *value != json!({}) && *value != json!("0s"));
            Json::Object(kept.collect())
        }
        other => other,
    }
}

fn sorted(mut request: Json, unordered: bool) -> Json {
    if unordered && let Some(instances) = request.get_mut("instances").and_then(Json::as_array_mut) {
        instances.sort_by_key(ToString::to_string);
    }
    request
}

fn take(json: &mut Json, field: &str) -> Json {
    json.as_object_mut().and_then(|fields| fields.remove(field)).unwrap_or_default()
}
