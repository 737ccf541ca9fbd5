//! The table of attributes of access logs in docs/envoy.md, row by row.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use mixer_adapter_core::proto::Any;
use mixer_adapter_engine::attribute::{AttributeValue, Bag};
use prost::Message as _;
use prost_types::{Duration, Struct, Timestamp, Value, value::Kind};

use super::{LogSender, http_attributes, tcp_attributes, tests::vocabulary};
use crate::{
    options::MappingOptions,
    proto::envoy::{
        config::core::v3::{Address, Metadata, Node, RequestMethod, SocketAddress, address, socket_address},
        data::accesslog::v3::{
            AccessLogCommon, AccessLogType, ConnectionProperties, HttpAccessLogEntry, HttpRequestProperties,
            HttpResponseProperties, ResponseFlags, TcpAccessLogEntry, TlsProperties,
            response_flags::Unauthorized,
            tls_properties::{
                CertificateProperties,
                certificate_properties::{SubjectAltName, subject_alt_name::San},
            },
        },
    },
};

type Attributes = BTreeMap<String, AttributeValue>;

fn all(bag: &Bag) -> Attributes {
    let values = bag.vocabulary().iter().map(|declared| (declared.name.to_string(), bag.at(declared.slot)));
    values.filter_map(|(name, value)| Some((name, value?.clone()))).collect()
}

fn request(entry: &HttpAccessLogEntry) -> Attributes {
    request_of(entry, &LogSender::default())
}

fn request_of(entry: &HttpAccessLogEntry, sender: &LogSender) -> Attributes {
    all(&http_attributes(entry, sender, Bag::new(vocabulary()), &MappingOptions::default()).unwrap())
}

fn connection(entry: &TcpAccessLogEntry, sender: &LogSender) -> Attributes {
    all(&tcp_attributes(entry, sender, Bag::new(vocabulary()), &MappingOptions::default()).unwrap())
}

fn with(common: AccessLogCommon) -> HttpAccessLogEntry {
    HttpAccessLogEntry { common_properties: Some(common), ..HttpAccessLogEntry::default() }
}

fn assert_has(attributes: &Attributes, expected: &[(&str, AttributeValue)], absent: &[&str]) {
    for (name, value) in expected {
        assert_eq!(attributes.get(*name), Some(value), "{name}");
    }
    for name in absent {
        assert_eq!(attributes.get(*name), None, "{name}");
    }
}

fn socket(address: &str, port: u32) -> Option<Address> {
    let socket = SocketAddress {
        address: address.to_owned(),
        port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
    };
    Some(Address { address: Some(address::Address::SocketAddress(socket)) })
}

fn ip(text: &str) -> AttributeValue {
    text.parse::<IpAddr>().unwrap().into()
}

fn texts(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn fields(fields: &[(&str, Kind)]) -> Struct {
    let value = |kind: &Kind| Value { kind: Some(kind.clone()) };
    Struct { fields: fields.iter().map(|(name, kind)| ((*name).to_owned(), value(kind))).collect() }
}

fn text(value: &str) -> Kind {
    Kind::StringValue(value.to_owned())
}

fn node() -> Node {
    let metadata = fields(&[
        ("NAME", text("web-1")),
        ("NAMESPACE", text("shop")),
        ("WORKLOAD_NAME", text("web")),
        ("OWNER", text("kubernetes://apis/apps/v1/namespaces/shop/deployments/web")),
        ("LABELS", Kind::StructValue(fields(&[("app", text("web"))]))),
    ]);
    Node {
        id: "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local".to_owned(),
        metadata: Some(metadata),
        ..Node::default()
    }
}

#[test]
fn of_an_empty_entry_nothing_is_there() {
    assert!(request(&HttpAccessLogEntry::default()).is_empty());
    let names: Vec<String> =
        connection(&TcpAccessLogEntry::default(), &LogSender::default()).into_keys().collect();
    assert_eq!(names, ["context.protocol"]);
}

#[test]
fn addresses_are_those_of_the_connection_and_the_origin_is_the_client() {
    let common = AccessLogCommon {
        downstream_remote_address: socket("6.6.6.6", 0),
        downstream_direct_remote_address: socket("10.0.0.1", 40000),
        downstream_local_address: socket("10.0.0.2", 8080),
        upstream_remote_address: socket("10.0.0.3", 9090),
        ..AccessLogCommon::default()
    };
    let expected = [
        ("source.ip", ip("10.0.0.1")),
        ("source.port", 40000.into()),
        ("origin.ip", ip("6.6.6.6")),
        ("destination.ip", ip("10.0.0.2")),
        ("destination.port", 8080.into()),
        ("context.reporter.kind", "inbound".into()),
    ];
    assert_has(&request(&with(common.clone())), &expected, &[]);
    let outbound =
        AccessLogCommon { upstream_cluster: "outbound|80||Web.shop.svc.cluster.local".to_owned(), ..common };
    let expected = [
        ("destination.ip", ip("10.0.0.3")),
        ("destination.port", 9090.into()),
        ("context.reporter.kind", "outbound".into()),
        ("destination.service.host", "web.shop.svc.cluster.local".into()),
        ("destination.service.name", "web".into()),
        ("destination.service.namespace", "shop".into()),
    ];
    assert_has(&request(&with(outbound)), &expected, &[]);
}

#[test]
fn a_cluster_that_is_not_istios_names_no_host() {
    for cluster in ["upstream", "inbound|80||", "a|b"] {
        let common = AccessLogCommon { upstream_cluster: cluster.to_owned(), ..AccessLogCommon::default() };
        let properties =
            HttpRequestProperties { authority: "A.example.com:80".to_owned(), ..Default::default() };
        let entry = HttpAccessLogEntry { request: Some(properties), ..with(common) };
        assert_has(&request(&entry), &[("destination.service.host", "a.example.com".into())], &[]);
    }
}

fn certificate(sans: Vec<San>, subject: &str) -> Option<CertificateProperties> {
    let subject_alt_name = sans.into_iter().map(|san| SubjectAltName { san: Some(san) }).collect();
    Some(CertificateProperties { subject_alt_name, subject: subject.to_owned() })
}

#[test]
fn principals_are_the_first_uri_of_a_certificate_else_its_subject() {
    let uri = |uri: &str| San::Uri(uri.to_owned());
    let tls = |peer, local| TlsProperties {
        tls_sni_hostname: "shop.example.com".to_owned(),
        peer_certificate_properties: peer,
        local_certificate_properties: local,
    };
    let entry = |tls| with(AccessLogCommon { tls_properties: Some(tls), ..AccessLogCommon::default() });
    let sans = vec![San::Dns("a".to_owned()), uri("spiffe://td/ns/clients/sa/app"), uri("spiffe://td/other")];
    let both = tls(certificate(sans, "CN=app"), certificate(vec![uri("spiffe://td/ns/shop/sa/web")], ""));
    let expected = [
        ("source.principal", "td/ns/clients/sa/app".into()),
        ("source.user", "td/ns/clients/sa/app".into()),
        ("source.namespace", "clients".into()),
        ("source.serviceAccount", "app".into()),
        ("destination.principal", "td/ns/shop/sa/web".into()),
        ("destination.namespace", "shop".into()),
        ("destination.serviceAccount", "web".into()),
        ("connection.mtls", true.into()),
        ("connection.requested_server_name", "shop.example.com".into()),
    ];
    assert_has(&request(&entry(both)), &expected, &[]);
    let subject = tls(certificate(Vec::new(), "CN=app"), None);
    assert_has(
        &request(&entry(subject)),
        &[("source.principal", "CN=app".into())],
        &["destination.principal"],
    );
    assert_has(
        &request(&entry(tls(None, None))),
        &[("connection.mtls", false.into())],
        &["source.principal"],
    );
}

#[test]
fn the_workload_is_that_of_the_node_on_its_side() {
    let sender = LogSender::new(Some(&node()), Arc::default());
    let values: [(&str, AttributeValue); 7] = [
        ("owner", "kubernetes://apis/apps/v1/namespaces/shop/deployments/web".into()),
        ("name", "web-1".into()),
        ("uid", "kubernetes://web-1.shop".into()),
        ("namespace", "shop".into()),
        ("workload.name", "web".into()),
        ("workload.namespace", "shop".into()),
        ("labels", [("app", "web")].into()),
    ];
    for (cluster, side, other) in
        [("inbound|80||", "destination", "source"), ("outbound|80||db.other", "source", "destination")]
    {
        let common = AccessLogCommon { upstream_cluster: cluster.to_owned(), ..AccessLogCommon::default() };
        let attributes = request_of(&with(common), &sender);
        assert_eq!(attributes["context.reporter.uid"], "kubernetes://web-1.shop".into());
        for (name, value) in &values {
            assert_eq!(attributes.get(&format!("{side}.{name}")), Some(value), "{side}.{name}");
            assert_eq!(attributes.get(&format!("{other}.{name}")), None, "{other}.{name}");
        }
    }
    let plain = LogSender::new(Some(&Node { id: "front".to_owned(), ..Node::default() }), Arc::default());
    assert_has(
        &request_of(&with(AccessLogCommon::default()), &plain),
        &[],
        &["context.reporter.uid", "destination.name", "destination.namespace"],
    );
}

#[test]
fn the_workloads_of_both_sides_are_those_that_envoys_of_istio_exchange() {
    let peer = |name: &str, namespace: &str| {
        let labels = Kind::StructValue(fields(&[("app", text("db"))]));
        let peer = fields(&[
            ("name", text(name)),
            ("namespace", text(namespace)),
            ("workload", text("db")),
            ("labels", labels),
        ]);
        Any {
            type_url: "type.googleapis.com/google.protobuf.Struct".to_owned(),
            value: peer.encode_to_vec().into(),
        }
    };
    let values: [(&str, AttributeValue); 6] = [
        ("name", "db-0".into()),
        ("uid", "kubernetes://db-0.data".into()),
        ("namespace", "data".into()),
        ("workload.name", "db".into()),
        ("workload.namespace", "data".into()),
        ("labels", [("app", "db")].into()),
    ];
    for (object, side) in [
        ("downstream_peer", "source"),
        ("wasm.downstream_peer", "source"),
        ("upstream_peer", "destination"),
        ("wasm.upstream_peer", "destination"),
    ] {
        let common = AccessLogCommon {
            filter_state_objects: [(object.to_owned(), peer("db-0", "data"))].into(),
            ..AccessLogCommon::default()
        };
        let attributes = request(&with(common));
        for (name, value) in &values {
            assert_eq!(attributes.get(&format!("{side}.{name}")), Some(value), "{object}: {side}.{name}");
        }
    }
    // What the sender says of itself, and certificates say of clients, takes precedence.
    let tls = TlsProperties {
        peer_certificate_properties: certificate(
            vec![San::Uri("spiffe://td/ns/clients/sa/app".to_owned())],
            "",
        ),
        ..TlsProperties::default()
    };
    let objects = [("downstream_peer", peer("a", "forged")), ("upstream_peer", peer("b", "forged"))];
    let common = AccessLogCommon {
        tls_properties: Some(tls),
        filter_state_objects: objects.map(|(name, peer)| (name.to_owned(), peer)).into(),
        ..AccessLogCommon::default()
    };
    let sender = LogSender::new(Some(&node()), Arc::default());
    let expected = [("source.namespace", "clients".into()), ("destination.namespace", "shop".into())];
    assert_has(&request_of(&with(common), &sender), &expected, &[]);
    // Objects of other types say nothing.
    let other =
        Any { type_url: "type.googleapis.com/google.protobuf.StringValue".to_owned(), ..peer("a", "b") };
    let common = AccessLogCommon {
        filter_state_objects: [("downstream_peer".to_owned(), other)].into(),
        ..AccessLogCommon::default()
    };
    assert_has(&request(&with(common)), &[], &["source.name", "source.namespace"]);
}

#[test]
fn a_forwarded_certificate_is_the_clients_only_if_it_is_trusted_and_the_connection_has_none() {
    let request_headers =
        texts(&[("x-forwarded-client-cert", "By=spiffe://td/gw;URI=spiffe://td/ns/shop/sa/web")]);
    let properties = HttpRequestProperties { request_headers, ..HttpRequestProperties::default() };
    let entry = |tls_properties| HttpAccessLogEntry {
        request: Some(properties.clone()),
        ..with(AccessLogCommon { tls_properties, ..AccessLogCommon::default() })
    };
    let tls = TlsProperties {
        peer_certificate_properties: certificate(vec![San::Uri("spiffe://td/own".to_owned())], ""),
        ..TlsProperties::default()
    };
    let mut options = MappingOptions::default();
    let attributes = |entry: &HttpAccessLogEntry, options: &MappingOptions| {
        all(&http_attributes(entry, &LogSender::default(), Bag::new(vocabulary()), options).unwrap())
    };
    let (plain, with_certificate) = (entry(None), entry(Some(tls)));
    assert_has(&attributes(&plain, &options), &[], &["source.principal"]);
    options.trust_forwarded_client_cert = true;
    let expected = [("source.principal", "td/ns/shop/sa/web".into()), ("source.namespace", "shop".into())];
    assert_has(&attributes(&plain, &options), &expected, &[]);
    assert_has(&attributes(&with_certificate, &options), &[("source.principal", "td/own".into())], &[]);
}

#[test]
fn a_request_that_could_not_be_checked_has_the_reason_of_envoy() {
    for (details, message) in [
        ("ext_authz_error", Some("ext_authz_error")),
        ("ext_authz_denied", Some("ext_authz_denied")),
        ("via_upstream", None),
    ] {
        let response = Some(HttpResponseProperties {
            response_code_details: details.to_owned(),
            ..HttpResponseProperties::default()
        });
        let entry = HttpAccessLogEntry { response, ..HttpAccessLogEntry::default() };
        let expected = message.map(AttributeValue::from);
        assert_eq!(request(&entry).get("check.error_message"), expected.as_ref(), "{details}");
    }
}

#[test]
fn the_request_is_that_of_the_client() {
    let properties = HttpRequestProperties {
        request_method: RequestMethod::Post.into(),
        scheme: "https".to_owned(),
        authority: "shop.example.com".to_owned(),
        path: "/rewritten".to_owned(),
        original_path: "//a/%2f?key=k".to_owned(),
        user_agent: "curl".to_owned(),
        referer: "http://there/".to_owned(),
        forwarded_for: "6.6.6.6".to_owned(),
        request_id: "id-1".to_owned(),
        request_headers_bytes: 100,
        request_body_bytes: 7,
        request_headers: texts(&[("content-type", "application/grpc")]),
    };
    let common = AccessLogCommon { stream_id: "stream".to_owned(), ..AccessLogCommon::default() };
    let entry = HttpAccessLogEntry { request: Some(properties), ..with(common.clone()) };
    let headers = [
        (":authority", "shop.example.com"),
        (":method", "POST"),
        (":path", "//a/%2f?key=k"),
        ("content-type", "application/grpc"),
        ("referer", "http://there/"),
        ("user-agent", "curl"),
        ("x-forwarded-for", "6.6.6.6"),
        ("x-request-id", "id-1"),
    ];
    let expected = [
        ("request.id", "id-1".into()),
        ("request.method", "POST".into()),
        ("request.scheme", "https".into()),
        ("request.host", "shop.example.com".into()),
        ("request.path", "//a/%2f?key=k".into()),
        ("request.url_path", "//a/%2f".into()),
        ("request.query_params", [("key", "k")].into()),
        ("request.api_key", "k".into()),
        ("request.useragent", "curl".into()),
        ("request.referer", "http://there/".into()),
        ("request.size", 7.into()),
        ("request.total_size", 107.into()),
        ("request.headers", headers.into()),
        ("context.protocol", "grpc".into()),
    ];
    assert_has(&request(&entry), &expected, &[]);
    let unnamed = HttpAccessLogEntry { request: Some(HttpRequestProperties::default()), ..with(common) };
    assert_has(
        &request(&unnamed),
        &[("request.id", "stream".into()), ("context.protocol", "http".into())],
        &["request.method", "request.host", "request.path", "request.api_key"],
    );
}

#[test]
fn times_and_durations_begin_at_the_start() {
    let start = Timestamp { seconds: 1_557_126_489, nanos: 900_000_000 };
    let after = |seconds, nanos| Some(Duration { seconds, nanos });
    let common = AccessLogCommon {
        start_time: Some(start),
        time_to_first_upstream_rx_byte: after(2, 200_000_000),
        time_to_first_downstream_tx_byte: after(9, 0),
        duration: after(3, 500_000_000),
        ..AccessLogCommon::default()
    };
    let first_byte = Timestamp { seconds: 1_557_126_492, nanos: 100_000_000 };
    let expected = [
        ("request.time", start.into()),
        ("context.time", start.into()),
        ("context.timestamp", start.into()),
        ("response.time", first_byte.into()),
        ("response.duration", AttributeValue::Duration(3_500_000_000)),
    ];
    assert_has(&request(&with(common.clone())), &expected, &[]);
    // A response of Envoy's own.
    let local = AccessLogCommon {
        time_to_first_upstream_rx_byte: None,
        time_to_last_downstream_tx_byte: after(10, 0),
        duration: None,
        ..common
    };
    let sent = Timestamp { seconds: 1_557_126_498, nanos: 900_000_000 };
    let expected =
        [("response.time", sent.into()), ("response.duration", AttributeValue::Duration(10_000_000_000))];
    assert_has(&request(&with(local)), &expected, &[]);
}

#[test]
fn the_response_has_its_code_sizes_headers_and_status_of_grpc() {
    let response = HttpResponseProperties {
        response_code: Some(200),
        response_headers_bytes: 50,
        response_body_bytes: 8,
        response_headers: texts(&[("grpc-status", "1"), ("server", "x")]),
        response_trailers: texts(&[("grpc-status", "8"), ("grpc-message", "slow down")]),
        ..HttpResponseProperties::default()
    };
    let entry = HttpAccessLogEntry { response: Some(response), ..HttpAccessLogEntry::default() };
    let headers = [("grpc-message", "slow down"), ("grpc-status", "8"), ("server", "x")];
    let expected = [
        ("response.code", 200.into()),
        ("response.size", 8.into()),
        ("response.total_size", 58.into()),
        ("response.headers", headers.into()),
        ("response.grpc_status", "8".into()),
        ("response.grpc_message", "slow down".into()),
    ];
    assert_has(&request(&entry), &expected, &[]);
    let none = HttpAccessLogEntry {
        response: Some(HttpResponseProperties::default()),
        ..HttpAccessLogEntry::default()
    };
    assert_has(&request(&none), &[], &["response.code", "response.headers", "response.grpc_status"]);
}

#[test]
fn flags_have_their_short_names_in_the_order_of_envoy() {
    for (flags, names) in [
        (ResponseFlags::default(), "-"),
        (ResponseFlags { rate_limited: true, ..ResponseFlags::default() }, "RL"),
        (
            ResponseFlags {
                no_healthy_upstream: true,
                unauthorized_details: Some(Unauthorized { reason: 1 }),
                downstream_remote_reset: true,
                ..ResponseFlags::default()
            },
            "UH,UAEX,DR",
        ),
    ] {
        let common = AccessLogCommon { response_flags: Some(flags), ..AccessLogCommon::default() };
        assert_has(&request(&with(common)), &[("context.proxy_error_code", names.into())], &[]);
    }
}

#[test]
fn the_decision_is_that_of_our_check() {
    let decision = fields(&[
        ("decision_id", text("d-1")),
        ("rules", text("r1.rule.shop")),
        ("code", Kind::NumberValue(7.0)),
        ("message", text("no")),
        ("source_principal", text("client.example.com")),
    ]);
    for filter in
        ["envoy.filters.http.ext_authz", "envoy.filters.network.ext_authz", "envoy.filters.http.ratelimit"]
    {
        let own = fields(&[("mixer_adapter", Kind::StructValue(decision.clone()))]);
        let metadata = Metadata { filter_metadata: [(filter.to_owned(), own)].into() };
        let common = AccessLogCommon { metadata: Some(metadata), ..AccessLogCommon::default() };
        let expected = [
            ("check.decision_id", "d-1".into()),
            ("check.rules", "r1.rule.shop".into()),
            ("check.error_code", 7.into()),
            ("check.error_message", "no".into()),
            ("source.principal", "client.example.com".into()),
        ];
        assert_has(&request(&with(common)), &expected, &[]);
    }
}

#[test]
fn custom_tags_and_metadata_set_declared_attributes() {
    let own = fields(&[("my.count", Kind::NumberValue(1.0)), ("source.name", text("a"))]);
    let common = AccessLogCommon {
        metadata: Some(Metadata { filter_metadata: [("mixer_adapter".to_owned(), own)].into() }),
        custom_tags: texts(&[("my.count", "2"), ("unknown", "x"), ("destination.service.host", "db")]),
        ..AccessLogCommon::default()
    };
    let expected = [
        ("my.count", 2.into()),
        ("source.name", "a".into()),
        ("destination.service.host", "db".into()),
        ("destination.service.name", "db".into()),
    ];
    assert_has(&request(&with(common)), &expected, &["unknown"]);
    let wrong = AccessLogCommon { custom_tags: texts(&[("my.count", "x")]), ..AccessLogCommon::default() };
    let options = MappingOptions::default();
    let error =
        http_attributes(&with(wrong), &LogSender::default(), Bag::new(vocabulary()), &options).unwrap_err();
    assert_eq!(error.to_string(), r#"custom tag my.count: "x" is not a valid INT64"#);
}

#[test]
fn bytes_of_a_connection_are_those_since_its_last_entry() {
    let sender = LogSender::default();
    let start = Timestamp { seconds: 100, nanos: 0 };
    let entry = |kind: AccessLogType, id: &str, received_bytes, sent_bytes| TcpAccessLogEntry {
        common_properties: Some(AccessLogCommon {
            stream_id: id.to_owned(),
            access_log_type: kind.into(),
            start_time: Some(start),
            duration: Some(Duration { seconds: 5, nanos: 0 }),
            ..AccessLogCommon::default()
        }),
        connection_properties: Some(ConnectionProperties { received_bytes, sent_bytes }),
    };
    for (kind, id, totals, event, bytes) in [
        (AccessLogType::TcpConnectionStart, "a", (0, 0), "open", (0, 0)),
        (AccessLogType::TcpPeriodic, "a", (10, 100), "continue", (10, 100)),
        (AccessLogType::TcpPeriodic, "b", (7, 70), "continue", (7, 70)),
        (AccessLogType::TcpPeriodic, "a", (10, 150), "continue", (0, 50)),
        (AccessLogType::TcpConnectionEnd, "a", (30, 150), "close", (20, 0)),
        // Another connection of that id.
        (AccessLogType::TcpConnectionEnd, "a", (5, 6), "close", (5, 6)),
    ] {
        let attributes = connection(&entry(kind, id, totals.0, totals.1), &sender);
        let expected = [
            ("context.protocol", "tcp".into()),
            ("context.time", Timestamp { seconds: 105, nanos: 0 }.into()),
            ("connection.id", id.into()),
            ("connection.event", event.into()),
            ("connection.received.bytes", bytes.0.into()),
            ("connection.sent.bytes", bytes.1.into()),
            ("connection.received.bytes_total", (totals.0 as i64).into()),
            ("connection.sent.bytes_total", (totals.1 as i64).into()),
        ];
        assert_has(&attributes, &expected, &["request.time"]);
        let length = attributes.get("connection.duration");
        assert_eq!(length.is_some(), event == "close", "{event}");
    }
    let untyped = connection(&entry(AccessLogType::NotSet, "c", 1, 1), &sender);
    assert_has(
        &untyped,
        &[("connection.duration", AttributeValue::Duration(5_000_000_000))],
        &["connection.event"],
    );
}
