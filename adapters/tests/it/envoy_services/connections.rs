//! External authorization and access logs of TCP connections.

use std::{
    io::{BufReader, Write as _},
    net::TcpStream,
    sync::Arc,
};

use serde_json::Value as Json;
use test_pki::{Authority, Certified, Files};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::{
    mesh::{Mesh, bootstrap, nobody},
    support::{
        envoy::{Envoy, is_there},
        eventually,
        http::{HttpResponse, echo, read_response},
    },
};

const GOOD: &str = "spiffe://cluster.local/ns/shop/sa/good";
const BAD: &str = "spiffe://cluster.local/ns/shop/sa/bad";

/// Denies connections of one principal, and logs all.
const CONFIG: &str = r#"
kind: handler
metadata: {name: principals, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: [cluster.local/ns/shop/sa/bad], blacklist: true}}
---
kind: instance
metadata: {name: principal, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: source.principal}}
---
kind: rule
metadata: {name: principals, namespace: istio-system}
spec: {match: context.protocol == "tcp" && connection.mtls, actions: [{handler: principals, instances: [principal]}]}
---
kind: handler
metadata: {name: log, namespace: istio-system}
spec: {compiledAdapter: stdio, params: {logStream: FILE, outputPath: "$FILE", outputAsJson: true}}
---
kind: instance
metadata: {name: entry, namespace: istio-system}
spec:
  compiledTemplate: logentry
  params:
    severity: '"info"'
    timestamp: context.time
    variables:
      event: connection.event
      principal: source.principal | "none"
      received: connection.received.bytes_total | 0
      denied: check.error_code | 0
---
kind: rule
metadata: {name: log, namespace: istio-system}
spec: {match: context.protocol == "tcp", actions: [{handler: log, instances: [entry]}]}
"#;

const REQUEST: &str = "GET /over/tcp HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Sends a request over TLS with a client certificate. `None` if the connection is closed without a response.
pub(crate) fn exchange(
    address: &str,
    authority: &Authority,
    client: &Certified,
    request: &str,
) -> Option<HttpResponse> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let chain = CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![chain], key)
        .unwrap();
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = BufReader::new(StreamOwned::new(connection, TcpStream::connect(address).unwrap()));
    stream.get_mut().write_all(request.as_bytes()).ok()?;
    let is_closed = std::io::BufRead::fill_buf(&mut stream).is_ok_and(|read| read.is_empty());
    if is_closed {
        return None;
    }
    let response = read_response(&mut stream);
    stream.get_mut().conn.send_close_notify();
    let _ = stream.get_mut().flush();
    Some(response)
}

#[test]
fn a_connection_is_allowed_or_denied_by_the_principal_of_its_certificate_and_logged() {
    if !is_there() {
        return;
    }
    let (files, authority) = (Files::new(), Authority::new());
    let front = authority.issue(&["localhost"]);
    let [good, bad] = [GOOD, BAD].map(|name| authority.issue(&[name]));
    let authorities = files.write("ca.pem", &authority.pem());
    let (chain, key) = (files.write("cert.pem", &front.certificate), files.write("key.pem", &front.key));
    let log = files.path("log");
    let config = CONFIG.replace("$FILE", log.to_str().unwrap());
    let flags = [
        "--tcp",
        "--listener-cert-file",
        &chain,
        "--listener-key-file",
        &key,
        "--listener-client-ca-file",
        &authorities,
    ];
    let mut mesh = Mesh::start(&config, &[], &flags);

    let allowed = exchange(&mesh.front(), &authority, &good, REQUEST).expect("a response");
    assert!(allowed.body.starts_with("GET /over/tcp HTTP/1.1\n"), "{}", allowed.body);
    assert!(exchange(&mesh.front(), &authority, &bad, REQUEST).is_none());
    assert_eq!(mesh.metric(r#"mixer_adapter_checks_total{outcome="allowed"}"#), "1");
    assert_eq!(mesh.metric(r#"mixer_adapter_checks_total{outcome="denied"}"#), "1");

    // Envoy connects to the upstream before the check, which waits for the first bytes; it sends them after the check.
    eventually("all entries are received", || {
        (mesh.metric("mixer_adapter_envoy_log_entries_total") == "4").then_some(())
    });
    mesh.server.signal("TERM");
    eventually("the server has ended", || mesh.server.child.try_wait().unwrap());
    let text = std::fs::read_to_string(&log).unwrap();
    let entries: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [good, bad] = [GOOD, BAD].map(|name| name.strip_prefix("spiffe://").unwrap());
    for (principal, denied) in [(good, 0), (bad, 7)] {
        let closed = entries
            .iter()
            .find(|entry| entry["principal"] == principal && entry["event"] == "close")
            .unwrap();
        let values = (&closed["received"], &closed["denied"]);
        assert_eq!(values, (&REQUEST.len().into(), &denied.into()), "{text}");
    }
    // Whether the first entry has the principal depends on when the handshake ends.
    assert_eq!(
        entries.iter().filter(|entry| entry["event"] == "open" && entry["received"] == 0).count(),
        2,
        "{text}"
    );
}

/// A rule whose condition cannot be evaluated for connections.
const CONDITION: &str = r#"
kind: handler
metadata: {name: paths, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: [/admin], blacklist: true}}
---
kind: instance
metadata: {name: path, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: request.url_path}}
---
kind: rule
metadata: {name: paths, namespace: istio-system}
spec: {match: request.url_path == "/admin", actions: [{handler: paths, instances: [path]}]}
"#;

/// Sends a request without TLS. `None` if the connection is closed without a response.
fn plain(address: &str) -> Option<HttpResponse> {
    let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
    stream.get_mut().write_all(REQUEST.as_bytes()).ok()?;
    let is_closed = std::io::BufRead::fill_buf(&mut stream).map_or(true, |read| read.is_empty());
    (!is_closed).then(|| read_response(&mut stream))
}

#[test]
fn a_connection_that_cannot_be_checked_is_closed_unless_the_failure_mode_lets_it_pass() {
    if !is_there() {
        return;
    }
    for (serve, envoy, passes) in [
        (&[][..], &["--tcp"][..], false),
        (&["--envoy-failure", "error-response"], &["--tcp"], false),
        (&[], &["--tcp", "--failure-mode-allow"], true),
        (&["--on-match-error", "open"], &["--tcp"], true),
        (&["--on-match-error", "closed"], &["--tcp", "--failure-mode-allow"], false),
    ] {
        let mesh = Mesh::start(CONDITION, serve, envoy);
        assert_eq!(plain(&mesh.front()).is_some(), passes, "{serve:?} {envoy:?}");
    }
    for (flags, passes) in [(&["--tcp"][..], false), (&["--tcp", "--failure-mode-allow"], true)] {
        let envoy = Envoy::start(&bootstrap(&nobody(), &[&["--upstream", &echo()], flags].concat()));
        assert_eq!(plain(&envoy.listener("front")).is_some(), passes, "{flags:?}");
    }
}
