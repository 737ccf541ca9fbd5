//! Servers that ask other services: extauthz and authzen over real sockets.

use std::{fs, path::Path};

use crate::support::{Ran, Server, binary, eventually, run};
use tempfile::TempDir;
use test_pki::{Authority, Files};

/// A configuration that asks the external authorization server at a URL about each request.
fn asking(url: &str, more: &str) -> String {
    format!(
        "kind: handler
metadata: {{name: other, namespace: istio-system}}
spec: {{compiledAdapter: extauthz, params: {{url: '{url}', timeout: 10s{more}}}}}
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

/// Denies `/admin` with a response in JSON.
pub(crate) const DENYING: &str = r#"kind: handler
metadata: {name: closed, namespace: istio-system}
spec:
  compiledAdapter: denier
  params:
    status:
      code: 7
      message: only for admins
      details:
      - "@type": type.googleapis.com/istio.policy.v1beta1.DirectHttpResponse
        code: Forbidden
        body: '{"error": "no"}'
        headers: {content-type: application/json}
---
kind: instance
metadata: {name: any, namespace: istio-system}
spec: {compiledTemplate: checknothing, params: {}}
---
kind: rule
metadata: {name: close, namespace: istio-system}
spec:
  match: request.url_path == "/admin"
  actions: [{handler: closed, instances: [any]}]
"#;

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
    let (other, _denying) = server(DENYING);
    let (asking, _asking) = server(&asking(&format!("http://{}", other.grpc), ""));
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
fn a_server_with_tls_is_asked_with_the_token() {
    let (files, authority) = (Files::new(), Authority::new());
    let own = authority.issue(&["localhost"]);
    let files_of = [("ca.pem", authority.pem()), ("own.pem", own.certificate), ("own.key", own.key)];
    let [ca, certificate, key] = files_of.map(|(name, content)| files.write(name, &content));
    let tokens = files.write("tokens", "gateway s3cret\n");
    let token = files.write("token", "s3cret\n");
    let denying = files.write("denying.yaml", DENYING);
    let secured = [
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--token-file",
        &tokens,
        "--config",
        &denying,
    ];
    let other = Server::start(&secured);
    let url = format!("https://localhost:{}", other.grpc.rsplit_once(':').unwrap().1);
    let asked = |more: &str, authorities: &str| {
        let config = files.write("asking.yaml", &asking(&url, more));
        let mut serve = binary();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"]);
        let (server, _) = Server::spawn(serve.args(["--config", &config]).env("SSL_CERT_FILE", authorities));
        for server in [&other, &server] {
            server.until("/readyz", "\r\n\r\nready");
        }
        ["/shop", "/admin"].map(|path| check(&server, path).stdout)
    };
    let with_token = format!(", tokenFile: '{token}'");
    let [allowed, denied] = asked(&with_token, &ca);
    assert!(allowed.starts_with("allowed"), "{allowed}");
    assert!(denied.contains("only for admins"), "{denied}");
    // Without the token, and with a certificate of an unknown authority.
    let stranger = files.write("stranger.pem", &Authority::new().pem());
    for answers in [asked("", &ca), asked(&with_token, &stranger)] {
        assert!(answers.iter().all(|answer| answer.contains("made no decision")), "{answers:?}");
    }
    // The certificates of the handler are trusted in place of the system's.
    let [allowed, _] = asked(&format!("{with_token}, caFile: '{ca}'"), &stranger);
    assert!(allowed.starts_with("allowed"), "{allowed}");
    let answers = asked(&format!("{with_token}, caFile: '{stranger}'"), &ca);
    assert!(answers.iter().all(|answer| answer.contains("made no decision")), "{answers:?}");
}

#[test]
fn a_server_that_asks_itself_denies() {
    let (server, directory) = server("");
    replace(directory.path(), &asking(&format!("http://{}", server.grpc), ""));
    eventually("the request is denied", || {
        check(&server, "/shop").stdout.contains("the authorization service made no decision").then_some(())
    });
    // Only the fourth call of the circle fails.
    let metrics = server.get("/metrics");
    let failed = "mixer_adapter_events_total{adapter=\"extauthz\",event=\"calls_failed\"} 1\n";
    assert!(metrics.contains(failed), "{metrics}");
}

fn replace(directory: &Path, configuration: &str) {
    fs::write(directory.join("next"), configuration).unwrap();
    fs::rename(directory.join("next"), directory.join("config.yaml")).unwrap();
}
