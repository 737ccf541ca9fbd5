//! Settings of Envoy that are missing, which the server reports.

use std::{io::Read as _, process::Stdio};

use tempfile::TempDir;

use super::{
    mesh::{bootstrap, configured},
    support::{
        Server, binary,
        envoy::{Envoy, is_there},
        eventually,
        http::{echo, raw},
    },
};

/// Denies bodies on a list.
const BODIES: &str = r#"
kind: handler
metadata: {name: bodies, namespace: istio-system}
spec: {compiledAdapter: listchecker, params: {overrides: [bad], blacklist: true}}
---
kind: instance
metadata: {name: body, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: request.body | "none"}}
---
kind: rule
metadata: {name: bodies, namespace: istio-system}
spec: {actions: [{handler: bodies, instances: [body]}]}
"#;

const POST: &str = "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 3\r\n\r\nbad";

/// A server, an Envoy with a changed bootstrap for it, and their configuration.
fn start(change: impl FnOnce(String) -> String) -> (Server, Envoy, TempDir) {
    let folder = configured(BODIES);
    let directory = folder.path().to_str().unwrap();
    let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "warn"];
    let mut serve = binary();
    let (server, _) = Server::spawn(serve.args(ports).args(["--config", directory]).stderr(Stdio::piped()));
    server.until("/readyz", "\r\n\r\nready");
    let flags = ["--config", directory, "--upstream", &echo()];
    let envoy = Envoy::start(&change(bootstrap(&server.grpc, &flags)));
    (server, envoy, folder)
}

#[test]
fn settings_that_are_missing_are_on_the_page_and_once_in_the_log() {
    if !is_there() {
        return;
    }
    let (mut server, envoy, _config) = start(|bootstrap| {
        let without = bootstrap.lines().filter(|line| !line.trim_start().starts_with("with_request_body:"));
        let text: String = without.map(|line| format!("{line}\n")).collect();
        let mutations = "              validate_mutations: true\n";
        text.replace(
            mutations,
            &format!("{mutations}              enable_dynamic_metadata_ingestion: false\n"),
        )
    });
    let front = envoy.listener("front");
    assert!(server.get("/status").contains(r#""warnings":[]"#));
    for _ in 0..30 {
        assert_eq!(raw(&front, POST).status, 200);
    }
    server.until("/status", "set `with_request_body` in Envoy's ext_authz filter");
    server.until("/status", "`enable_dynamic_metadata_ingestion` of Envoy's ext_authz filter is off");
    server.until("/readyz", "\r\n\r\nready\nwarning: ");
    server.signal("TERM");
    eventually("the server has ended", || server.child.try_wait().unwrap());
    let mut log = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    for setting in ["with_request_body", "enable_dynamic_metadata_ingestion"] {
        assert_eq!(log.matches(setting).count(), 1, "{log}");
    }
}
