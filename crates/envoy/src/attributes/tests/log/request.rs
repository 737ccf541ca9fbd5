//! Requests, responses and decisions, and bytes of connections.

use super::*;

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
