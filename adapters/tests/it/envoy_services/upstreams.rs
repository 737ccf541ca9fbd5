//! The protocols between clients, Envoy, the server and the upstream.

use std::{io::Write as _, net, sync::Arc};

use test_pki::{Authority, Files};
use tokio::{net::TcpStream, runtime::Runtime};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring::default_provider,
};
use tonic::transport::Endpoint;

use super::{
    mesh::{Mesh, PATHS, bootstrap, configured, envoy_config},
    support::{
        Server, binary, call,
        envoy::{Envoy, is_there},
        http::{echo, request},
        run,
    },
};

/// Returns the status of a request over HTTP/2.
async fn status_of(address: &str, path: &str) -> u16 {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut requests, connection) = h2::client::handshake(stream).await.unwrap();
    let driver = tokio::spawn(connection);
    let request = http::Request::get(format!("http://shop.example.com{path}")).body(()).unwrap();
    let status = requests.send_request(request, true).unwrap().0.await.unwrap().status();
    driver.abort();
    status.as_u16()
}

#[test]
fn an_upstream_with_http_1_alone_answers_clients_with_http_2() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(PATHS, &[], &[]);
    let runtime = Runtime::new().unwrap();
    for (path, status) in [("/shop", 200), ("/admin", 403)] {
        assert_eq!(runtime.block_on(status_of(&mesh.front(), path)), status, "{path}");
        assert_eq!(mesh.get(path, &[]).status, status, "{path}");
    }
}

#[test]
fn an_upstream_with_grpc_answers() {
    if !is_there() {
        return;
    }
    // Any gRPC service: that of another server.
    let upstream = Server::start(&[]);
    let unchanged = |bootstrap: String| bootstrap;
    let mesh = Mesh::start_before(PATHS, &[], &[], &upstream.grpc, unchanged);
    let answered = call(&mesh.front(), &["checknothing", "--adapter", "denier"]);
    assert!(answered.stdout.contains("FAILED_PRECONDITION"), "{answered:?}");
}

/// The protocol that Envoy chooses of those that a client offers.
fn negotiated(address: &str, authority: &Authority) -> Option<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, net::TcpStream::connect(address).unwrap());
    // Written behind the handshake.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.conn.alpn_protocol().map(<[u8]>::to_vec)
}

#[test]
fn a_listener_with_tls_offers_http_2_and_one_of_any_protocol_offers_none() {
    if !is_there() {
        return;
    }
    let (files, authority) = (Files::new(), Authority::new());
    let listener = authority.issue(&["localhost"]);
    let chain = files.write("listener.pem", &listener.certificate);
    let key = files.write("listener.key", &listener.key);
    let tls = ["--listener-cert-file", &chain, "--listener-key-file", &key];
    for (flags, protocol) in [(&[][..], Some(b"h2".to_vec())), (&["--tcp"], None)] {
        let mesh = Mesh::start(PATHS, &[], &[&tls, flags].concat());
        assert_eq!(negotiated(&mesh.front(), &authority), protocol, "{flags:?}");
    }
}

#[test]
fn the_server_and_the_upstream_can_be_unix_sockets() {
    if !is_there() {
        return;
    }
    let folder = configured(PATHS);
    let directory = folder.path().to_str().unwrap();
    let address = format!("unix:{directory}/grpc.sock");
    let ports = ["serve", "--listen", &address, "--admin", "127.0.0.1:0", "--log", "error"];
    let (server, _) = Server::spawn(binary().args(ports).args(["--config", directory]));
    server.until("/readyz", "\r\n\r\nready");
    let envoy = Envoy::start(&bootstrap(&address, &["--config", directory, "--upstream", &echo()]));
    for (path, status) in [("/shop", 200), ("/admin", 403)] {
        assert_eq!(request(&envoy.listener("front"), "GET", path, &[]).status, status, "{path}");
    }
    // The port of the server is a service with gRPC.
    let front = Envoy::start(&bootstrap(&address, &["--config", directory, "--upstream", &address]));
    let front = front.listener("front");
    let channel = Endpoint::from_shared(format!("http://{front}")).unwrap();
    Runtime::new().unwrap().block_on(channel.connect()).unwrap();
    let answered = call(&front, &["checknothing", "--adapter", "denier"]);
    assert!(answered.stdout.contains("FAILED_PRECONDITION"), "{answered:?}");
}

#[test]
fn a_unix_socket_is_no_address_of_a_mesh_and_not_one_of_several() {
    for (flags, text) in [
        (&["--istio", "--address", "unix:/run/grpc.sock"][..], "--address: write HOST:PORT"),
        (&["--gateway", "--address", "unix:/run/grpc.sock"], "--address: write HOST:PORT"),
        (
            &["--upstream", "127.0.0.1:80", "--address", "unix:/run/grpc.sock,127.0.0.1:9091"],
            "--address: write either hosts or paths of Unix sockets, not both",
        ),
    ] {
        let ran = run(&[&["envoy-config"], flags].concat());
        assert!(ran.code == 2 && ran.stderr.contains(text), "{ran:?}");
    }
}

/// A rule on the header `$HEADER`.
const HEADER: &str = r#"
kind: handler
metadata: {name: users, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: [guest], blacklist: true}}
---
kind: instance
metadata: {name: user, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: 'request.headers["$HEADER"] | "none"'}}
---
kind: rule
metadata: {name: users, namespace: istio-system}
spec: {actions: [{handler: users, instances: [user]}]}
"#;

#[test]
fn headers_with_underscores_are_rejected_unless_one_is_named() {
    if !is_there() {
        return;
    }
    let rule = |header: &str| HEADER.replace("$HEADER", header);
    for (config, flags, status) in [
        (rule("x-user"), &[][..], 400),
        (rule("x-user"), &["--allow-underscores"], 200),
        (rule("x-user"), &["--rate-limit", "q", "--descriptor", "user=x_tenant"], 200),
        (rule("x_user"), &[], 403),
    ] {
        let mesh = Mesh::start(&config, &[], flags);
        assert_eq!(mesh.get("/", &["x_user: guest"]).status, status, "{flags:?}");
        assert_eq!(mesh.get("/", &[]).status, 200, "{flags:?}");
    }
}

#[test]
fn headers_with_underscores_are_rejected_in_meshes_too() {
    let rejected = "headers_with_underscores_action: REJECT_REQUEST";
    let allowed = "headers: {withUnderscoresAction: Allow}";
    for (header, flags, is_rejected) in
        [("x-user", &[][..], true), ("x-user", &["--allow-underscores"], false), ("x_user", &[], false)]
    {
        let folder = configured(&HEADER.replace("$HEADER", header));
        let print = |mesh: &str| {
            envoy_config(&[&[mesh, "--config", folder.path().to_str().unwrap()], flags].concat())
        };
        let (istio, gateway) = (print("--istio"), print("--gateway"));
        assert_eq!(istio.matches(rejected).count(), if is_rejected { 2 } else { 0 }, "{header}: {istio}");
        // Envoy Gateway rejects them by default.
        assert_eq!(gateway.contains(allowed), !is_rejected, "{header}: {gateway}");
    }
}
