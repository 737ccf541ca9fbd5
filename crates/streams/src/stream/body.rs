//! Converts bodies of resources to specs and back, by descriptors.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost::{DecodeError, Message as _};
use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde_json::{Value as Json, json};

use crate::{ordered, proto::istio::mcp::v1alpha1::Resource, types::Types};
use mixer_adapter_config::{Collection, Finding, Topic, findings};
use mixer_adapter_core::{
    framework::json::{JsonError, read_json, read_json_all},
    proto::Any,
};

/// The prefix of type URLs.
const HOST: &str = "type.googleapis.com/";
const TYPE: &str = "@type";
const VALUE: &str = "value";
const STRUCT: &str = "google.protobuf.Struct";
/// The wrapper of a resource with its metadata.
const WRAPPER: &str = "istio.mcp.v1alpha1.Resource";
const BODY: &str = "body";

/// The reason why a body has no JSON.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// It is not a message of its type.
    #[error("its body is not a valid {0}: {1}")]
    Decode(String, prost::DecodeError),
    /// Its type is unknown.
    #[error("its body is of the unknown type {0}")]
    UnknownType(String),
    /// The message has no representation in JSON.
    #[error("its {0} has no JSON: {1}")]
    Json(String, serde_json::Error),
}

/// Decodes a body as the spec of a resource. A body of an unknown type becomes its bytes under `@type` and `value`. The findings are
/// fields that the type does not have in this version.
pub(super) fn to_spec(body: &Any) -> Result<(Json, Vec<Finding>), BodyError> {
    let name = body.message_name();
    let Some(descriptor) = Types::own(name) else {
        return Ok((undecoded(body), Vec::new()));
    };
    let message = DynamicMessage::decode(descriptor, body.value.clone());
    let message = message.map_err(|error| BodyError::Decode(name.to_owned(), error))?;
    let spec = serde_json::to_value(&message).map_err(|error| BodyError::Json(name.to_owned(), error))?;
    let unknown = findings(&message, None).into_iter().filter(|finding| finding.topic == Topic::UnknownField);
    Ok((whole_numbers(spec), unknown.collect()))
}

/// Decodes a body of a known type as the spec of a resource.
pub(super) fn to_known_spec(body: &Any) -> Result<(Json, Vec<Finding>), BodyError> {
    let name = body.message_name();
    match Types::own(name) {
        Some(_) => to_spec(body),
        None => Err(BodyError::UnknownType(name.to_owned())),
    }
}

/// Returns a body for people: as [`to_spec`] does, and also for known types that are not this program's own.
pub(super) fn readable(body: &Any) -> Result<Json, BodyError> {
    let foreign = if Types::own(body.message_name()).is_none() { decoded_json(body) } else { None };
    foreign.map_or_else(|| to_spec(body).map(|(spec, _)| spec), Ok)
}

/// Returns the JSON form of a message of an unknown type.
fn undecoded(any: &Any) -> Json {
    json!({ TYPE: any.type_url, VALUE: STANDARD.encode(&any.value) })
}

/// Returns the JSON form of an embedded message; the bytes if its type is unknown.
pub(crate) fn to_json(any: &Any) -> Json {
    if let Some((rest, body)) = unwrapped(any) {
        let known = Types::default().find(body.message_name()).is_some();
        let body = decoded_json(&body).or_else(|| (!known).then(|| to_json(&body)));
        return body.zip(decoded_json(&rest)).map_or_else(
            || undecoded(any),
            |(body, mut json)| {
                json[BODY] = body;
                json
            },
        );
    }
    decoded_json(any).unwrap_or_else(|| undecoded(any))
}

/// Returns a message of a known type as JSON. A part of an unknown type has no JSON.
fn decoded_json(any: &Any) -> Option<Json> {
    let name = any.message_name();
    let message = DynamicMessage::decode(Types::default().find(name)?, any.value.clone()).ok()?;
    match serde_json::to_value(&message).ok()? {
        Json::Object(mut fields) if !name.starts_with("google.protobuf.") => {
            fields.insert(TYPE.to_owned(), any.type_url.as_str().into());
            Some(Json::Object(fields))
        }
        json => Some(json!({ TYPE: any.type_url, VALUE: json })),
    }
}

/// Separates a resource in the wrapper of MCP from its body, whose type may be in other descriptors than the wrapper.
fn unwrapped(any: &Any) -> Option<(Any, Any)> {
    let mut wrapper = Some(any).filter(|any| any.message_name() == WRAPPER).map(wrapper)?.ok()?;
    let body = wrapper.body.take()?;
    Some((Any { type_url: any.type_url.clone(), value: wrapper.encode_to_vec().into() }, body))
}

fn wrapper(any: &Any) -> Result<Resource, DecodeError> {
    Resource::decode(any.value.clone())
}

/// Returns the name of a body of a known type that has one: `cluster_name` of Envoy's endpoints, `name` of all others.
pub(crate) fn named(body: &Any) -> Option<String> {
    let descriptor = Types::default().find(body.message_name())?;
    let message = DynamicMessage::decode(descriptor, body.value.clone()).ok()?;
    let name = message.get_field_by_name("name").or_else(|| message.get_field_by_name("cluster_name"))?;
    name.as_str().map(str::to_owned)
}

/// Returns whether bodies that are this message have a name, as [`named`] reads it.
pub(crate) fn has_name(message: &str) -> bool {
    let has =
        |of: MessageDescriptor| ["name", "cluster_name"].map(|name| of.get_field_by_name(name).is_some());
    Types::default().find(message).is_some_and(|of| has(of).contains(&true))
}

/// Encodes the spec of a resource as a body: of the type that it names under `@type`, or of its collection
/// (docs/behaviour/mcp.md#collections) if that type is known. All others are a `google.protobuf.Struct`.
///
/// A spec with fields of a later release than Istio 1.7 (unknown, and not misspelled) is a Struct, too.
///
/// Equal specs have equal bytes. The findings are its deprecated fields, and its fields of later releases.
pub(crate) fn of_spec(
    types: &Types,
    collection: &Collection,
    spec: Json,
) -> Result<(Any, Vec<Finding>), JsonError> {
    if let Some(type_url) = spec[TYPE].as_str() {
        return of_type(types, type_url.to_owned(), spec);
    }
    let Some(descriptor) = collection.message().and_then(|name| types.find(name)) else {
        return as_struct(spec);
    };
    if Types::is_istios(&descriptor) {
        as_istios(&descriptor, spec)
    } else {
        encode(format!("{HOST}{}", descriptor.full_name()), &descriptor, spec)
    }
}

/// Encodes a spec as a message of Istio, or as a Struct if its only faults are fields that the message does not have.
fn as_istios(descriptor: &MessageDescriptor, spec: Json) -> Result<(Any, Vec<Finding>), JsonError> {
    let of = descriptor.full_name();
    let errors = match read_json_all(descriptor, spec.clone()) {
        Ok(message) => return Ok(encoded(format!("{HOST}{of}"), &message)),
        Err(errors) => errors,
    };
    if let Some(error) = errors.iter().find(|error| !error.may_be_newer) {
        return Err(error.clone());
    }
    let (body, _) = as_struct(spec)?;
    let reason = format!(
        "is not a field of {of} in Istio 1.1 to 1.7: the resource is served as {STRUCT}, which sinks that check types refuse; add the \
         descriptors of its release (`source --descriptors`)"
    );
    let findings = errors.into_iter().map(|error| Finding {
        field: error.field,
        topic: Topic::UnknownField,
        reason: reason.clone(),
        deprecation: None,
    });
    Ok((body, findings.collect()))
}

fn as_struct(spec: Json) -> Result<(Any, Vec<Finding>), JsonError> {
    let descriptor = Types::own(STRUCT).ok_or_else(|| at("", format!("{STRUCT} is not known here")))?;
    encode(format!("{HOST}{STRUCT}"), &descriptor, spec)
}

/// Encodes a message in JSON that has its type under `@type`.
pub(crate) fn of_any(types: &Types, mut json: Json) -> Result<Any, JsonError> {
    let type_url = json[TYPE].as_str().map(str::to_owned);
    let type_url = type_url.ok_or_else(|| at(TYPE, "is missing".to_owned()))?;
    let is_wrapper = type_url.rsplit('/').next() == Some(WRAPPER);
    let body = json.as_object_mut().filter(|_| is_wrapper).and_then(|fields| fields.remove(BODY));
    let (any, _) = of_type(types, type_url, json)?;
    let Some(body) = body else { return Ok(any) };
    let mut wrapper = wrapper(&any).map_err(|error| at("", error.to_string()))?;
    wrapper.body = Some(
        of_any(types, body)
            .map_err(|error| JsonError { field: format!("{BODY}.{}", error.field), ..error })?,
    );
    Ok(Any { value: wrapper.encode_to_vec().into(), ..any })
}

/// Encodes a spec that has its type under `@type`: fields beside it, or its bytes in base64 under `value`, as for
/// unknown types.
fn of_type(types: &Types, type_url: String, mut spec: Json) -> Result<(Any, Vec<Finding>), JsonError> {
    let Some((_, name)) = type_url.rsplit_once('/') else {
        return Err(at(TYPE, format!("{type_url:?} is not a type URL; write it like {HOST}{type_url}")));
    };
    let descriptor = types.find(name);
    let has_value = descriptor.as_ref().is_some_and(|message| {
        message.full_name().starts_with("google.protobuf.") || message.get_field_by_name(VALUE).is_some()
    });
    let alone = spec.as_object().is_some_and(|fields| fields.len() == 2);
    if let (Some(text), true, false) = (spec[VALUE].as_str(), alone, has_value) {
        let bytes =
            STANDARD.decode(text).map_err(|error| at(VALUE, format!("is not valid base64: {error}")))?;
        return Ok((Any { type_url, value: bytes.into() }, Vec::new()));
    }
    let Some(descriptor) = descriptor else {
        let reason = format!(
            "there is no type {name} here; add its descriptors (`source --descriptors`), or write it as its bytes: {VALUE}: BASE64"
        );
        return Err(at(TYPE, reason));
    };
    if let Some(fields) = spec.as_object_mut() {
        fields.remove(TYPE);
    }
    // Messages with a special JSON form have it under `value`.
    if descriptor.full_name().starts_with("google.protobuf.") {
        spec = spec[VALUE].take();
    }
    encode(type_url, &descriptor, spec)
}

fn encode(
    type_url: String,
    descriptor: &MessageDescriptor,
    spec: Json,
) -> Result<(Any, Vec<Finding>), JsonError> {
    Ok(encoded(type_url, &read_json(descriptor, spec)?))
}

fn encoded(type_url: String, message: &DynamicMessage) -> (Any, Vec<Finding>) {
    (Any { type_url, value: ordered::encode(message).into() }, findings(message, None))
}

fn at(field: &str, reason: String) -> JsonError {
    JsonError::at(field, reason)
}

/// Converts whole numbers to integers, as in YAML: a Struct has no integers.
fn whole_numbers(json: Json) -> Json {
    match json {
        Json::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => {
                json!(float as i64)
            }
            _ => Json::Number(number),
        },
        Json::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Json::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, whole_numbers(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
