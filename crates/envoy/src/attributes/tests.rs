//! The table of attributes in docs/envoy.md, row by row.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use mixer_adapter_core::value::ValueType;
use mixer_adapter_engine::attribute::{AttributeValue, Bag, UsedSlots, Vocabulary};
use prost_types::{ListValue, Struct, Timestamp, Value, value::Kind};

use super::{AttributeError, check::check_attributes};
use crate::{
    options::MappingOptions,
    proto::envoy::{
        config::core::v3::{
            Address, HeaderMap, HeaderValue, Metadata, SocketAddress, address, socket_address,
        },
        service::auth::v3::{
            AttributeContext,
            attribute_context::{HttpRequest, Peer, Request, TlsSession},
        },
    },
};

pub(super) fn vocabulary() -> Arc<Vocabulary> {
    let mut vocabulary = Vocabulary::new();
    vocabulary.declare_standard();
    for (name, value_type) in [
        ("request.body", ValueType::String),
        ("request.body_truncated", ValueType::Bool),
        ("my.filter", ValueType::StringMap),
        ("my.count", ValueType::Int64),
        ("check.decision_id", ValueType::String),
        ("check.rules", ValueType::String),
        ("source.port", ValueType::Int64),
        ("ratelimit.domain", ValueType::String),
        ("ratelimit.descriptor", ValueType::StringMap),
    ] {
        vocabulary.declare(name, value_type).unwrap();
    }
    Arc::new(vocabulary)
}

type Attributes = BTreeMap<String, AttributeValue>;

fn mapped(context: &AttributeContext, options: &MappingOptions) -> Result<Attributes, AttributeError> {
    let bag = check_attributes(context, Bag::new(vocabulary()), options)?;
    let values = bag.vocabulary().iter().map(|declared| (declared.name.to_string(), bag.at(declared.slot)));
    let mut all: Attributes = values.filter_map(|(name, value)| Some((name, value?.clone()))).collect();
    // The time of the test.
    assert!(matches!(all.remove("context.time"), Some(AttributeValue::Timestamp(_))));
    Ok(all)
}

fn attributes(context: &AttributeContext) -> Attributes {
    mapped(context, &MappingOptions::default()).unwrap()
}

fn http(http: HttpRequest) -> AttributeContext {
    let request = Request { time: None, http: Some(http) };
    AttributeContext { request: Some(request), ..AttributeContext::default() }
}

fn texts(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn with_headers(headers: &[(&str, &str)]) -> HttpRequest {
    HttpRequest { headers: texts(headers), ..HttpRequest::default() }
}

fn peer(address: &str, port: u32) -> Peer {
    let socket = SocketAddress {
        address: address.to_owned(),
        port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
    };
    let address = Address { address: Some(address::Address::SocketAddress(socket)) };
    Peer { address: Some(address), ..Peer::default() }
}

fn named(principal: &str) -> Peer {
    Peer { principal: principal.to_owned(), ..Peer::default() }
}

fn ip(text: &str) -> AttributeValue {
    text.parse::<IpAddr>().unwrap().into()
}

fn text(value: &str) -> Value {
    Value { kind: Some(Kind::StringValue(value.to_owned())) }
}

fn fields(fields: &[(&str, Value)]) -> Struct {
    Struct { fields: fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect() }
}

fn nested(values: Struct) -> Value {
    Value { kind: Some(Kind::StructValue(values)) }
}

fn metadata(filters: &[(&str, Struct)]) -> Option<Metadata> {
    let filters = filters.iter().map(|(name, values)| ((*name).to_owned(), values.clone()));
    Some(Metadata { filter_metadata: filters.collect() })
}

/// Checks that a message has these attributes, and none of the names.
fn assert_has(context: &AttributeContext, expected: &[(&str, AttributeValue)], absent: &[&str]) {
    let all = attributes(context);
    for (name, value) in expected {
        assert_eq!(all.get(*name), Some(value), "{name}");
    }
    for name in absent {
        assert_eq!(all.get(*name), None, "{name}");
    }
}

#[test]
fn of_an_empty_request_only_what_envoy_always_sends_is_there() {
    let names: Vec<String> = attributes(&http(HttpRequest::default())).into_keys().collect();
    assert_eq!(names, ["context.protocol", "context.reporter.kind", "request.headers", "request.size"]);
}

#[test]
fn addresses_are_those_of_the_connection() {
    let context = AttributeContext {
        source: Some(peer("10.0.0.1", 40000)),
        destination: Some(peer("::1", 8080)),
        ..http(HttpRequest::default())
    };
    let expected = [
        ("source.ip", ip("10.0.0.1")),
        ("source.port", 40000.into()),
        ("destination.ip", ip("::1")),
        ("destination.port", 8080.into()),
        ("origin.ip", ip("10.0.0.1")),
    ];
    assert_has(&context, &expected, &[]);
    let pipe = AttributeContext { source: Some(Peer::default()), ..http(HttpRequest::default()) };
    assert_has(&pipe, &[], &["source.ip", "source.port", "origin.ip"]);
}

#[test]
fn the_origin_is_the_address_before_those_of_trusted_proxies() {
    let list = "6.6.6.6, 7.7.7.7, 10.0.0.9";
    for (list, hops, origin) in [
        (list, 0, "10.0.0.9"),
        (list, 1, "7.7.7.7"),
        (list, 2, "6.6.6.6"),
        (list, 3, "10.0.0.1"),
        ("unknown", 0, "10.0.0.1"),
        ("", 0, "10.0.0.1"),
    ] {
        let context = AttributeContext {
            source: Some(peer("10.0.0.1", 1)),
            ..http(with_headers(&[("x-forwarded-for", list)]))
        };
        let options = MappingOptions { trusted_hops: hops, ..MappingOptions::default() };
        assert_eq!(mapped(&context, &options).unwrap()["origin.ip"], ip(origin), "{list} {hops}");
    }
}

#[test]
fn principals_are_named_without_the_scheme() {
    let context = AttributeContext {
        source: Some(named("spiffe://td/ns/clients/sa/app")),
        destination: Some(named("spiffe://td/ns/shop/sa/web")),
        ..http(HttpRequest::default())
    };
    let expected = [
        ("source.principal", "td/ns/clients/sa/app".into()),
        ("source.user", "td/ns/clients/sa/app".into()),
        ("source.namespace", "clients".into()),
        ("source.serviceAccount", "app".into()),
        ("connection.mtls", true.into()),
        ("destination.principal", "td/ns/shop/sa/web".into()),
        ("destination.namespace", "shop".into()),
        ("destination.serviceAccount", "web".into()),
    ];
    assert_has(&context, &expected, &[]);
}

#[test]
fn without_a_client_certificate_there_is_no_principal_that_could_match() {
    let context = AttributeContext { source: Some(named("")), ..http(HttpRequest::default()) };
    let absent = ["source.principal", "source.user", "source.namespace", "source.serviceAccount"];
    assert_has(&context, &[("connection.mtls", false.into())], &absent);
    let unnamed = Peer { certificate: "-----BEGIN".to_owned(), ..Peer::default() };
    let context = AttributeContext { source: Some(unnamed), ..http(HttpRequest::default()) };
    assert_has(&context, &[("connection.mtls", true.into())], &absent);
}

#[test]
fn a_forwarded_certificate_counts_only_if_it_is_trusted_and_there_is_no_other() {
    let headers = with_headers(&[("x-forwarded-client-cert", "Hash=1;URI=spiffe://td/ns/a/sa/b")]);
    let trusting = MappingOptions { trust_forwarded_client_cert: true, ..MappingOptions::default() };
    for (principal, options, expected) in [
        ("", &MappingOptions::default(), None),
        ("", &trusting, Some("td/ns/a/sa/b")),
        ("spiffe://td/peer", &trusting, Some("td/peer")),
    ] {
        let context = AttributeContext { source: Some(named(principal)), ..http(headers.clone()) };
        let all = mapped(&context, options).unwrap();
        assert_eq!(all.get("source.principal"), expected.map(AttributeValue::from).as_ref(), "{principal}");
    }
}

#[test]
fn labels_are_those_of_the_peers() {
    let labelled = |name: &str| Peer { labels: texts(&[("app", name)]), ..Peer::default() };
    let context = AttributeContext {
        source: Some(labelled("client")),
        destination: Some(labelled("web")),
        ..http(HttpRequest::default())
    };
    let expected =
        [("source.labels", [("app", "client")].into()), ("destination.labels", [("app", "web")].into())];
    assert_has(&context, &expected, &[]);
}

#[test]
fn the_request_is_as_it_was_sent() {
    let context = http(HttpRequest {
        id: "123".to_owned(),
        method: "GET".to_owned(),
        scheme: "https".to_owned(),
        host: "Shop.example.com:8443".to_owned(),
        path: "//a/%2f/..;x?key=k&user=1&user=2&q".to_owned(),
        ..with_headers(&[
            ("x-request-id", "id-1"),
            ("referer", "http://there/"),
            ("user-agent", "curl"),
            ("cookie", "a=1,b=2"),
        ])
    });
    let parameters = [("key", "k"), ("user", "1"), ("q", "")];
    let headers = [
        ("x-request-id", "id-1"),
        ("referer", "http://there/"),
        ("user-agent", "curl"),
        ("cookie", "a=1,b=2"),
    ];
    let expected = [
        ("request.id", "id-1".into()),
        ("request.method", "GET".into()),
        ("request.scheme", "https".into()),
        ("request.host", "Shop.example.com:8443".into()),
        ("destination.service.host", "shop.example.com".into()),
        ("destination.service.name", "shop.example.com".into()),
        ("request.path", "//a/%2f/..;x?key=k&user=1&user=2&q".into()),
        ("request.url_path", "//a/%2f/..;x".into()),
        ("request.query_params", parameters.into()),
        ("request.referer", "http://there/".into()),
        ("request.useragent", "curl".into()),
        ("request.headers", headers.into()),
        ("request.api_key", "k".into()),
        ("request.size", 0.into()),
        ("context.protocol", "http".into()),
        ("context.reporter.kind", "inbound".into()),
    ];
    assert_has(&context, &expected, &["destination.service.namespace", "connection.event"]);
}

#[test]
fn without_a_header_the_request_id_is_envoys_number() {
    let context = http(HttpRequest { id: "123".to_owned(), ..HttpRequest::default() });
    assert_has(&context, &[("request.id", "123".into())], &[]);
}

#[test]
fn the_size_of_a_body_that_is_not_sent_is_that_of_the_headers() {
    let size = |http: HttpRequest| attributes(&super::tests::http(http)).remove("request.size");
    let of = |protocol: &str, method: &str, headers: &[(&str, &str)]| {
        let (protocol, method) = (protocol.to_owned(), method.to_owned());
        size(HttpRequest { protocol, method, ..with_headers(headers) })
    };
    assert_eq!(of("HTTP/1.1", "POST", &[("content-length", "4000")]), Some(4_000.into()));
    assert_eq!(of("HTTP/1.1", "POST", &[]), Some(0.into()));
    assert_eq!(of("HTTP/2", "GET", &[]), Some(0.into()));
    for (protocol, headers) in [
        ("HTTP/1.1", &[("transfer-encoding", "chunked")][..]),
        ("HTTP/2", &[]),
        ("HTTP/3", &[("content-length", "-1")]),
        ("HTTP/1.1", &[("content-length", "many")]),
    ] {
        assert_eq!(of(protocol, "POST", headers), None, "{protocol} {headers:?}");
    }
    // Of a body that is sent, Envoy says how much of it has arrived.
    let sent = |partial: &str, length: &[(&str, &str)]| {
        let headers = [&[("x-envoy-auth-partial-body", partial)], length].concat();
        size(HttpRequest { size: 8_192, body: "part".to_owned(), ..with_headers(&headers) })
    };
    assert_eq!(sent("false", &[]), Some(8_192.into()));
    assert_eq!(sent("true", &[]), None);
    assert_eq!(sent("true", &[("content-length", "50000000")]), Some(50_000_000.into()));
    assert_eq!(size(HttpRequest { size: -1, ..HttpRequest::default() }), None);
}

#[test]
fn the_header_of_an_api_key_comes_before_parameters() {
    let path = |path: &str| HttpRequest { path: path.to_owned(), ..HttpRequest::default() };
    let header = HttpRequest { headers: texts(&[("x-api-key", "h")]), ..path("/?key=k&api_key=a") };
    for (request, key) in [
        (header, Some("h")),
        (path("/?api_key=a&key=k"), Some("k")),
        (path("/?api_key=a"), Some("a")),
        (path("/?key="), None),
    ] {
        let all = attributes(&http(request));
        assert_eq!(all.get("request.api_key"), key.map(AttributeValue::from).as_ref());
    }
}

#[test]
fn headers_without_changes_are_joined_like_the_others() {
    let header = |key: &str, value: &str, raw: &[u8]| HeaderValue {
        key: key.to_owned(),
        value: value.to_owned(),
        raw_value: raw.to_owned(),
    };
    let headers = vec![header("x", "", b"1"), header("y", "2", b""), header("x", "", b"\xff")];
    let context = http(HttpRequest { header_map: Some(HeaderMap { headers }), ..HttpRequest::default() });
    assert_has(&context, &[("request.headers", [("x", "1,\u{fffd}"), ("y", "2")].into())], &[]);
}

#[test]
fn the_protocol_is_grpc_by_the_content_type() {
    for (content_type, protocol) in [
        ("application/grpc", "grpc"),
        ("application/grpc+proto", "grpc"),
        ("application/grpc-web-text", "grpc"),
        ("application/json", "http"),
        ("", "http"),
    ] {
        let context = http(with_headers(&[("content-type", content_type)]));
        assert_has(&context, &[("context.protocol", protocol.into())], &[]);
    }
}

#[test]
fn a_body_is_there_as_far_as_envoy_sent_it() {
    let partial = |value: &str| texts(&[("x-envoy-auth-partial-body", value)]);
    let body = HttpRequest { body: "abc".to_owned(), headers: partial("true"), ..HttpRequest::default() };
    assert_has(&http(body), &[("request.body", "abc".into()), ("request.body_truncated", true.into())], &[]);
    let raw = HttpRequest { raw_body: b"abc".to_vec(), headers: partial("false"), ..HttpRequest::default() };
    assert_has(&http(raw), &[("request.body", "abc".into()), ("request.body_truncated", false.into())], &[]);
    let binary = HttpRequest { raw_body: vec![0xff], headers: partial("false"), ..HttpRequest::default() };
    assert_has(&http(binary), &[("request.body_truncated", false.into())], &["request.body"]);
    // The header of a client, where Envoy sends no bodies.
    let none = HttpRequest { headers: partial("true"), ..HttpRequest::default() };
    assert_has(&http(none), &[], &["request.body", "request.body_truncated"]);
}

#[test]
fn times_are_those_of_the_request() {
    let time = Timestamp { seconds: 1_557_126_489, nanos: 5_000 };
    let request = Request { time: Some(time), http: Some(HttpRequest::default()) };
    let context = AttributeContext { request: Some(request), ..AttributeContext::default() };
    assert_has(&context, &[("request.time", time.into()), ("context.timestamp", time.into())], &[]);
}

#[test]
fn a_connection_has_no_request() {
    let context = AttributeContext {
        source: Some(Peer { principal: "spiffe://td/a".to_owned(), ..peer("10.0.0.1", 1) }),
        destination: Some(Peer { service: "db.example.com".to_owned(), ..peer("10.0.0.2", 5432) }),
        ..AttributeContext::default()
    };
    let names: Vec<String> = attributes(&context).into_keys().collect();
    let expected = [
        "connection.event",
        "connection.mtls",
        "context.protocol",
        "context.reporter.kind",
        "destination.ip",
        "destination.port",
        "destination.service.host",
        "destination.service.name",
        "origin.ip",
        "source.ip",
        "source.port",
        "source.principal",
        "source.user",
    ];
    assert_eq!(names, expected);
    let values = [
        ("context.protocol", "tcp".into()),
        ("connection.event", "open".into()),
        ("destination.service.host", "db.example.com".into()),
        ("origin.ip", ip("10.0.0.1")),
    ];
    assert_has(&context, &values, &[]);
}

#[test]
fn the_server_name_is_that_of_the_tls_session() {
    let session = Some(TlsSession { sni: "a.example.com".to_owned() });
    let context = AttributeContext { tls_session: session.clone(), ..http(HttpRequest::default()) };
    assert_has(
        &context,
        &[("connection.requested_server_name", "a.example.com".into())],
        &["destination.service.host"],
    );
    let connection = AttributeContext { tls_session: session, ..AttributeContext::default() };
    assert_has(&connection, &[("destination.service.host", "a.example.com".into())], &[]);
}

#[test]
fn the_identity_of_a_token_is_that_of_its_claims() {
    let audiences = ListValue { values: vec![text("one"), text("two")] };
    let claims = fields(&[
        ("iss", text("https://issuer")),
        ("sub", text("alice")),
        ("aud", Value { kind: Some(Kind::ListValue(audiences)) }),
        ("azp", text("app")),
        ("exp", Value { kind: Some(Kind::NumberValue(1_900_000_000.0)) }),
        ("nested", nested(fields(&[("a", text("b"))]))),
    ]);
    let filter = fields(&[("payload", nested(claims))]);
    let context = AttributeContext {
        metadata_context: metadata(&[("envoy.filters.http.jwt_authn", filter)]),
        ..http(HttpRequest::default())
    };
    let raw = r#"{"aud":["one","two"],"azp":"app","exp":1900000000,"iss":"https://issuer","nested":{"a":"b"},"sub":"alice"}"#;
    let claims = [
        ("aud", "one,two"),
        ("azp", "app"),
        ("exp", "1900000000"),
        ("iss", "https://issuer"),
        ("sub", "alice"),
    ];
    let expected = [
        ("request.auth.principal", "https://issuer/alice".into()),
        ("request.auth.audiences", "one,two".into()),
        ("request.auth.presenter", "app".into()),
        ("request.auth.claims", claims.into()),
        ("request.auth.raw_claims", raw.into()),
    ];
    assert_has(&context, &expected, &[]);
}

#[test]
fn a_token_without_issuer_or_subject_has_no_principal() {
    for claims in [fields(&[("iss", text("issuer"))]), fields(&[("sub", text("alice"))])] {
        let filter = fields(&[("payload", nested(claims))]);
        let context = AttributeContext {
            metadata_context: metadata(&[("envoy.filters.http.jwt_authn", filter)]),
            ..http(HttpRequest::default())
        };
        assert_has(&context, &[], &["request.auth.principal"]);
    }
}

#[test]
fn istios_filter_names_attributes_itself() {
    let filter = fields(&[
        ("request.auth.principal", text("issuer/alice")),
        ("request.auth.claims", nested(fields(&[("group", text("admins"))]))),
    ]);
    let context = AttributeContext {
        metadata_context: metadata(&[("istio_authn", filter)]),
        ..http(HttpRequest::default())
    };
    let expected = [
        ("request.auth.principal", "issuer/alice".into()),
        ("request.auth.claims", [("group", "admins")].into()),
    ];
    assert_has(&context, &expected, &["request.auth.audiences"]);
}

#[test]
fn shadow_results_of_rbac_are_attributes() {
    let filter =
        fields(&[("shadow_engine_result", text("denied")), ("shadow_effective_policy_id", text("p1"))]);
    let context = AttributeContext {
        metadata_context: metadata(&[("envoy.filters.http.rbac", filter)]),
        ..http(HttpRequest::default())
    };
    let expected = [
        ("rbac.permissive.response_code", "denied".into()),
        ("rbac.permissive.effective_policy_id", "p1".into()),
    ];
    assert_has(&context, &expected, &[]);
}

#[test]
fn a_declared_filter_is_a_map_and_another_is_nothing() {
    let filter = fields(&[("a", text("b")), ("n", Value { kind: Some(Kind::NumberValue(1.5)) })]);
    let context = AttributeContext {
        metadata_context: metadata(&[("my.filter", filter.clone()), ("other.filter", filter)]),
        ..http(HttpRequest::default())
    };
    assert_has(&context, &[("my.filter", [("a", "b"), ("n", "1.5")].into())], &["other.filter"]);
}

#[test]
fn configuration_of_envoy_sets_any_declared_attribute_by_precedence() {
    let own = |value: &str| metadata(&[("mixer_adapter", fields(&[("my.count", text(value))]))]);
    let filter = AttributeContext { metadata_context: own("1"), ..http(HttpRequest::default()) };
    assert_has(&filter, &[("my.count", 1.into())], &[]);
    let route = AttributeContext { route_metadata_context: own("2"), ..filter };
    assert_has(&route, &[("my.count", 2.into())], &[]);
    let extensions = texts(&[
        ("my.count", "3"),
        ("context.reporter.kind", "outbound"),
        ("destination.labels", "a=b;c=d"),
        ("source.ip", "10.1.1.1"),
        ("unknown", "x"),
    ]);
    let context = AttributeContext { context_extensions: extensions, ..route };
    let expected = [
        ("my.count", 3.into()),
        ("context.reporter.kind", "outbound".into()),
        ("destination.labels", [("a", "b"), ("c", "d")].into()),
        ("source.ip", ip("10.1.1.1")),
    ];
    assert_has(&context, &expected, &["unknown"]);
}

#[test]
fn an_attribute_does_not_depend_on_which_others_are_used() {
    let headers = texts(&[("x-forwarded-for", "10.1.2.3"), ("x-request-id", "7"), ("x-api-key", "k")]);
    let request = HttpRequest {
        host: "web.shop.svc.cluster.local:80".to_owned(),
        path: "/a?b=c".to_owned(),
        ..HttpRequest { headers, ..HttpRequest::default() }
    };
    let context = AttributeContext {
        source: Some(named("spiffe://td/ns/shop/sa/web")),
        destination: Some(peer("10.0.0.18", 8443)),
        ..http(request)
    };
    let options = MappingOptions::default();
    let vocabulary = vocabulary();
    let all = check_attributes(&context, Bag::new(vocabulary.clone()), &options).unwrap();
    for declared in vocabulary.iter().filter(|declared| &**declared.name != "context.time") {
        let used = Arc::new(UsedSlots::new(&vocabulary, [declared.slot]));
        let bag = Bag::of_used(vocabulary.clone(), used);
        let bag = check_attributes(&context, bag, &options).unwrap();
        assert_eq!(bag.at(declared.slot), all.at(declared.slot), "{}", declared.name);
    }
}

#[test]
fn a_configured_value_of_another_type_is_an_error() {
    let context = AttributeContext {
        context_extensions: texts(&[("destination.port", "http")]),
        ..http(HttpRequest::default())
    };
    let error = mapped(&context, &MappingOptions::default()).unwrap_err().to_string();
    assert_eq!(error, r#"context extension destination.port: "http" is not a valid INT64"#);
}

#[test]
fn the_namespace_is_that_of_the_route_else_of_the_host_else_of_envoy() {
    let options = MappingOptions::default()
        .with_namespaces(vec![("shop.example.com".parse().unwrap(), "shop".to_owned())]);
    let context = |host: &str, extensions: &[(&str, &str)]| AttributeContext {
        destination: Some(named("spiffe://td/ns/envoy/sa/front")),
        context_extensions: texts(extensions),
        ..http(HttpRequest { host: host.to_owned(), ..HttpRequest::default() })
    };
    let route = [("destination.namespace", "route")];
    for (context, namespace) in [
        (context("SHOP.example.com:80", &route), "route"),
        (context("SHOP.example.com:80", &[]), "shop"),
        (context("other.example.com", &[]), "envoy"),
    ] {
        assert_eq!(mapped(&context, &options).unwrap()["destination.namespace"], namespace.into());
    }
}
