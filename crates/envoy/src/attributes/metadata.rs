//! Metadata that filters of Envoy set: structs by the name of the filter.

use mixer_adapter_engine::attribute::StringMap;
use prost_types::{Struct, Value, value::Kind};

use super::builder::{AttributeBuilder, AttributeError};
use crate::{metadata::METADATA, proto::envoy::config::core::v3::Metadata};

/// The filters that verify tokens: Envoy's, and Istio's before 1.5.
const JWT: &str = "envoy.filters.http.jwt_authn";
const ISTIO: &str = "istio_authn";

const RBAC: &str = "envoy.filters.http.rbac";

/// Sets the attributes that come from the metadata of filters: the identity of a token, shadow results of RBAC, each filter's
/// metadata as a map if an attribute of its name is declared, and the attributes of the namespace [`METADATA`].
pub(super) fn set_metadata(
    attributes: &mut AttributeBuilder,
    origin: &'static str,
    metadata: Option<&Metadata>,
) -> Result<(), AttributeError> {
    let Some(metadata) = metadata else { return Ok(()) };
    let filters = &metadata.filter_metadata;
    for (filter, values) in filters {
        attributes.set_map(filter, || flatten(values));
    }
    if let Some(values) = filters.get(ISTIO) {
        set_authentication(attributes, values);
    }
    if let Some(claims) = filters.get(JWT).and_then(token) {
        set_claims(attributes, claims);
    }
    if let Some(values) = filters.get(RBAC) {
        attributes.set_some(standard!("rbac.permissive.response_code"), text(values, "shadow_engine_result"));
        attributes.set_some(
            standard!("rbac.permissive.effective_policy_id"),
            text(values, "shadow_effective_policy_id"),
        );
    }
    match filters.get(METADATA) {
        None => Ok(()),
        Some(values) => {
            let values: Vec<(&str, String)> = values
                .fields
                .iter()
                .filter_map(|(name, value)| Some((name.as_str(), scalar(value)?)))
                .collect();
            attributes.set_configured(origin, values.iter().map(|(name, value)| (*name, value.as_str())))
        }
    }
}

/// Sets the attributes that Istio's filter names like attributes.
fn set_authentication(attributes: &mut AttributeBuilder, values: &Struct) {
    for attribute in [
        standard!("request.auth.principal"),
        standard!("request.auth.audiences"),
        standard!("request.auth.presenter"),
        standard!("request.auth.raw_claims"),
    ] {
        attributes.set_some(attribute, text(values, attribute.name()));
    }
    attributes.set_with(standard!("request.auth.claims"), || match kind(values, "request.auth.claims") {
        Some(Kind::StructValue(claims)) => Some(flatten(claims)),
        _ => None,
    });
}

/// Returns the payload of the first token, which is below a key of the filter's configuration.
fn token(values: &Struct) -> Option<&Struct> {
    values.fields.values().find_map(|value| match value.kind.as_ref()? {
        Kind::StructValue(payload) if payload.fields.contains_key("iss") => Some(payload),
        _ => None,
    })
}

fn set_claims(attributes: &mut AttributeBuilder, claims: &Struct) {
    if let (Some(issuer), Some(subject)) = (text(claims, "iss"), text(claims, "sub")) {
        attributes.set(standard!("request.auth.principal"), format!("{issuer}/{subject}"));
    }
    attributes.set_with(standard!("request.auth.audiences"), || claims.fields.get("aud").and_then(joined));
    attributes.set_with(standard!("request.auth.presenter"), || text(claims, "azp"));
    attributes.set_with(standard!("request.auth.claims"), || Some(flatten(claims)));
    attributes.set_with(standard!("request.auth.raw_claims"), || Some(json(claims).to_string()));
}

/// Returns the values that have a text: scalars, and lists of them joined by commas.
fn flatten(values: &Struct) -> StringMap {
    values.fields.iter().filter_map(|(name, value)| Some((name.as_str(), joined(value)?))).collect()
}

fn joined(value: &Value) -> Option<String> {
    match value.kind.as_ref()? {
        Kind::ListValue(list) => {
            let texts: Option<Vec<String>> = list.values.iter().map(scalar).collect();
            Some(texts?.join(","))
        }
        _ => scalar(value),
    }
}

pub(super) fn scalar(value: &Value) -> Option<String> {
    Some(match value.kind.as_ref()? {
        Kind::StringValue(text) => text.clone(),
        Kind::NumberValue(number) => number.to_string(),
        Kind::BoolValue(value) => value.to_string(),
        Kind::NullValue(_) | Kind::StructValue(_) | Kind::ListValue(_) => return None,
    })
}

pub(super) fn kind<'v>(values: &'v Struct, name: &str) -> Option<&'v Kind> {
    values.fields.get(name)?.kind.as_ref()
}

/// Returns a text that is not empty.
fn text<'v>(values: &'v Struct, name: &str) -> Option<&'v str> {
    match kind(values, name)? {
        Kind::StringValue(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

fn json(values: &Struct) -> serde_json::Value {
    let fields = values.fields.iter().map(|(name, value)| (name.clone(), json_value(value)));
    serde_json::Value::Object(fields.collect())
}

fn json_value(value: &Value) -> serde_json::Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        // A struct has no integers; integers of a token are written without a fraction.
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() < 9e15 => {
            serde_json::Value::from(*number as i64)
        }
        Some(Kind::NumberValue(number)) => serde_json::Value::from(*number),
        Some(Kind::StringValue(text)) => serde_json::Value::from(text.as_str()),
        Some(Kind::BoolValue(value)) => serde_json::Value::from(*value),
        Some(Kind::StructValue(values)) => json(values),
        Some(Kind::ListValue(list)) => list.values.iter().map(json_value).collect(),
    }
}
