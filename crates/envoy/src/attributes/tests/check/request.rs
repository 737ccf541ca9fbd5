//! Connections and requests.

use super::*;

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
    let size = |http: HttpRequest| attributes(&super::http(http)).remove("request.size");
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
    // Envoy states how much of a sent body has arrived.
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
    let header = HttpRequest { headers: entries(&[("x-api-key", "h")]), ..path("/?key=k&api_key=a") };
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
    let partial = |value: &str| entries(&[("x-envoy-auth-partial-body", value)]);
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
fn white_space_around_values_is_not_part_of_them() {
    let spelled = HttpRequest {
        method: "GET ".to_owned(),
        host: "\tclosed.example ".to_owned(),
        path: " /admin\t".to_owned(),
        headers: entries(&[
            ("x-user", " guest\t "),
            ("user-agent", "a b "),
            ("x-empty", " "),
            ("x-api-key", "\tkey"),
        ]),
        ..HttpRequest::default()
    };
    let plain = HttpRequest {
        method: "GET".to_owned(),
        host: "closed.example".to_owned(),
        path: "/admin".to_owned(),
        headers: entries(&[
            ("x-user", "guest"),
            ("user-agent", "a b"),
            ("x-empty", ""),
            ("x-api-key", "key"),
        ]),
        ..HttpRequest::default()
    };
    // All of them, because the key in the cache is made of them.
    assert_eq!(attributes(&http(spelled)), attributes(&http(plain)));
    let header = |value: &str| HeaderValue {
        key: "x-user".to_owned(),
        raw_value: value.into(),
        ..HeaderValue::default()
    };
    let raw = |headers: Vec<HeaderValue>| HttpRequest {
        header_map: Some(HeaderMap { headers }),
        ..HttpRequest::default()
    };
    let spelled = raw(vec![header(" guest"), header("other\t")]);
    assert_eq!(attributes(&http(spelled)), attributes(&http(raw(vec![header("guest"), header("other")]))));
    // Other white space is part of a value.
    let value = attributes(&http(with_headers(&[("x-user", "\u{a0}guest")])))["request.headers"].to_string();
    assert!(value.contains("\u{a0}guest"), "{value}");
}

#[test]
fn a_request_of_an_invalid_host_has_no_attributes() {
    for host in ["closed.example:x", "closed.example:80:80", "a@closed.example"] {
        let context = http(HttpRequest { host: host.to_owned(), ..HttpRequest::default() });
        let error = mapped(&context, &MappingOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("the host \"{host}\" is not valid; write HOST or HOST:PORT"));
    }
    let session = Some(TlsSession { sni: "closed.example:x".to_owned() });
    let connection = AttributeContext { tls_session: session, ..AttributeContext::default() };
    mapped(&connection, &MappingOptions::default()).unwrap_err();
}

#[test]
fn a_check_with_a_header_that_cannot_be_decoded_fails() {
    let with = |entry: &'static [u8]| {
        let headers = vec![header_entry("x-a", "1"), entry.into()];
        mapped(&http(HttpRequest { headers, ..HttpRequest::default() }), &MappingOptions::default())
    };
    for entry in
        [&b"\x0a\x05x-b"[..], b"\x0a", b"\x12\xff", b"\x0f", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x"]
    {
        assert!(with(entry).is_err(), "{entry:?}");
    }
    // As in any message, the last of several fields counts, and unknown ones are ignored.
    let attributes = with(b"\x0a\x01y\x1a\x01?\x12\x01v\x0a\x03x-b\x20\x07").unwrap();
    assert_eq!(attributes["request.headers"].to_string(), "stringmap[x-a:1 x-b:v]");
}

#[test]
fn the_last_entry_of_a_header_counts_and_other_bytes_than_utf_8_are_replaced() {
    let entries = |value: &'static [u8]| {
        vec![header_entry("x-a", "1"), header_entry("x-b", value), header_entry("x-a", "2")]
    };
    for (value, text) in [(&b"b"[..], "b"), (b"\xff/b", "\u{fffd}/b")] {
        let context = http(HttpRequest { headers: entries(value), ..HttpRequest::default() });
        assert_has(&context, &[("request.headers", [("x-a", "2"), ("x-b", text)].into())], &[]);
    }
    let context = http(with_headers(&[("x-request-id", "1"), ("x-request-id", "2")]));
    assert_has(&context, &[("request.id", "2".into())], &[]);
}
