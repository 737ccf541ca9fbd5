//! The port of the server with TLS, certificates and tokens, and an Envoy with the bootstrap for it.

use test_pki::{Authority, Certified, Files};

use super::{
    mesh::{Mesh, PATHS},
    support::{envoy::is_there, eventually},
};

const ENVOY: &str = "spiffe://cluster.local/ns/shop/sa/front";
const STRANGER: &str = "spiffe://cluster.local/ns/shop/sa/stranger";

/// One request a minute for each user.
const LIMIT: &str = r#"
kind: handler
metadata: {name: limits, namespace: istio-system}
spec: {compiledAdapter: memquota, params: {quotas: [{name: per-user, maxAmount: 1, validDuration: 60s}]}}
---
kind: instance
metadata: {name: per-user, namespace: istio-system}
spec: {compiledTemplate: quota, params: {dimensions: {user: 'ratelimit.descriptor["user"]'}}}
---
kind: rule
metadata: {name: limits, namespace: istio-system}
spec: {actions: [{handler: limits, instances: [per-user]}]}
"#;

/// The files of both sides.
struct Security {
    files: Files,
    authority: Authority,
}

impl Security {
    /// Creates an authority, and the certificate of the server for its address.
    fn new() -> Self {
        let security = Self { files: Files::new(), authority: Authority::new() };
        security.files.write("ca.pem", &security.authority.pem());
        let server = security.authority.issue(&["127.0.0.1"]);
        security.write("server", &server);
        security
    }

    fn write(&self, name: &str, certified: &Certified) {
        self.files.write(&format!("{name}.pem"), &certified.certificate);
        self.files.write(&format!("{name}.key"), &certified.key);
    }

    /// Starts a server and an Envoy. Words of the flags that begin with a slash are names of files.
    fn start(&self, serve: &str, envoy_config: &str) -> Mesh {
        let words = |flags: &str| -> Vec<String> {
            let word = |word: &str| match word.strip_prefix('/') {
                Some(file) => self.files.path(file).to_str().unwrap().to_owned(),
                None => word.to_owned(),
            };
            flags.split_whitespace().map(word).collect()
        };
        let serve = words(&format!("--tls-cert-file /server.pem --tls-key-file /server.key {serve}"));
        let envoy_config = words(&format!("--descriptor user=x-user {envoy_config}"));
        let [serve, envoy_config] = [&serve, &envoy_config].map(|words| words.iter().map(String::as_str));
        Mesh::start(&format!("{PATHS}{LIMIT}"), &serve.collect::<Vec<_>>(), &envoy_config.collect::<Vec<_>>())
    }
}

/// Checks, rate limits and access logs arrive.
fn is_served(mesh: &Mesh) {
    let alice = ["x-user: alice"];
    assert_eq!(mesh.get("/shop", &alice).status, 200);
    assert_eq!(mesh.get("/admin", &alice).status, 403);
    assert_eq!(mesh.get("/shop", &alice).status, 429);
    eventually("all entries are received", || {
        (mesh.metric("mixer_adapter_envoy_log_entries_total") == "3").then_some(())
    });
}

/// No request is allowed, and no service answers.
fn is_refused(mesh: &Mesh) {
    assert_eq!(mesh.get("/shop", &["x-user: alice"]).status, 503);
    let outcomes = ["allowed", "denied", "failed"];
    let checks =
        outcomes.map(|outcome| mesh.metric(&format!("mixer_adapter_checks_total{{outcome=\"{outcome}\"}}")));
    assert_eq!(checks, ["0"; 3]);
}

#[test]
fn envoy_calls_over_tls_and_shows_its_certificate() {
    if !is_there() {
        return;
    }
    let security = Security::new();
    let serve = format!("--tls-client-ca-file /ca.pem --client-san {ENVOY} --allow envoy={ENVOY}");
    let shown = "--server-ca-file /ca.pem --envoy-cert-file /envoy.pem --envoy-key-file /envoy.key";
    security.write("envoy", &security.authority.issue(&[ENVOY]));
    is_served(&security.start(&serve, shown));

    is_refused(&security.start(&serve, "--server-ca-file /ca.pem"));
    security.write("envoy", &security.authority.issue(&[STRANGER]));
    is_refused(&security.start(&serve, shown));
}

#[test]
fn envoy_shows_its_token() {
    if !is_there() {
        return;
    }
    let security = Security::new();
    security.files.write("tokens", "front t0ken\nother 0ther\n");
    let serve = "--token-file /tokens --allow envoy=front";
    let shown = "--server-ca-file /ca.pem --server-token-file /token";
    security.files.write("token", "t0ken\n");
    is_served(&security.start(serve, shown));

    for token in ["0ther", "wr0ng"] {
        security.files.write("token", token);
        is_refused(&security.start(serve, shown));
    }
}

#[test]
fn envoy_calls_only_the_server_that_it_expects() {
    if !is_there() {
        return;
    }
    let security = Security::new();
    security.files.write("other.pem", &Authority::new().pem());
    is_refused(&security.start("", "--server-ca-file /other.pem"));
    is_refused(&security.start("", "--server-ca-file /ca.pem --server-san server.example.com"));
    security.write("server", &security.authority.issue(&["server.example.com"]));
    is_served(&security.start("", "--server-ca-file /ca.pem --server-san server.example.com"));
}
