//! Bodies of resources to specs and back, by descriptors.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost::{DecodeError, Message as _};
use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde_json::{Value as Json, json};

use crate::{Collection, Finding, Topic, Types, findings, ordered, proto::istio::mcp::v1alpha1::Resource};
use mixer_adapter_core::{
    framework::json::{JsonError, read_json, read_json_all},
    proto::Any,
};

/// What type URLs begin with.
const HOST: &str = "type.googleapis.com/";
const TYPE: &str = "@type";
const VALUE: &str = "value";
const STRUCT: &str = "google.protobuf.Struct";
/// What a resource is wrapped in with its metadata.
const WRAPPER: &str = "istio.mcp.v1alpha1.Resource";
const BODY: &str = "body";

/// Why a body has no JSON.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// It is not a message of its type.
    #[error("its body is not a valid {0}: {1}")]
    Decode(String, prost::DecodeError),
    /// Its type is not known here.
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
        return Ok((json!({ TYPE: body.type_url, VALUE: STANDARD.encode(&body.value) }), Vec::new()));
    };
    let message = DynamicMessage::decode(descriptor, body.value.clone());
    let message = message.map_err(|error| BodyError::Decode(name.to_owned(), error))?;
    let spec = serde_json::to_value(&message).map_err(|error| BodyError::Json(name.to_owned(), error))?;
    let unknown = findings(&message, None).into_iter().filter(|finding| finding.topic == Topic::UnknownField);
    Ok((whole_numbers(spec), unknown.collect()))
}

/// Decodes a body as the spec of a resource whose type is known here.
pub(super) fn to_known_spec(body: &Any) -> Result<(Json, Vec<Finding>), BodyError> {
    let name = body.message_name();
    match Types::own(name) {
        Some(_) => to_spec(body),
        None => Err(BodyError::UnknownType(name.to_owned())),
    }
}

/// A body for people: as [`to_spec`] has it, and also where its type is known but not this program's own.
pub(super) fn readable(body: &Any) -> Result<Json, BodyError> {
    let foreign = || {
        let descriptor = Types::default()
            .find(body.message_name())
            .filter(|_| Types::own(body.message_name()).is_none())?;
        let message = DynamicMessage::decode(descriptor, body.value.clone()).ok()?;
        // What is of a type that is not known inside of it has no JSON.
        let mut spec = serde_json::to_value(&message).ok()?;
        spec.as_object_mut()?.insert(TYPE.to_owned(), body.type_url.as_str().into());
        Some(spec)
    };
    foreign().map_or_else(|| to_spec(body).map(|(spec, _)| spec), Ok)
}

/// A message as the JSON of protobuf has it inside of others; one of an unknown type as its bytes.
pub(crate) fn to_json(any: &Any) -> Json {
    let bytes = || json!({ TYPE: any.type_url, VALUE: STANDARD.encode(&any.value) });
    if let Some((rest, body)) = unwrapped(any) {
        let known = Types::default().find(body.message_name()).is_some();
        let body = decoded_json(&body).or_else(|| (!known).then(|| to_json(&body)));
        return body.zip(decoded_json(&rest)).map_or_else(bytes, |(body, mut json)| {
            json[BODY] = body;
            json
        });
    }
    decoded_json(any).unwrap_or_else(bytes)
}

/// A message of a known type as JSON. What is of a type that is not known inside of it has no JSON.
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

/// A resource in the wrapper of MCP without its body, and the body, whose type may be of other descriptors than the wrapper.
fn unwrapped(any: &Any) -> Option<(Any, Any)> {
    let mut wrapper = Some(any).filter(|any| any.message_name() == WRAPPER).map(wrapper)?.ok()?;
    let body = wrapper.body.take()?;
    Some((Any { type_url: any.type_url.clone(), value: wrapper.encode_to_vec().into() }, body))
}

fn wrapper(any: &Any) -> Result<Resource, DecodeError> {
    Resource::decode(any.value.clone())
}

/// What a body is called, where its type is known and has a name: the one of the cluster in endpoints of Envoy, its own elsewhere.
pub(crate) fn named(body: &Any) -> Option<String> {
    let descriptor = Types::default().find(body.message_name())?;
    let message = DynamicMessage::decode(descriptor, body.value.clone()).ok()?;
    let text = |field| message.get_field_by_name(field)?.as_str().map(str::to_owned);
    text("name").or_else(|| text("cluster_name"))
}

/// The spec of a resource as a body: of the type that it names under `@type`, or that its collection has
/// (docs/behaviour/mcp.md#collections) if that type is known. All others are a `google.protobuf.Struct`.
///
/// So is one with fields that a message of Istio 1.1 to 1.7 does not have, where they cannot be misspelt names of others: they are of a
/// later release.
///
/// The same spec always becomes the same bytes. The findings are the deprecated fields in it, and those of later releases.
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
    match Types::is_istios(&descriptor) {
        true => as_istios(&descriptor, spec),
        false => encode(format!("{HOST}{}", descriptor.full_name()), &descriptor, spec),
    }
}

/// A spec as a message of Istio, or as a Struct if nothing is wrong with it but that the message lacks fields.
fn as_istios(descriptor: &MessageDescriptor, spec: Json) -> Result<(Any, Vec<Finding>), JsonError> {
    let of = descriptor.full_name();
    let errors = match read_json_all(descriptor, spec.clone()) {
        Ok(message) => return Ok(encoded(format!("{HOST}{of}"), &message)),
        Err(errors) => errors,
    };
    if let Some(error) = errors.iter().find(|error| !error.may_be_newer) {
        return Err(error.clone());
    }
    let finding = |error: JsonError| Finding {
        field: error.field,
        topic: Topic::UnknownField,
        reason: format!(
            "is not a field of {of} in Istio 1.1 to 1.7: the resource is served as {STRUCT}, which sinks that check types refuse; add the \
             descriptors of its release (`source --descriptors`)"
        ),
        deprecation: None,
    };
    as_struct(spec).map(|(body, _)| (body, errors.into_iter().map(finding).collect()))
}

fn as_struct(spec: Json) -> Result<(Any, Vec<Finding>), JsonError> {
    let descriptor = Types::own(STRUCT).ok_or_else(|| at("", format!("{STRUCT} is not known here")))?;
    encode(format!("{HOST}{STRUCT}"), &descriptor, spec)
}

/// A message in JSON that says its type under `@type`.
pub(crate) fn of_any(types: &Types, mut json: Json) -> Result<Any, JsonError> {
    let type_url = json[TYPE].as_str().map(str::to_owned);
    let type_url = type_url.ok_or_else(|| at(TYPE, "is missing".to_owned()))?;
    let is_wrapper = type_url.rsplit('/').next() == Some(WRAPPER);
    let body = json.as_object_mut().filter(|_| is_wrapper).and_then(|fields| fields.remove(BODY));
    let (any, _) = of_type(types, type_url, json)?;
    let Some(body) = body else { return Ok(any) };
    let inside = |error: JsonError| JsonError { field: format!("{BODY}.{}", error.field), ..error };
    let mut wrapper = wrapper(&any).map_err(|error| at("", error.to_string()))?;
    wrapper.body = Some(of_any(types, body).map_err(inside)?);
    Ok(Any { value: wrapper.encode_to_vec().into(), ..any })
}

/// A spec that says its type: fields beside it, or its bytes in base64 under `value`, which is also how types travel that are not known.
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
    // The messages with a JSON of their own have it there.
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
        let (body, _) = of_spec(&Types::default(), &Collection::new(collection), spec).unwrap();
        (body.message_name().to_owned(), to_spec(&body).unwrap().0)
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
            let bytes = of_spec(&Types::default(), &collection, spec.clone()).unwrap();
            assert!((0..5).all(|_| of_spec(&Types::default(), &collection, spec.clone()).unwrap() == bytes));
        }
    }

    #[test]
    fn a_spec_that_does_not_fit_names_the_field() {
        let rules = Collection::new("istio/policy/v1beta1/rules");
        let error = of_spec(&Types::default(), &rules, json!({ "actoins": [] })).unwrap_err();
        assert_eq!(error.to_string(), "actoins: no such field; did you mean actions?");
    }

    const LISTENERS: &str = "envoy.config.listener.v3.Listener";
    const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    const LUA: &str = "envoy.extensions.filters.http.lua.v3.LuaPerRoute";

    fn listener(manager: Json) -> Json {
        let mut config = manager;
        config[TYPE] = format!("{HOST}{MANAGER}").into();
        json!({
            TYPE: format!("{HOST}{LISTENERS}"),
            "name": "front",
            "trafficDirection": "OUTBOUND",
            "per_connection_buffer_limit_bytes": 1024,
            "address": { "socket_address": { "address": "127.0.0.1", "portValue": 80 } },
            "filter_chains": [{ "filters": [{ "name": "manager", "typed_config": config }] }],
        })
    }

    fn encoded(spec: Json) -> Result<DynamicMessage, String> {
        let types = Types::default();
        let (body, _) =
            of_spec(&types, &Collection::new(LISTENERS), spec).map_err(|error| error.to_string())?;
        assert_eq!(body.type_url, format!("{HOST}{LISTENERS}"));
        Ok(DynamicMessage::decode(types.find(LISTENERS).unwrap(), body.value).unwrap())
    }

    /// The fields and their numbers are those of Envoy's protos, the JSON is proto3's.
    #[test]
    fn a_resource_of_envoy_is_encoded_by_its_descriptor_and_so_is_what_is_inside() {
        let manager = json!({
            "statPrefix": "ingress",
            "request_timeout": "1.5s",
            "use_remote_address": true,
            "server_header_transformation": "PASS_THROUGH",
            "rds": { "route_config_name": "r", "config_source": { "ads": {}, "resource_api_version": "V3" } },
        });
        let listener = encoded(listener(manager)).unwrap();
        let json = serde_json::to_value(&listener).unwrap();
        assert_eq!(json["perConnectionBufferLimitBytes"], 1024, "a wrapper");
        assert_eq!(json["trafficDirection"], "OUTBOUND");
        assert_eq!(json["address"]["socketAddress"]["portValue"], 80);
        let config = json!({
            "@type": format!("{HOST}{MANAGER}"),
            "statPrefix": "ingress",
            "requestTimeout": "1.500s",
            "useRemoteAddress": true,
            "serverHeaderTransformation": "PASS_THROUGH",
            "rds": { "routeConfigName": "r", "configSource": { "ads": {}, "resourceApiVersion": "V3" } },
        });
        assert_eq!(json["filterChains"][0]["filters"][0]["typedConfig"], config);
    }

    #[test]
    fn what_does_not_fit_deep_inside_names_the_field() {
        let config = "filter_chains[0].filters[0].typed_config";
        for (manager, reason) in [
            (json!({ "stat_prefx": "x" }), ".stat_prefx: no such field; did you mean stat_prefix?"),
            (json!({ "stat_prefix": 7 }), ".stat_prefix: expected text in quotes, not 7"),
            (
                json!({ "request_timeout": "soon" }),
                ".request_timeout: \"soon\" is not a valid duration; write it like \"300ms\", \"5s\" or \"1m30s\"",
            ),
            (
                json!({ "http_filters": [{ "name": "f", "typed_config": { "@type": "t/no.Such" } }] }),
                ".http_filters[0].typed_config.@type: type no.Such is not known",
            ),
            (
                json!({ "codec_type": "HTTP9" }),
                ".codec_type: \"HTTP9\" is not a value of CodecType; did you mean HTTP1?",
            ),
        ] {
            assert_eq!(encoded(listener(manager)).unwrap_err(), format!("{config}{reason}"));
        }
    }

    /// Both are marked so in Envoy's protos.
    #[test]
    fn deprecated_fields_are_reported_with_their_path_also_deep_inside() {
        let mut spec =
            listener(json!({ "append_x_forwarded_port": true, "access_log_flush_interval": "5s" }));
        spec["filter_chains"][0]["use_proxy_proto"] = true.into();
        let (_, found) = of_spec(&Types::default(), &Collection::new(LISTENERS), spec).unwrap();
        let found: Vec<_> = found.iter().map(|finding| finding.field.as_str()).collect();
        assert_eq!(
            found,
            [
                "filter_chains[0].filters[0].typed_config.access_log_flush_interval",
                "filter_chains[0].use_proxy_proto"
            ]
        );
    }

    #[test]
    fn people_are_shown_what_envoy_is_sent() {
        let spec = listener(json!({ "stat_prefix": "x" }));
        let (body, _) = of_spec(&Types::default(), &Collection::new(LISTENERS), spec).unwrap();
        let shown = readable(&body).unwrap();
        assert_eq!((&shown[TYPE], &shown["name"]), (&json!(body.type_url), &json!("front")));
        assert_eq!(shown["filterChains"][0]["filters"][0]["typedConfig"]["statPrefix"], "x");
        let rule = json!({ "match": "a == b" });
        let (body, _) =
            of_spec(&Types::default(), &Collection::new("istio/policy/v1beta1/rules"), rule.clone()).unwrap();
        assert_eq!(readable(&body).unwrap(), rule);
    }

    #[test]
    fn maps_inside_of_an_any_are_in_one_order_too() {
        let lua = json!({ TYPE: format!("{HOST}{LUA}"), "disabled": true });
        let filters: serde_json::Map<_, _> = (0..50).map(|n| (format!("f{n}"), lua.clone())).collect();
        let hosts = json!([{ "name": "h", "domains": ["*"], "typed_per_filter_config": filters }]);
        let spec = listener(json!({ "route_config": { "virtual_hosts": hosts } }));
        let bytes = || of_spec(&Types::default(), &Collection::new(LISTENERS), spec.clone()).unwrap().0.value;
        let first = bytes();
        assert!((0..5).all(|_| bytes() == first));
        let filters = encoded(spec.clone()).map(|listener| serde_json::to_value(listener).unwrap()).unwrap();
        let filters = &filters["filterChains"][0]["filters"][0]["typedConfig"]["routeConfig"]["virtualHosts"]
            [0]["typedPerFilterConfig"];
        assert_eq!((filters.as_object().unwrap().len(), &filters["f49"]["disabled"]), (50, &json!(true)));
    }

    /// Istio's messages and the wrapper are of different descriptors.
    #[test]
    fn a_wrapped_resource_has_json_with_its_body_whatever_its_type() {
        let entry =
            json!({ TYPE: format!("{HOST}istio.networking.v1alpha3.ServiceEntry"), "hosts": ["a.b"] });
        let unknown = json!({ TYPE: format!("{HOST}a.b.C"), VALUE: "AQI=" });
        let value = json!({ TYPE: format!("{HOST}{STRUCT}"), VALUE: { "a": 1.0 } });
        for body in [entry, unknown, value] {
            let wrapped =
                json!({ TYPE: format!("{HOST}{WRAPPER}"), "metadata": { "name": "ns/e" }, BODY: body });
            let any = of_any(&Types::default(), wrapped.clone()).unwrap();
            assert_eq!(to_json(&any), wrapped);
        }
        let wrong = json!({ TYPE: format!("{HOST}{WRAPPER}"), BODY: { TYPE: "t/istio.policy.v1beta1.Rule", "macht": "" } });
        let error = of_any(&Types::default(), wrong).unwrap_err().to_string();
        assert_eq!(error, "body.macht: no such field; did you mean match?");
    }

    #[test]
    fn a_body_that_was_carried_goes_out_as_it_came() {
        for type_url in ["t/a.b.C", &format!("{HOST}{LISTENERS}")] {
            let body = Any { type_url: type_url.to_owned(), value: vec![1, 2, 250].into() };
            let (spec, _) = to_spec(&body).unwrap();
            let back = of_spec(&Types::default(), &Collection::new("any/thing"), spec).unwrap();
            assert_eq!(back, (body, vec![]));
        }
    }

    #[test]
    fn an_unknown_or_missing_type_is_reported() {
        let error =
            |spec| of_spec(&Types::default(), &Collection::new("any/thing"), spec).unwrap_err().to_string();
        assert_eq!(
            error(json!({ "@type": "t/a.b.C", "name": "x" })),
            "@type: there is no type a.b.C here; add its descriptors (`source --descriptors`), or write it as its bytes: value: BASE64"
        );
        assert_eq!(
            error(json!({ "@type": "a.b.C" })),
            "@type: \"a.b.C\" is not a type URL; write it like type.googleapis.com/a.b.C"
        );
        assert!(
            error(json!({ "@type": "t/a.b.C", "value": "?" })).starts_with("value: is not valid base64: ")
        );
    }

    /// Telemetry came after the releases whose messages are shipped.
    #[test]
    fn a_kind_of_istio_is_its_message_where_that_is_known_and_else_a_struct() {
        let entries = Collection::new("istio/networking/v1alpha3/serviceentries");
        let telemetries = Collection::new("istio/telemetry/v1alpha1/telemetries");
        let name = |types: &Types, collection: &Collection| {
            of_spec(types, collection, json!({})).unwrap().0.message_name().to_owned()
        };
        let mut types = Types::default();
        assert_eq!(name(&types, &entries), "istio.networking.v1alpha3.ServiceEntry");
        assert_eq!(name(&types, &telemetries), STRUCT);
        let proto = "syntax = 'proto3'; package istio.telemetry.v1alpha1; message Telemetry { repeated string tracing = 1; }";
        let file = protox::file::File::from_source("telemetry.proto", proto).unwrap();
        let set = prost_types::FileDescriptorSet { file: vec![file.file_descriptor_proto().clone()] };
        types.add(&prost::Message::encode_to_vec(&set)).unwrap();
        assert_eq!(name(&types, &telemetries), "istio.telemetry.v1alpha1.Telemetry");
        let spec = json!({ "tracing": ["a.b"] });
        assert_eq!(of_spec(&types, &telemetries, spec).unwrap().0.value, b"\x0a\x03a.b"[..]);
    }

    #[test]
    fn fields_of_later_releases_of_istio_make_a_struct_with_a_warning_and_misspelt_ones_are_faults() {
        let services = Collection::new("istio/networking/v1alpha3/virtualservices");
        let of = |spec: Json| of_spec(&Types::default(), &services, spec);
        // Of Istio 1.14.
        let newer = json!({ "hosts": ["a"], "http": [{ "directResponse": { "status": 503 } }] });
        let (body, found) = of(newer.clone()).unwrap();
        assert_eq!((body.message_name(), to_spec(&body).unwrap().0), (STRUCT, newer));
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!((finding.topic, &*finding.field), (Topic::UnknownField, "http[0].directResponse"));
        assert!(finding.reason.contains("in Istio 1.1 to 1.7") && finding.reason.contains("--descriptors"));
        for (spec, reason) in [
            (json!({ "hsots": ["a"] }), "hsots: no such field; did you mean hosts?"),
            (json!({ "hosts": "a", "directResponse": {} }), "hosts: expected a list: the field is repeated"),
        ] {
            assert_eq!(of(spec).unwrap_err().to_string(), reason);
        }
        // Mixer's own kinds ended with it.
        let rules = Collection::new("istio/policy/v1beta1/rules");
        assert!(of_spec(&Types::default(), &rules, json!({ "directResponse": {} })).is_err());
    }

    #[test]
    fn unknown_bodies_are_carried_and_broken_ones_reported() {
        let unknown = Any { type_url: "t/a.b.C".to_owned(), value: vec![1, 2].into() };
        assert_eq!(to_spec(&unknown).unwrap().0, json!({ "@type": "t/a.b.C", "value": "AQI=" }));
        let broken = Any { type_url: "t/istio.policy.v1beta1.Rule".to_owned(), value: vec![0xff].into() };
        assert!(
            to_spec(&broken)
                .unwrap_err()
                .to_string()
                .starts_with("its body is not a valid istio.policy.v1beta1.Rule: ")
        );
    }
}
