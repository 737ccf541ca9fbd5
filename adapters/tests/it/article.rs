//! The article on writing a route discovery service, followed by pasting its listings.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
};

use crate::support::{
    Server, binary,
    envoy::{Envoy, get, is_there},
    eventually, http,
};
use serde_json::{Value as Json, json};

/// The route of the article.
const PRINTED: &str = "\
route_config:
  name: local_route
  virtual_hosts:
  - name: local_service
    domains: [\"*\"]
    require_tls: NONE
    routes:
    - match:
        prefix: \"/MyService\"
      route: { cluster: my-grpc-svc_cluster }
";

const PAGE: &str = include_str!("../../../examples/rds/README.md");

fn source(directory: &Path) -> Server {
    let ports = ["source", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error", "--config"];
    Server::spawn(binary().args(ports).arg(directory)).0
}

/// The YAML of the page that begins with that.
fn snippet(start: &str) -> &'static str {
    let block = PAGE.split("```yaml\n").find(|block| block.starts_with(start)).unwrap();
    &block[..block.find("```").unwrap()]
}

/// `POST /v2/discovery:routes`, as in the article, or that of version 3.
fn fetch(source: &Server, version: &str) -> Json {
    let body = "{}";
    let request = format!(
        "POST /{version}/discovery:routes HTTP/1.1\r\nhost: rds\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = http::raw(&source.grpc, &request);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

/// The route of the article, as it is answered in a version of the API.
fn expected(message: &str) -> Json {
    json!([{
        "@type": format!("type.googleapis.com/{message}"),
        "name": "local_route",
        "virtualHosts": [{
            "name": "local_service",
            "domains": ["*"],
            "routes": [{
                "match": { "prefix": "/MyService" },
                "route": { "cluster": "my-grpc-svc_cluster" },
            }],
        }],
    }])
}

#[test]
fn the_route_of_the_article_is_answered_with_what_to_write_and_then_served_in_both_versions() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("routes.yaml");
    fs::write(&file, PRINTED).unwrap();
    let served = source(directory.path());
    let faults = || {
        let page = served.get("/config");
        let status: Json = serde_json::from_str(page.split("\r\n\r\n").nth(1)?).ok()?;
        Some(status["faults"].to_string()).filter(|faults| faults.contains("route_config"))
    };
    let hint = eventually("the hint is on the page", faults);
    let what = "write the content of route_config at the top of the document, with '@type': ";
    let (_, type_url) = hint.split_once(what).unwrap();
    let type_url = type_url.split('"').next().unwrap();
    // As it says.
    let content: String = PRINTED.lines().skip(1).map(|line| format!("{}\n", &line[2..])).collect();
    let new = directory.path().join(".new");
    fs::write(&new, format!("'@type': {type_url}\n{content}")).unwrap();
    fs::rename(new, &file).unwrap();
    let routes = || Some(fetch(&served, "v3")).filter(|answer| answer["resources"] != json!([]));
    let answer = eventually("the route is served", routes);
    assert_eq!(answer["resources"], expected("envoy.config.route.v3.RouteConfiguration"));
    assert_eq!(fetch(&served, "v2")["resources"], expected("envoy.api.v2.RouteConfiguration"));
}

/// A server with one answer for every request.
fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nmine";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

fn cluster(name: &str, port: &str, protocol: &str) -> String {
    format!(
        "  - name: {name}\n    type: STATIC\n    connect_timeout: 1s\n    \
         typed_extension_protocol_options:\n      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n        \
         '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions\n        \
         explicit_http_config: {{{protocol}: {{}}}}\n    \
         load_assignment: {{cluster_name: {name}, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, \
         port_value: {port}}}}}}}}}]}}]}}\n"
    )
}

/// Both snippets of the example's page as they stand there: a file, and a part of the configuration of Envoy.
#[test]
fn envoy_routes_with_the_snippets_of_the_example_as_pasted() {
    if !is_there() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("routes.yaml"), snippet("\"@type\"")).unwrap();
    let served = source(directory.path());
    let rds = snippet("rds:").lines().map(|line| format!("          {line}\n")).collect::<String>();
    for api_type in ["GRPC", "DELTA_GRPC"] {
        let rds = rds.replace("api_type: GRPC", &format!("api_type: {api_type}"));
        let (_, port) = served.grpc.rsplit_once(':').unwrap();
        let clusters = cluster("rds", port, "http2_protocol_options")
            + &cluster("my-grpc-svc_cluster", &upstream(), "http_protocol_options");
        let envoy = Envoy::start(&format!(
            "node: {{id: real, cluster: test}}\nstatic_resources:\n  listeners:\n  - name: front\n    \
             address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}\n    filter_chains:\n    - filters:\n      - name: http\n        \
             typed_config:\n          \
             '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n          \
             stat_prefix: front\n{rds}          \
             http_filters: [{{name: router, typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]\n  \
             clusters:\n{clusters}"
        ));
        let front = envoy.listener("front");
        eventually("the route leads to the cluster", || {
            get(&front, "/MyService/Method").filter(|answer| answer == "mine")
        });
        assert!(get(&front, "/other").is_none(), "no route");
    }
}
