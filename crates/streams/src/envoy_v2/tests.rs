#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, fs};

use prost_reflect::{Cardinality, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};
use serde_json::{Value as Json, json};

use super::translate::{Version, to_v2, to_v3};
use crate::types::Types;
use mixer_adapter_core::{
    framework::{json::read_json, translation::translate},
    proto::Any,
};

/// Messages of v2 and those of v3 that they became.
const MESSAGES: &str = include_str!("../../../config/src/envoy_v2.tsv");
const HOST: &str = "type.googleapis.com/";

fn successors() -> impl Iterator<Item = (&'static str, &'static str)> {
    MESSAGES.lines().filter_map(|line| line.split_once('\t'))
}

/// A message in JSON, encoded by its descriptor.
fn encoded(json: Json) -> Any {
    let type_url = json["@type"].as_str().unwrap().to_owned();
    let name = type_url.rsplit('/').next().unwrap();
    let descriptor = Types::default().find(name).unwrap();
    let mut fields = json;
    fields.as_object_mut().unwrap().remove("@type");
    let message = read_json(&descriptor, fields).unwrap();
    Any { value: crate::ordered::encode(&message).into(), type_url }
}

fn decoded(any: &Any) -> Json {
    let descriptor = Types::default().find(any.message_name()).unwrap();
    let message = DynamicMessage::decode(descriptor, any.value.clone()).unwrap();
    let mut json = serde_json::to_value(&message).unwrap();
    json["@type"] = any.type_url.as_str().into();
    json
}

fn to_3(json: Json) -> Json {
    decoded(&to_v3(&encoded(json)).unwrap())
}

fn to_2(json: Json) -> Json {
    decoded(&to_v2(&encoded(json)).unwrap())
}

fn url(message: &str) -> String {
    format!("{HOST}{message}")
}

/// Version 3 ignores names of extensions, and version 2 finds them by these.
#[test]
fn extensions_of_any_name_have_the_names_that_version_2_knows() {
    let manager = |filter: &str| {
        json!({
            "@type": url("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
            "statPrefix": "in",
            "httpFilters": [{ "name": filter, "typedConfig": { "@type": url("envoy.extensions.filters.http.router.v3.Router") } }],
        })
    };
    for (name, known) in [("last", "envoy.filters.http.router"), ("envoy.router", "envoy.router")] {
        assert_eq!(to_2(manager(name))["httpFilters"][0]["name"], known);
    }
    let host = json!({
        "@type": url("envoy.config.route.v3.VirtualHost"),
        "name": "all",
        "typedPerFilterConfig": { "mine": { "@type": url("envoy.extensions.filters.http.fault.v3.HTTPFault") } },
    });
    let configs = to_2(host)["typedPerFilterConfig"].clone();
    assert_eq!(configs.as_object().unwrap().keys().collect::<Vec<_>>(), ["envoy.filters.http.fault"]);
}

#[test]
fn a_listener_is_translated_with_what_is_inside_of_it_and_back() {
    let of = |version: &str, listener: &str, manager: &str, router: &str, log: &str| {
        json!({
            "@type": url(listener),
            "name": "front",
            "filterChains": [{ "filters": [{ "name": "envoy.filters.network.http_connection_manager", "typedConfig": {
                "@type": url(manager),
                "statPrefix": "in",
                "rds": { "routeConfigName": "local_route", "configSource": { "ads": {}, "resourceApiVersion": version } },
                "httpFilters": [{ "name": "envoy.filters.http.router", "typedConfig": { "@type": url(router), "startChildSpan": true } }],
                "accessLog": [{ "name": "envoy.access_loggers.file", "typedConfig": { "@type": url(log), "path": "/dev/null" } }],
            } }] }],
        })
    };
    let newer = of(
        "V3",
        "envoy.config.listener.v3.Listener",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "envoy.extensions.filters.http.router.v3.Router",
        "envoy.extensions.access_loggers.file.v3.FileAccessLog",
    );
    let older = of(
        "V2",
        "envoy.api.v2.Listener",
        "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager",
        "envoy.config.filter.http.router.v2.Router",
        "envoy.config.accesslog.v2.FileAccessLog",
    );
    assert_eq!(to_2(newer.clone()), older);
    assert_eq!(to_3(older), newer);
}

#[test]
fn fields_have_the_names_of_the_other_version_and_what_has_no_version_stays() {
    let newer = json!({
        "@type": url("envoy.config.route.v3.RouteConfiguration"),
        "name": "local_route",
        "virtualHosts": [{
            "name": "h",
            "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "c", "hostRewriteLiteral": "a.b" } }],
            "typedPerFilterConfig": { "mine": { "@type": url("google.protobuf.StringValue"), "value": "x" } },
        }],
    });
    let older = to_2(newer.clone());
    assert_eq!(older["@type"], url("envoy.api.v2.RouteConfiguration"));
    let host = &older["virtualHosts"][0];
    assert_eq!(host["routes"][0]["route"], json!({ "cluster": "c", "hostRewrite": "a.b" }));
    assert_eq!(host["typedPerFilterConfig"], newer["virtualHosts"][0]["typedPerFilterConfig"]);
    assert_eq!(to_3(older), newer);
}

/// The cluster of the document of 2018, with what had other names then.
#[test]
fn hosts_and_tls_context_of_a_cluster_are_a_load_assignment_and_a_transport_socket() {
    let address = json!({ "socketAddress": { "address": "127.0.0.1", "portValue": 80 } });
    let older = json!({
        "@type": url("envoy.api.v2.Cluster"),
        "name": "ads_cluster",
        "connect_timeout": "5s",
        "type": "STATIC",
        "lb_policy": "ORIGINAL_DST_LB",
        "hosts": [address],
        "http2_protocol_options": {},
        "tls_context": { "sni": "a.b" },
    });
    let expected = json!({
        "@type": url("envoy.config.cluster.v3.Cluster"),
        "name": "ads_cluster",
        "connectTimeout": "5s",
        "type": "STATIC",
        "lbPolicy": "CLUSTER_PROVIDED",
        "loadAssignment": { "clusterName": "ads_cluster", "endpoints": [{ "lbEndpoints": [{ "endpoint": { "address": address } }] }] },
        "http2ProtocolOptions": {},
        "transportSocket": {
            "name": "envoy.transport_sockets.tls",
            "typedConfig": { "@type": url("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"), "sni": "a.b" },
        },
    });
    assert_eq!(to_3(older), expected);
}

#[test]
fn configuration_without_a_type_gets_the_one_of_its_extension() {
    let older = json!({
        "@type": url("envoy.api.v2.Listener"),
        "filter_chains": [{ "filters": [{ "name": "envoy.http_connection_manager", "config": {
            "stat_prefix": "in",
            "idle_timeout": "7s",
            "http_filters": [{ "name": "envoy.fault", "config": { "delay": { "type": "FIXED", "fixed_delay": "1s" } } }, { "name": "envoy.router" }],
            "route_config": { "virtual_hosts": [{ "name": "h", "domains": ["*"], "per_filter_config": { "envoy.buffer": { "disabled": true } } }] },
        } }] }],
    });
    let manager = to_3(older)["filterChains"][0]["filters"][0]["typedConfig"].clone();
    assert_eq!(
        manager["@type"],
        url("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager")
    );
    assert_eq!(manager["commonHttpProtocolOptions"], json!({ "idleTimeout": "7s" }));
    let filter = |place: usize| manager["httpFilters"][place]["typedConfig"].clone();
    let fault = url("envoy.extensions.filters.http.fault.v3.HTTPFault");
    assert_eq!(filter(0), json!({ "@type": fault, "delay": { "fixedDelay": "1s" } }));
    assert_eq!(filter(1), json!({ "@type": url("envoy.extensions.filters.http.router.v3.Router") }));
    let buffer = url("envoy.extensions.filters.http.buffer.v3.BufferPerRoute");
    let per_route = &manager["routeConfig"]["virtualHosts"][0]["typedPerFilterConfig"]["envoy.buffer"];
    assert_eq!(per_route, &json!({ "@type": buffer, "disabled": true }));
}

#[test]
fn options_of_http_of_a_cluster_are_fields_of_it_in_v2() {
    let options = url("envoy.extensions.upstreams.http.v3.HttpProtocolOptions");
    let cluster = |explicit: Json| {
        json!({
            "@type": url("envoy.config.cluster.v3.Cluster"),
            "name": "c",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": { "@type": options, "explicit_http_config": explicit },
            },
        })
    };
    let older = to_2(cluster(json!({ "http2_protocol_options": { "max_concurrent_streams": 7 } })));
    let expected = json!({ "@type": url("envoy.api.v2.Cluster"), "name": "c", "http2ProtocolOptions": { "maxConcurrentStreams": 7 } });
    assert_eq!(older, expected);
    let error = to_v2(&encoded(cluster(json!({ "http3_protocol_options": {} })))).unwrap_err().to_string();
    assert!(error.contains("typed_extension_protocol_options["), "{error}");
}

/// A rule of access with a matcher that v2 does not know would allow more without it.
#[test]
fn what_v2_cannot_hold_is_an_error_with_its_path_and_never_dropped() {
    let error = |json| to_v2(&encoded(json)).unwrap_err().to_string();
    let hosts = json!([{ "name": "h", "domains": ["*"], "routes": [{ "match": { "path_separated_prefix": "/a" }, "route": { "cluster": "c" } }] }]);
    assert_eq!(
        error(json!({ "@type": url("envoy.config.route.v3.RouteConfiguration"), "virtual_hosts": hosts })),
        "the other version of Envoy's API cannot hold virtual_hosts[0].routes[0].match.path_separated_prefix (no such field)"
    );
    let filter = json!({ "name": "f", "typed_config": { "@type": url("envoy.extensions.filters.http.oauth2.v3.OAuth2") } });
    let manager = json!({
        "@type": url("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "http_filters": [filter],
    });
    assert_eq!(
        error(
            json!({ "@type": url("envoy.config.listener.v3.Listener"), "filter_chains": [{ "filters": [{ "typed_config": manager }] }] })
        ),
        "the other version of Envoy's API cannot hold filter_chains[0].filters[0].typed_config.http_filters[0].typed_config (no such extension)"
    );
    let newer = Any { type_url: url("envoy.extensions.filters.http.oauth2.v3.OAuth2"), value: vec![].into() };
    assert!(
        to_v2(&newer)
            .unwrap_err()
            .to_string()
            .ends_with("does not exist in the other version of Envoy's API")
    );
    let unknown = Any { type_url: url("envoy.config.cluster.v3.Cluster"), value: vec![0xfa, 0x7f, 0].into() };
    assert!(to_v2(&unknown).unwrap_err().to_string().ends_with("(a field that is unknown here)"));
    let broken = Any { type_url: url("envoy.config.cluster.v3.Cluster"), value: vec![0xff].into() };
    assert!(
        to_v2(&broken).unwrap_err().to_string().starts_with("not a valid envoy.config.cluster.v3.Cluster: ")
    );
}

#[test]
fn a_message_that_is_not_of_envoy_is_the_same_in_both_versions() {
    let rule = Any { type_url: url("istio.policy.v1beta1.Rule"), value: vec![1, 2].into() };
    assert_eq!((to_v2(&rule).unwrap(), to_v3(&rule).unwrap()), (rule.clone(), rule));
}

#[test]
fn every_message_of_the_table_is_known_in_both_versions() {
    assert!(successors().count() > 250);
    for (older, newer) in successors() {
        assert!(Types::v2(older).is_some(), "{older}");
        // Services' own messages are no resources.
        assert!(Types::v3(newer).is_some(), "{newer}");
    }
}

/// A value of a field that is not its default.
fn sample(field: &FieldDescriptor) -> Value {
    let one = |kind: &Kind| match kind {
        Kind::Message(message) => Value::Message(DynamicMessage::new(message.clone())),
        Kind::Enum(_) => Value::EnumNumber(1),
        Kind::String => Value::String("x".to_owned()),
        Kind::Bytes => Value::Bytes(vec![1].into()),
        Kind::Bool => Value::Bool(true),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(1),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(1),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(1),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(1),
        Kind::Double => Value::F64(1.0),
        Kind::Float => Value::F32(1.0),
    };
    let kind = field.kind();
    match (field.cardinality(), &kind) {
        (_, Kind::Message(entry)) if field.is_map() => {
            let value = one(&entry.map_entry_value_field().kind());
            let key = match entry.map_entry_key_field().kind() {
                Kind::Uint32 => MapKey::U32(1),
                _ => MapKey::String("x".to_owned()),
            };
            Value::Map([(key, value)].into())
        }
        (Cardinality::Repeated, kind) => Value::List(vec![one(kind)]),
        (_, kind) => one(kind),
    }
}

/// The messages of v2 that resources may have, with their successors.
fn pairs() -> Vec<(MessageDescriptor, MessageDescriptor)> {
    let of = |(older, newer): (&str, &str)| Some((Types::v2(older)?, Types::v3(newer)?));
    let mut todo: Vec<_> = successors().filter_map(of).collect();
    let mut seen = BTreeSet::new();
    let mut pairs = Vec::new();
    while let Some((older, newer)) = todo.pop() {
        if !older.full_name().starts_with("envoy.") || !seen.insert(older.full_name().to_owned()) {
            continue;
        }
        for field in older.fields() {
            let Some(other) = newer.get_field(field.number()) else { continue };
            if let (Kind::Message(older), Kind::Message(newer)) = (field.kind(), other.kind()) {
                if field.is_map() {
                    let value = |entry: &MessageDescriptor| entry.map_entry_value_field().kind();
                    if let (Kind::Message(older), Kind::Message(newer)) = (value(&older), value(&newer)) {
                        todo.push((older, newer));
                    }
                } else {
                    todo.push((older, newer))
                }
            }
        }
        pairs.push((older, newer));
    }
    pairs
}

/// The rows of the table under a heading of the page on v2.
fn documented(heading: &str) -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/behaviour/xds-v2.md");
    let page = fs::read_to_string(path).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

/// Each field of v2 that v3 does not have is in one of two tables: rewritten, or refused.
#[test]
fn the_page_on_v2_lists_the_fields_that_are_rewritten_and_those_that_are_refused() {
    let (mut rewritten, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for (older, newer) in pairs() {
        for field in older.fields() {
            let same = newer.get_field(field.number()).is_some_and(|other| other.name() == field.name());
            let mut message = DynamicMessage::new(older.clone());
            message.set_field(&field, sample(&field));
            let name = format!("{}.{}", older.full_name(), field.name());
            if !translate(&Version::V3, message, newer.clone()).1.is_empty() {
                refused.insert(name);
            } else if !same {
                rewritten.insert(name);
            }
        }
    }
    assert_eq!(documented("Fields that are rewritten"), rewritten);
    assert_eq!(documented("Fields that are refused"), refused);
}

#[test]
fn the_list_of_what_is_lost_is_bounded() {
    let domain = json!({ "name": "v", "domains": ["*"], "routes": (0..1_000).map(|_| json!({
        "match": { "prefix": "/", "filterState": [{ "key": "k", "stringMatch": { "exact": "x" } }] },
        "route": { "cluster": "c" },
    })).collect::<Vec<_>>() });
    let route = json!({ "@type": url("envoy.config.route.v3.RouteConfiguration"), "virtualHosts": [domain] });
    let error = to_v2(&encoded(route)).unwrap_err().to_string();
    assert!(error.contains("virtual_hosts[0].routes[0].match.filter_state"), "{error}");
    assert!(error.len() < 10_000, "{}", error.len());
}
