//! Bodies of resources to specs and back, by the program's own descriptors.

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use prost_types::Struct;
use serde_json::{Value as Json, json};

use crate::{
    config::{Collection, Kind},
    handler::{ParamsError, read_params},
    proto::{
        Any, DESCRIPTORS,
        istio::policy::v1beta1::{AttributeManifest, Handler, Instance, Rule},
    },
};

/// What type URLs begin with.
const HOST: &str = "type.googleapis.com/";

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).unwrap_or_default());

/// A body as the spec of a resource. What is of a type not known here stays as it is, under `@type` and `value`: it is carried, not
/// understood.
pub(super) fn to_spec(body: &Any) -> Result<Json, String> {
    let name = body.message_name();
    let Some(descriptor) = POOL.get_message_by_name(name) else {
        return Ok(json!({ "@type": body.type_url, "value": STANDARD.encode(&body.value) }));
    };
    let message = DynamicMessage::decode(descriptor, body.value.clone());
    let message = message.map_err(|error| format!("its body is no {name}: {error}"))?;
    let spec = serde_json::to_value(message).map_err(|error| format!("its {name} is no JSON: {error}"))?;
    Ok(whole_numbers(spec))
}

/// The text in the field `name` of a body, where its type is known here and has one.
pub(in crate::config) fn named(body: &Any) -> Option<String> {
    let descriptor = POOL.get_message_by_name(body.message_name())?;
    let message = DynamicMessage::decode(descriptor, body.value.clone()).ok()?;
    message.get_field_by_name("name")?.as_str().map(str::to_owned)
}

/// The spec of a resource as a body of the type that its collection has (spec: mcp-and-xds.md d): those of Mixer's own kinds have
/// messages, all others are a `google.protobuf.Struct`.
///
/// The same spec always becomes the same bytes.
pub(super) fn of_spec(collection: &Collection, spec: Json) -> Result<Any, ParamsError> {
    match collection.kind() {
        Some(Kind::AttributeManifest) => {
            encode::<AttributeManifest>("istio.policy.v1beta1.AttributeManifest", spec)
        }
        Some(Kind::Handler) => encode::<Handler>("istio.policy.v1beta1.Handler", spec),
        Some(Kind::Instance) => encode::<Instance>("istio.policy.v1beta1.Instance", spec),
        Some(Kind::Rule) => encode::<Rule>("istio.policy.v1beta1.Rule", spec),
        Some(Kind::Template | Kind::Adapter | Kind::Other(_)) | None => {
            encode::<Struct>("google.protobuf.Struct", spec)
        }
    }
}

fn encode<M: Message + Default>(name: &str, spec: Json) -> Result<Any, ParamsError> {
    let wrong = |reason| ParamsError { field: String::new(), reason };
    let descriptor = POOL.get_message_by_name(name);
    let descriptor = descriptor.ok_or_else(|| wrong(format!("{name} is not known here")))?;
    let bytes = read_params(&descriptor, spec)?;
    // Maps are in no order until they are in a message of ours.
    let message = M::decode(bytes).map_err(|error| wrong(format!("it is no {name}: {error}")))?;
    Ok(Any { type_url: format!("{HOST}{name}"), value: message.encode_to_vec().into() })
}

/// A Struct has no integers: numbers that are whole are taken for them, as they are in YAML.
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
mod tests {
    use super::*;

    fn there_and_back(collection: &str, spec: Json) -> (String, Json) {
        let body = of_spec(&Collection::new(collection), spec).unwrap();
        (body.message_name().to_owned(), to_spec(&body).unwrap())
    }

    #[test]
    fn specs_travel_as_the_types_of_their_collections_and_come_back_as_they_were() {
        let rule = json!({ "match": "a == b", "actions": [{ "handler": "h", "instances": ["i"] }] });
        let (name, back) = there_and_back("istio/policy/v1beta1/rules", rule.clone());
        assert_eq!((name.as_str(), back), ("istio.policy.v1beta1.Rule", rule));
        let handler = json!({ "adapter": "a", "params": { "n": 5, "x": 0.5, "list": [1, "y"] }, "connection": { "address": "h:1" } });
        let (name, back) = there_and_back("istio/policy/v1beta1/handlers", handler.clone());
        assert_eq!((name.as_str(), back), ("istio.policy.v1beta1.Handler", handler));
        for collection in
            ["istio/config/v1alpha2/adapters", "istio/config/v1alpha2/legacy/deniers", "k8s/v1/Service"]
        {
            let spec = json!({ "session_based": false, "templates": ["a.b"], "port": 80 });
            let (name, back) = there_and_back(collection, spec.clone());
            assert_eq!((name.as_str(), back), ("google.protobuf.Struct", spec), "{collection}");
        }
    }

    #[test]
    fn the_same_spec_always_becomes_the_same_bytes() {
        let fields: serde_json::Map<_, _> = (0..50).map(|n| (format!("field{n}"), json!(n))).collect();
        for (collection, spec) in [
            ("istio/config/v1alpha2/adapters", json!(fields)),
            ("istio/policy/v1beta1/handlers", json!({ "adapter": "a", "params": fields })),
        ] {
            let collection = Collection::new(collection);
            let bytes = of_spec(&collection, spec.clone()).unwrap();
            assert!((0..5).all(|_| of_spec(&collection, spec.clone()).unwrap() == bytes));
        }
    }

    #[test]
    fn a_spec_that_does_not_fit_names_the_field() {
        let rules = Collection::new("istio/policy/v1beta1/rules");
        let error = of_spec(&rules, json!({ "actoins": [] })).unwrap_err();
        assert_eq!(error.to_string(), "actoins: no such field; did you mean actions?");
    }

    #[test]
    fn what_is_not_known_is_carried_and_what_is_broken_is_told() {
        let unknown = Any { type_url: "t/a.b.C".to_owned(), value: vec![1, 2].into() };
        assert_eq!(to_spec(&unknown), Ok(json!({ "@type": "t/a.b.C", "value": "AQI=" })));
        let broken = Any { type_url: "t/istio.policy.v1beta1.Rule".to_owned(), value: vec![0xff].into() };
        assert!(to_spec(&broken).unwrap_err().starts_with("its body is no istio.policy.v1beta1.Rule: "));
    }
}
