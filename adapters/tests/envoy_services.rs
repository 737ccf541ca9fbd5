//! The services of Envoy, called by the real one.
#![allow(clippy::unwrap_used)]

mod support;

use support::{
    Server,
    envoy::{Envoy, is_there},
    http::{HttpResponse, echo, request},
};

/// Denies paths on a list.
const PATHS: &str = r#"
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
spec: {actions: [{handler: paths, instances: [path]}]}
"#;

/// An Envoy in front of an upstream, with our server behind its filters.
struct Mesh {
    server: Server,
    envoy: Envoy,
    _config: tempfile::TempDir,
}

impl Mesh {
    fn start(config: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.yaml"), config).unwrap();
        let directory = folder.path().to_str().unwrap().to_owned();
        let server = Server::start(&[&["--config", &directory], flags].concat());
        let envoy = Envoy::start(&bootstrap(&server.grpc, &echo()));
        Self { server, envoy, _config: folder }
    }

    fn get(&self, path: &str, headers: &[&str]) -> HttpResponse {
        request(&self.envoy.listener("front"), "GET", path, headers)
    }
}

fn bootstrap(server: &str, upstream: &str) -> String {
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let (server, upstream) = (port(server), port(upstream));
    format!(
        r#"
static_resources:
  listeners:
  - name: front
    address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          route_config: {{name: r, virtual_hosts: [{{name: v, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: upstream}}}}]}}]}}
          http_filters:
          - name: envoy.filters.http.ext_authz
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
              transport_api_version: V3
              grpc_service: {{envoy_grpc: {{cluster_name: mixer_adapter}}, timeout: 5s}}
              validate_mutations: true
              status_on_error: {{code: ServiceUnavailable}}
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: mixer_adapter
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment: {{cluster_name: mixer_adapter, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {server}}}}}}}}}]}}]}}
  - name: upstream
    type: STATIC
    connect_timeout: 1s
    load_assignment: {{cluster_name: upstream, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {upstream}}}}}}}}}]}}]}}
"#
    )
}

#[test]
fn a_request_is_allowed_or_denied_by_the_rules() {
    if !is_there() {
        return;
    }
    let mesh = Mesh::start(PATHS, &[]);
    let allowed = mesh.get("/shop?x=1", &[]);
    assert_eq!(allowed.status, 200);
    assert!(allowed.body.starts_with("GET /shop?x=1 HTTP/1.1\n"), "{}", allowed.body);
    let denied = mesh.get("/admin?x=1", &[]);
    assert_eq!(denied.status, 403);
    assert_eq!(denied.body, "PERMISSION_DENIED:paths.istio-system:/admin is blacklisted");
    let metrics = mesh.server.get("/metrics");
    assert!(metrics.contains("mixer_checks_total{outcome=\"allowed\"} 1\n"), "{metrics}");
    assert!(metrics.contains("mixer_checks_total{outcome=\"denied\"} 1\n"), "{metrics}");
}
