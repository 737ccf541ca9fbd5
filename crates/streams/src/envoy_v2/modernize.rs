//! Fields of version 2 that version 3 does not have, in their newer form, which version 2 had as well.

use std::collections::HashMap;

use prost_reflect::{DynamicMessage, MapKey, MessageDescriptor, ReflectMessage as _, Value};
use serde_json::{Value as Json, json};

use super::lists::{config_of, config_per_route};
use crate::types::Types;
use mixer_adapter_config::content;
use mixer_adapter_core::framework::json::read_json;

const HOST: &str = "type.googleapis.com/";
/// `Cluster.LbPolicy` of v2.
const ORIGINAL_DST_LB: i32 = 4;
const CLUSTER_PROVIDED: i32 = 6;
/// `CodecClientType` of v2.
const HTTP2: i32 = 1;
/// The options of HTTP of a cluster of v3, and where they are.
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Rewrites fields that the other version does not have to their other form. Fields without one stay.
pub(super) fn modernize(message: &mut DynamicMessage) {
    let name = message.descriptor().full_name().to_owned();
    match name.as_str() {
        "envoy.api.v2.Cluster" => cluster(message),
        "envoy.api.v2.listener.FilterChain" => tls_socket(message),
        "envoy.api.v2.listener.Filter"
        | "envoy.api.v2.listener.ListenerFilter"
        | "envoy.config.filter.network.http_connection_manager.v2.HttpFilter"
        | "envoy.config.filter.accesslog.v2.AccessLog" => typed(message),
        "envoy.api.v2.route.VirtualHost"
        | "envoy.api.v2.route.Route"
        | "envoy.api.v2.route.WeightedCluster.ClusterWeight" => typed_per_route(message),
        "envoy.api.v2.route.RouteAction" => mirror(message),
        "envoy.api.v2.route.CorsPolicy" => cors(message),
        "envoy.api.v2.auth.CertificateValidationContext" => {
            replace(message, "verify_subject_alt_name", "match_subject_alt_names", exact);
        }
        "envoy.api.v2.core.HealthCheck.HttpHealthCheck" => health_check(message),
        "envoy.config.filter.fault.v2.FaultDelay" => {
            // There was one type only.
            message.clear_field_by_name("type");
        }
        "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager" => idle(message),
        "envoy.config.filter.network.redis_proxy.v2.RedisProxy" => redis(message),
        "envoy.config.cluster.v3.Cluster" => http_options(message),
        _ => {}
    }
}

/// The value of a field, if it is set.
fn set_value(message: &DynamicMessage, field: &str) -> Option<Value> {
    message
        .has_field_by_name(field)
        .then(|| message.get_field_by_name(field).map(|value| value.into_owned()))?
}

fn text(message: &DynamicMessage, field: &str) -> String {
    set_value(message, field).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Replaces a field by another, with a value in JSON, unless both are set. A field that cannot be replaced stays.
fn replace(message: &mut DynamicMessage, old: &str, new: &str, json: impl FnOnce(&Value) -> Json) {
    if message.has_field_by_name(new) {
        return;
    }
    let Some(value) = set_value(message, old) else { return };
    if set_json(message, new, json(&value)) {
        message.clear_field_by_name(old);
    }
}

/// Sets a field to a message, or to a list of messages, in JSON; returns whether it fits.
fn set_json(message: &mut DynamicMessage, field: &str, json: Json) -> bool {
    let Some(descriptor) = message.descriptor().get_field_by_name(field) else { return false };
    let Some(inner) = descriptor.kind().as_message().cloned() else { return false };
    let value = match json {
        Json::Array(items) if descriptor.is_list() => {
            let items = items.into_iter().map(|json| read_json(&inner, json).map(Value::Message));
            items.collect::<Result<_, _>>().map(Value::List)
        }
        json => read_json(&inner, json).map(Value::Message),
    };
    value.map(|value| message.set_field(&descriptor, value)).is_ok()
}

/// An Any with that message.
fn any(content: &DynamicMessage, pool_of: &MessageDescriptor) -> Option<DynamicMessage> {
    let descriptor = pool_of.parent_pool().get_message_by_name("google.protobuf.Any")?;
    let mut any = DynamicMessage::new(descriptor);
    let type_url = format!("{HOST}{}", content.descriptor().full_name());
    any.set_field_by_name("type_url", Value::String(type_url));
    any.set_field_by_name("value", Value::Bytes(crate::ordered::encode(content).into()));
    Some(any)
}

/// Returns a `Struct` as the message that it represents.
fn of_struct(fields: &DynamicMessage, message: &str) -> Option<DynamicMessage> {
    let descriptor = Types::v2(message)?;
    read_json(&descriptor, serde_json::to_value(fields).ok()?).ok()
}

fn cluster(cluster: &mut DynamicMessage) {
    tls_socket(cluster);
    let policy = cluster.get_field_by_name("lb_policy").and_then(|value| value.as_enum_number());
    if policy == Some(ORIGINAL_DST_LB) {
        cluster.set_field_by_name("lb_policy", Value::EnumNumber(CLUSTER_PROVIDED));
    }
    let name = text(cluster, "name");
    replace(cluster, "hosts", "load_assignment", |hosts| {
        let addresses = hosts.as_list().into_iter().flatten().filter_map(Value::as_message);
        let endpoints: Vec<Json> = addresses
            .map(|address| json!({ "endpoint": { "address": serde_json::to_value(address).ok() } }))
            .collect();
        json!({ "cluster_name": name, "endpoints": [{ "lb_endpoints": endpoints }] })
    });
}

/// `tls_context` as a transport socket.
fn tls_socket(message: &mut DynamicMessage) {
    let content = set_value(message, "tls_context");
    let config = content.as_ref().and_then(Value::as_message).and_then(|tls| any(tls, &message.descriptor()));
    let field = message.descriptor().get_field_by_name("transport_socket");
    let (Some(config), Some(field)) = (config, field.filter(|field| !message.has_field(field))) else {
        return;
    };
    let Some(mut socket) = field.kind().as_message().cloned().map(DynamicMessage::new) else { return };
    socket.set_field_by_name("name", Value::String("envoy.transport_sockets.tls".to_owned()));
    socket.set_field_by_name("typed_config", Value::Message(config));
    message.set_field(&field, Value::Message(socket));
    message.clear_field_by_name("tls_context");
}

/// The configuration of an extension as a message with its type. One without configuration gets an empty message.
fn typed(message: &mut DynamicMessage) {
    let container = message.descriptor();
    let Some(name) = config_of(container.full_name(), &text(message, "name")) else { return };
    if message.has_field_by_name("typed_config") {
        return;
    }
    let config = match set_value(message, "config") {
        Some(config) => config.as_message().and_then(|fields| of_struct(fields, name)),
        None => Types::v2(name).map(DynamicMessage::new),
    };
    if let Some(config) = config.and_then(|config| any(&config, &container)) {
        // Of one oneof with `config`.
        message.set_field_by_name("typed_config", Value::Message(config));
    }
}

/// Does the same for the configuration of filters for a route.
fn typed_per_route(message: &mut DynamicMessage) {
    let Some(Value::Map(configs)) = set_value(message, "per_filter_config") else { return };
    let mut typed = match set_value(message, "typed_per_filter_config") {
        Some(Value::Map(typed)) => typed,
        _ => HashMap::new(),
    };
    let mut rest = HashMap::new();
    for (name, config) in configs {
        let of = name.as_str().and_then(config_per_route);
        let message_of = config.as_message().zip(of).and_then(|(fields, of)| of_struct(fields, of));
        match message_of.and_then(|config| any(&config, &message.descriptor())) {
            Some(config) => _ = typed.insert(name, Value::Message(config)),
            None => _ = rest.insert(name, config),
        }
    }
    message.set_field_by_name("typed_per_filter_config", Value::Map(typed));
    message.set_field_by_name("per_filter_config", Value::Map(rest));
}

fn mirror(action: &mut DynamicMessage) {
    let Some(Value::Message(policy)) = set_value(action, "request_mirror_policy") else { return };
    // A policy that depends on the runtime by its older key stays.
    if !policy.has_field_by_name("runtime_key") && !action.has_field_by_name("request_mirror_policies") {
        action.clear_field_by_name("request_mirror_policy");
        action.set_field_by_name("request_mirror_policies", Value::List(vec![Value::Message(policy)]));
    }
}

/// Matchers of exactly these texts.
fn exact(texts: &Value) -> Json {
    texts.as_list().into_iter().flatten().map(|text| json!({ "exact": text.as_str() })).collect()
}

fn cors(policy: &mut DynamicMessage) {
    replace(policy, "allow_origin", "allow_origin_string_match", exact);
    replace(policy, "enabled", "filter_enabled", |enabled| {
        let enabled = enabled.as_message().and_then(|wrapper| wrapper.get_field_by_name("value")?.as_bool());
        json!({ "default_value": { "numerator": if enabled == Some(true) { 100 } else { 0 } } })
    });
}

fn health_check(check: &mut DynamicMessage) {
    replace(check, "service_name", "service_name_matcher", |name| json!({ "prefix": name.as_str() }));
    if check.get_field_by_name("use_http2").is_some_and(|field| field.as_bool() == Some(true)) {
        check.clear_field_by_name("use_http2");
        check.set_field_by_name("codec_client_type", Value::EnumNumber(HTTP2));
    }
}

/// Moves the idle timeout into the common options of HTTP protocols.
fn idle(manager: &mut DynamicMessage) {
    let Some(timeout) = set_value(manager, "idle_timeout") else { return };
    let Some(mut options) =
        manager.get_field_by_name("common_http_protocol_options").map(|value| value.into_owned())
    else {
        return;
    };
    if let Some(options) =
        options.as_message_mut().filter(|options| !options.has_field_by_name("idle_timeout"))
    {
        options.set_field_by_name("idle_timeout", timeout);
        let options = Value::Message(options.clone());
        manager.set_field_by_name("common_http_protocol_options", options);
        manager.clear_field_by_name("idle_timeout");
    }
}

/// The cluster of all other keys as a route.
fn redis(proxy: &mut DynamicMessage) {
    let cluster = text(proxy, "cluster");
    let Some(mut routes) = proxy.get_field_by_name("prefix_routes").map(|value| value.into_owned()) else {
        return;
    };
    let Some(inner) = routes.as_message_mut().filter(|routes| !routes.has_field_by_name("catch_all_route"))
    else {
        return;
    };
    if !cluster.is_empty() && set_json(inner, "catch_all_route", json!({ "cluster": cluster })) {
        proxy.set_field_by_name("prefix_routes", routes);
        proxy.clear_field_by_name("cluster");
    }
}

/// Options of one version of HTTP as a field of the cluster, which v3 has from v2.
fn http_options(cluster: &mut DynamicMessage) {
    let Some(Value::Map(mut entries)) = set_value(cluster, "typed_extension_protocol_options") else {
        return;
    };
    let key = MapKey::String(HTTP_OPTIONS.to_owned());
    let content = entries.get(&key).and_then(Value::as_message).and_then(content);
    let Some(Ok(Json::Object(options))) = content.map(|content| serde_json::to_value(&content)) else {
        return;
    };
    let Some(Json::Object(explicit)) = options.get("explicitHttpConfig").filter(|_| options.len() == 1)
    else {
        return;
    };
    let fields = [
        ("httpProtocolOptions", "http_protocol_options"),
        ("http2ProtocolOptions", "http2_protocol_options"),
    ];
    for (option, field) in fields {
        if let Some(value) = explicit.get(option).filter(|_| explicit.len() == 1)
            && !cluster.has_field_by_name(field)
            && set_json(cluster, field, value.clone())
        {
            entries.remove(&key);
            cluster.set_field_by_name("typed_extension_protocol_options", Value::Map(entries));
            return;
        }
    }
}
