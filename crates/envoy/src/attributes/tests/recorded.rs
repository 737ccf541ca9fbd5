//! The tables of attributes in docs/envoy/attributes.md for messages of a real Envoy 1.40, which
//! `adapters/tests/it/envoy_services/messages.rs` recorded: the requests and the configuration are described there.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use mixer_adapter_engine::attribute::Bag;
use prost::Message;
use serde_json::Value as Json;

use super::vocabulary;
use crate::attributes::{
    LogSender, Node, check_attributes, descriptor_attributes, http_attributes, tcp_attributes,
};
use crate::{
    options::MappingOptions,
    proto::envoy::{
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::{
            accesslog::v3::{StreamAccessLogsMessage, stream_access_logs_message::LogEntries},
            auth::v3::CheckRequest,
            ratelimit::v3::RateLimitRequest,
        },
    },
};

/// The attributes of a message, as text.
type Attributes = BTreeMap<String, String>;

fn message<M: Message + Default>(name: &str) -> M {
    let lines = include_str!("recorded.jsonl").lines();
    let mut recorded = lines.map(|line| serde_json::from_str::<Json>(line).unwrap());
    let recorded = recorded.find(|recorded| recorded["name"] == name).expect(name);
    M::decode(&BASE64.decode(recorded["message"].as_str().unwrap()).unwrap()[..]).unwrap()
}

fn all(bag: &Bag) -> Attributes {
    let values = bag.vocabulary().iter().map(|declared| (declared.name.to_string(), bag.at(declared.slot)));
    values.filter_map(|(name, value)| Some((name, value?.to_string()))).collect()
}

fn of_check(name: &str) -> Attributes {
    let check: CheckRequest = message(name);
    let options = MappingOptions::default();
    all(&check_attributes(&check.attributes.unwrap(), Bag::new(vocabulary()), &options).unwrap())
}

/// The attributes of the only entry of a message, whose stream began with the message `first`.
fn of_log(first: &str, name: &str) -> Attributes {
    let first: StreamAccessLogsMessage = message(first);
    let node = first.identifier.unwrap().node.unwrap();
    let sender = LogSender::new(Some(&Node::decode(&*node.encode_to_vec()).unwrap()), Default::default());
    let options = MappingOptions::default();
    let bag = match message::<StreamAccessLogsMessage>(name).log_entries.unwrap() {
        LogEntries::HttpLogs(entries) => {
            http_attributes(&entries.log_entry[0], &sender, Bag::new(vocabulary()), &options)
        }
        LogEntries::TcpLogs(entries) => {
            tcp_attributes(&entries.log_entry[0], &sender, Bag::new(vocabulary()), &options)
        }
    };
    all(&bag.unwrap())
}

fn of_http_log(name: &str) -> Attributes {
    of_log("log of a request", name)
}

fn assert_has(attributes: &Attributes, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(attributes.get(*name).map(String::as_str), Some(*value), "{name}");
    }
}
/// The attributes of every message over the recorded connections: both ends with their certificates, and Envoy's node.
const CONNECTION: &[(&str, &str)] = &[
    ("connection.mtls", "true"),
    ("context.reporter.kind", "inbound"),
    ("destination.ip", "127.0.0.1"),
    ("destination.principal", "cluster.local/ns/shop/sa/front"),
    ("destination.serviceAccount", "front"),
    ("destination.namespace", "shop"),
    ("destination.labels", "stringmap[app:shop]"),
    ("source.ip", "127.0.0.1"),
    ("source.principal", "cluster.local/ns/shop/sa/good"),
    ("source.user", "cluster.local/ns/shop/sa/good"),
    ("source.namespace", "shop"),
    ("source.serviceAccount", "good"),
];

/// The request of the recording, in a check and in a log.
const REQUEST: &[(&str, &str)] = &[
    ("context.protocol", "http"),
    ("destination.service.host", "shop.example.com"),
    ("destination.service.name", "shop.example.com"),
    ("rbac.permissive.effective_policy_id", "trial"),
    ("rbac.permissive.response_code", "denied"),
    ("request.api_key", "k-1"),
    ("request.auth.audiences", "shop,api"),
    (
        "request.auth.claims",
        "stringmap[aud:shop,api azp:app groups:a,b iss:https://issuer.example.com sub:user-1]",
    ),
    ("request.auth.presenter", "app"),
    ("request.auth.principal", "https://issuer.example.com/user-1"),
    (
        "request.auth.raw_claims",
        r#"{"aud":["shop","api"],"azp":"app","groups":["a","b"],"iss":"https://issuer.example.com","sub":"user-1"}"#,
    ),
    ("request.host", "Shop.example.com:8443"),
    ("request.method", "POST"),
    ("request.path", "/token/a;b/c?key=k-1&x=1&x=2"),
    ("request.query_params", "stringmap[key:k-1 x:1]"),
    ("request.referer", "https://example.com/from"),
    ("request.scheme", "https"),
    ("request.size", "5"),
    ("request.url_path", "/token/a;b/c"),
    ("request.useragent", "tests/1"),
];

/// The attributes of the workload behind Envoy, from the node of the bootstrap.
const NODE: &[(&str, &str)] = &[
    ("context.reporter.uid", "kubernetes://shop-1.shop"),
    ("destination.name", "shop-1"),
    ("destination.owner", "kubernetes://apis/apps/v1/namespaces/shop/deployments/shop"),
    ("destination.uid", "kubernetes://shop-1.shop"),
    ("destination.workload.name", "shop"),
    ("destination.workload.namespace", "shop"),
];

#[test]
fn a_check_of_a_request() {
    let attributes = of_check("request");
    assert_has(&attributes, CONNECTION);
    assert_has(&attributes, REQUEST);
    // Envoy adds the address of the peer to `x-forwarded-for`, or its own if the peer is local.
    assert_eq!(attributes["origin.ip"], header(&attributes, "x-forwarded-for").rsplit(',').next().unwrap());
    // The metadata of the route; the context extension is the namespace.
    assert_has(&attributes, &[("my.count", "5"), ("connection.requested_server_name", "localhost")]);
    // Envoy chose the id; the client sent another.
    assert_eq!(attributes["request.id"], header(&attributes, "x-request-id"));
    assert_ne!(attributes["request.id"], "chosen");
    assert_eq!(attributes["request.time"], attributes["context.timestamp"]);
    for (name, value) in
        [("cookie", "a=1,b=2"), ("x-tag", "one,two"), (":path", "/token/a;b/c?key=k-1&x=1&x=2")]
    {
        assert_eq!(header(&attributes, name), value);
    }
    for name in ["source.port", "destination.port"] {
        assert!(attributes[name].parse::<u16>().unwrap() > 0, "{name}");
    }
}

/// A header of a check, which has those of the recording only: none has a space in its value.
fn header<'a>(attributes: &'a Attributes, name: &str) -> &'a str {
    let headers = attributes["request.headers"].trim_start_matches("stringmap[").trim_end_matches(']');
    let mut headers = headers.split(' ');
    headers.find_map(|header| header.strip_prefix(name)?.strip_prefix(':')).expect(name)
}

#[test]
fn a_check_of_a_request_with_nothing_but_a_path() {
    let attributes = of_check("least request");
    assert_has(&attributes, CONNECTION);
    assert_has(
        &attributes,
        &[("request.path", "/denied"), ("request.url_path", "/denied"), ("request.size", "0")],
    );
    for name in [
        "request.referer",
        "request.useragent",
        "request.api_key",
        "request.query_params",
        "request.auth.principal",
    ] {
        assert_eq!(attributes.get(name), None, "{name}");
    }
}

#[test]
fn a_check_of_a_call_of_grpc() {
    assert_has(
        &of_check("request of gRPC"),
        &[("context.protocol", "grpc"), ("request.path", "/grpc/Method")],
    );
}

#[test]
fn a_check_of_a_connection() {
    let attributes = of_check("connection");
    assert_has(&attributes, CONNECTION);
    let expected = [
        ("connection.event", "open"),
        ("connection.requested_server_name", "localhost"),
        ("context.protocol", "tcp"),
        ("destination.service.host", "localhost"),
        ("origin.ip", "127.0.0.1"),
    ];
    assert_has(&attributes, &expected);
    assert!(attributes.keys().all(|name| !name.starts_with("request.")), "{attributes:?}");
}

#[test]
fn a_descriptor() {
    let request: RateLimitRequest = message("rate limit");
    assert_eq!(request.domain, "shop/per-user");
    let [descriptor] = &request.descriptors[..] else { panic!("{request:?}") };
    let bag = descriptor_attributes(&request.domain, None, descriptor, Bag::new(vocabulary())).unwrap();
    let path = "/token/a;b/c?key=k-1&x=1&x=2";
    assert_has(
        &all(&bag),
        &[
            ("ratelimit.domain", "shop/per-user"),
            (
                "ratelimit.descriptor",
                &format!("stringmap[decision_id:d-1 quota:per-user request.path:{path} user:user-1]"),
            ),
            ("request.path", path),
        ],
    );
}

#[test]
fn white_space_around_values_of_a_descriptor_is_not_part_of_them() {
    let RateLimitRequest { domain, mut descriptors, .. } = message("rate limit");
    let descriptor = &mut descriptors[0];
    let attributes = |descriptor: &RateLimitDescriptor| {
        let bag = descriptor_attributes(&domain, None, descriptor, Bag::new(vocabulary())).unwrap();
        let mut attributes = all(&bag);
        attributes.remove("context.time");
        attributes
    };
    let plain = attributes(descriptor);
    for entry in &mut descriptor.entries {
        entry.value = format!(" \t{}\t ", entry.value);
    }
    assert_eq!(attributes(descriptor), plain, "upstreams read such headers alike");
}

#[test]
fn a_log_of_a_request() {
    let attributes = of_http_log("log of a request");
    assert_has(&attributes, CONNECTION);
    assert_has(&attributes, REQUEST);
    assert_has(&attributes, NODE);
    let expected = [
        ("check.decision_id", "d-1"),
        ("check.rules", "paths.rule.shop"),
        ("context.proxy_error_code", "-"),
        // The custom tag.
        ("my.count", "7"),
        ("origin.ip", "127.0.0.1"),
        ("response.code", "200"),
    ];
    assert_has(&attributes, &expected);
    assert_eq!(attributes.get("check.error_code"), None);
    assert_eq!(attributes["request.id"], of_check("request")["request.id"]);
    for (body, all) in [("request.size", "request.total_size"), ("response.size", "response.total_size")] {
        let [body, all] = [body, all].map(|name| attributes[name].parse::<u64>().unwrap());
        assert!(0 < body && body < all);
    }
    assert!(attributes["request.time"] < attributes["response.time"]);
    assert!(attributes["response.duration"].ends_with("ms"));
}

#[test]
fn a_log_of_a_denied_request() {
    let expected = [
        ("check.error_code", "7"),
        ("check.error_message", "paths.handler.shop:not here"),
        ("context.proxy_error_code", "UAEX"),
        ("response.code", "403"),
    ];
    assert_has(&of_http_log("log of a denied request"), &expected);
}

#[test]
fn a_log_of_a_call_of_grpc() {
    let expected = [
        ("context.protocol", "grpc"),
        ("response.grpc_status", "5"),
        ("response.grpc_message", "nothing"),
        ("response.headers", "stringmap[grpc-message:nothing grpc-status:5]"),
    ];
    assert_has(&of_http_log("log of gRPC"), &expected);
}

#[test]
fn a_log_of_a_request_that_no_upstream_answered() {
    let expected = [("context.proxy_error_code", "UH"), ("response.code", "503")];
    assert_has(&of_http_log("log without an upstream"), &expected);
}

#[test]
fn logs_of_a_connection() {
    let of = |name| of_log("log of a new connection", name);
    let (open, close) = (of("log of a new connection"), of("log of a connection"));
    let expected = [("connection.event", "open"), ("connection.received.bytes_total", "0")];
    assert_has(&open, &expected);
    assert_has(&close, CONNECTION);
    assert_has(&close, NODE);
    let expected = [
        ("check.decision_id", "d-1"),
        ("check.rules", "paths.rule.shop"),
        ("connection.event", "close"),
        ("context.protocol", "tcp"),
        ("my.count", "7"),
    ];
    assert_has(&close, &expected);
    assert_eq!(open["connection.id"], close["connection.id"]);
    // `GET /over/tcp` with a host, and the answer.
    assert_eq!(close["connection.received.bytes_total"], "50");
    assert!(close["connection.sent.bytes_total"].parse::<u64>().unwrap() > 0);
    assert!(close.contains_key("connection.duration") && !open.contains_key("connection.duration"));
}
