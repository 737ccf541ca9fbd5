//! Connections, and the workloads at their ends.

use super::*;

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
    // The identity of the sender, and those of certificates, take precedence.
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
    // Objects of other types are ignored.
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
