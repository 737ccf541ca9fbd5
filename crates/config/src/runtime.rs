//! Layers of the runtime, `envoy.service.runtime.v3.Runtime`: the keys that allow deprecated fields by name.

use std::{collections::BTreeSet, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor,
    prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto,
        field_descriptor_proto::{Label, Type},
    },
};
use serde_json::Value as Json;

use crate::{collection::RUNTIME, envoy::successor, resource::Resource, validation_error::ValidationError};
use mixer_adapter_core::framework::json::read_json;

/// The beginning of the keys; the full name of a field or a value follows.
const PREFIX: &str = "mixer_adapter.deprecated_features:";
/// Maximum length of a key in bytes; longer ones are not names.
const MAX_KEY: usize = 512;
/// Maximum number of names that a layer allows.
const MAX_NAMES: usize = 1000;

fn field(name: &str, number: i32, kind: Type, type_name: Option<&str>) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        type_name: type_name.map(str::to_owned),
        ..FieldDescriptorProto::default()
    }
}

/// The descriptor of Envoy's message.
static MESSAGE: LazyLock<Option<MessageDescriptor>> = LazyLock::new(|| {
    let (package, name) = RUNTIME.rsplit_once('.')?;
    let message = DescriptorProto {
        name: Some(name.to_owned()),
        field: vec![
            field("name", 1, Type::String, None),
            field("layer", 2, Type::Message, Some(".google.protobuf.Struct")),
        ],
        ..DescriptorProto::default()
    };
    let file = FileDescriptorProto {
        name: Some("envoy/service/runtime/v3/rtds.proto".to_owned()),
        package: Some(package.to_owned()),
        dependency: vec!["google/protobuf/struct.proto".to_owned()],
        message_type: vec![message],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    let mut pool = DescriptorPool::global();
    pool.add_file_descriptor_proto(file).ok()?;
    pool.get_message_by_name(RUNTIME)
});

/// Returns the deprecated fields and values that a layer allows: those whose key has the value `true`.
pub(super) fn allowed_deprecated(layer: &Resource) -> Result<BTreeSet<String>, ValidationError> {
    let json = serde_json::to_value(read(layer)?).map_err(|error| layer.error("", error.to_string()))?;
    let mut allowed = BTreeSet::new();
    collect("", &json["layer"], &mut allowed);
    if allowed.len() > MAX_NAMES {
        Err(layer.error("layer", format!("allows more than {MAX_NAMES} deprecated fields")))
    } else {
        Ok(allowed)
    }
}

/// Reads a layer in JSON, or from the bytes that a stream has delivered.
fn read(layer: &Resource) -> Result<DynamicMessage, ValidationError> {
    let invalid = || layer.error("", format!("is not a valid {RUNTIME}"));
    let descriptor = MESSAGE.clone().ok_or_else(invalid)?;
    let mut spec = layer.spec.clone();
    let type_url = spec.as_object_mut().and_then(|fields| fields.remove("@type"));
    let message = type_url.as_ref().and_then(Json::as_str).and_then(|url| url.rsplit('/').next());
    if message.map(|message| successor(message).unwrap_or(message)) != Some(RUNTIME) {
        return Err(invalid());
    }
    let is_alone = spec.as_object().is_some_and(|fields| fields.len() == 1);
    match spec["value"].as_str().filter(|_| is_alone) {
        Some(text) => {
            let bytes = STANDARD.decode(text);
            let bytes =
                bytes.map_err(|error| layer.error("value", format!("is not valid base64: {error}")))?;
            DynamicMessage::decode(descriptor, &*bytes).map_err(|_| invalid())
        }
        None => read_json(&descriptor, spec).map_err(|error| layer.error(&error.field, error.reason)),
    }
}

/// Adds the names that the value of a key allows, up to the maximum. As in Envoy, the keys of nested structures are
/// joined with dots.
fn collect(key: &str, value: &Json, allowed: &mut BTreeSet<String>) {
    match value {
        Json::Bool(true) => allowed.extend(key.strip_prefix(PREFIX).map(str::to_owned)),
        Json::Object(fields) => {
            for (name, value) in fields {
                let fits = key.len() + 1 + name.len() <= MAX_KEY && allowed.len() <= MAX_NAMES;
                match key {
                    _ if !fits => {}
                    "" => collect(name, value, allowed),
                    key => collect(&format!("{key}.{name}"), value, allowed),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::{
        collection::Collection,
        name::{Kind, ResourceName},
    };

    fn allowed(mut spec: Json) -> Result<Vec<String>, String> {
        spec["@type"] = format!("type.googleapis.com/{RUNTIME}").into();
        let name = ResourceName::new("layer", Kind::from("Runtime"), "");
        let layer = Resource::new(name, Collection::new(RUNTIME), spec, "here");
        let allowed = allowed_deprecated(&layer).map_err(|fault| fault.to_string())?;
        Ok(allowed.into_iter().collect())
    }

    #[test]
    fn true_allows_a_name_also_in_nested_keys_and_other_keys_are_nothing() {
        let layer = json!({
            "mixer_adapter.deprecated_features:a.M.one": true,
            "mixer_adapter.deprecated_features:a.M.two": false,
            "mixer_adapter.deprecated_features:a.M.three": "true",
            "mixer_adapter": { "deprecated_features:a": { "M": { "four": true } } },
            "envoy.deprecated_features:a.M.five": true,
        });
        assert_eq!(allowed(json!({ "layer": layer })).unwrap(), ["a.M.four", "a.M.one"]);
        assert!(allowed(json!({})).unwrap().is_empty());
    }

    /// Field 2 is the layer, whose field 1 are its entries; field 4 of a value is a boolean.
    #[test]
    fn a_layer_is_read_from_its_bytes() {
        let key = b"mixer_adapter.deprecated_features:a.b";
        let entry = [&[0x0a, key.len() as u8][..], key, b"\x12\x02\x20\x01"].concat();
        let fields = [&[0x0a, entry.len() as u8][..], &entry].concat();
        let message = [&[0x12, fields.len() as u8][..], &fields].concat();
        let spec = |bytes: &[u8]| {
            let value = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
            json!({ "value": value })
        };
        assert_eq!(allowed(spec(&message)).unwrap(), ["a.b"]);
        let error = allowed(spec(&[0xff])).unwrap_err();
        assert!(error.ends_with("is not a valid envoy.service.runtime.v3.Runtime"), "{error}");
    }

    #[test]
    fn a_layer_is_bounded() {
        let many = |count: usize| -> Map<String, Json> {
            (0..count).map(|n| (format!("{PREFIX}f{n}"), true.into())).collect()
        };
        assert_eq!(allowed(json!({ "layer": many(1000) })).unwrap().len(), 1000);
        let error = allowed(json!({ "layer": many(5000) })).unwrap_err();
        assert!(error.contains("layer: allows more than 1000 deprecated fields"), "{error}");
        assert!(
            allowed(json!({ "layer": { format!("{PREFIX}{}", "x".repeat(600)): true } })).unwrap().is_empty()
        );
    }
}
