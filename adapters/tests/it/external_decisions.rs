//! Servers that ask other services: extauthz and authzen over real sockets.

use std::{fs, path::Path};

use crate::support::{Ran, Server, eventually, run};
use tempfile::TempDir;

/// A configuration that asks the external authorization server at an address about each request.
fn asking(address: &str) -> String {
    format!(
        "kind: handler
metadata: {{name: other, namespace: istio-system}}
spec: {{compiledAdapter: extauthz, params: {{url: 'http://{address}', timeout: 10s}}}}
---
kind: instance
metadata: {{name: request, namespace: istio-system}}
spec:
  compiledTemplate: authorization
  params: {{action: {{method: request.method, path: request.path}}}}
---
kind: rule
metadata: {{name: ask, namespace: istio-system}}
spec: {{actions: [{{handler: other, instances: [request]}}]}}
"
    )
}

fn server(configuration: &str) -> (Server, TempDir) {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("config.yaml"), configuration).unwrap();
    (Server::start(&["--config", directory.path().to_str().unwrap()]), directory)
}

fn check(server: &Server, path: &str) -> Ran {
    let attributes = format!("request.method=GET,request.path={path},request.url_path={path}");
    run(&["check", "--address", &server.grpc, "--attributes", &attributes])
}

#[test]
fn another_server_decides_with_the_response_to_the_client() {
    let denying = "kind: handler
metadata: {name: closed, namespace: istio-system}
spec:
  compiledAdapter: denier
  params:
    status:
      code: 7
      message: only for admins
      details:
      - \"@type\": type.googleapis.com/istio.policy.v1beta1.DirectHttpResponse
        code: Forbidden
        body: '{\"error\": \"no\"}'
        headers: {content-type: application/json}
---
kind: instance
metadata: {name: any, namespace: istio-system}
spec: {compiledTemplate: checknothing, params: {}}
---
kind: rule
metadata: {name: close, namespace: istio-system}
spec:
  match: request.url_path == \"/admin\"
  actions: [{handler: closed, instances: [any]}]
";
    let (other, _denying) = server(denying);
    let (asking, _asking) = server(&asking(&other.grpc));
    for server in [&other, &asking] {
        server.until("/readyz", "\r\n\r\nready");
    }
    let allowed = check(&asking, "/shop");
    assert_eq!(allowed.code, 0, "{allowed:?}");
    let denied = check(&asking, "/admin?a=b");
    let response = r#"answer with 403 "{\"error\": \"no\"}""#;
    for part in ["PERMISSION_DENIED", "only for admins", response, "content-type set to \"application/json\""]
    {
        assert!(denied.stdout.contains(part), "{part}: {denied:?}");
    }
}

#[test]
fn a_server_that_asks_itself_denies() {
    let (server, directory) = server("");
    replace(directory.path(), &asking(&server.grpc));
    eventually("the request is denied", || {
        check(&server, "/shop").stdout.contains("the authorization service made no decision").then_some(())
    });
    // The fourth call of the circle is the only one that fails; the others are answered.
    let metrics = server.get("/metrics");
    let failed = "mixer_adapter_events_total{adapter=\"extauthz\",event=\"calls_failed\"} 1\n";
    assert!(metrics.contains(failed), "{metrics}");
}

fn replace(directory: &Path, configuration: &str) {
    fs::write(directory.join("next"), configuration).unwrap();
    fs::rename(directory.join("next"), directory.join("config.yaml")).unwrap();
}
