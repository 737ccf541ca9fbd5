//! The real Envoy, configured by `source` in all forms of xDS.

mod new_clusters;

use crate::support;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
};

use serde_json::Value as Json;
use support::{
    Server, binary,
    envoy::{Envoy, get, get_from, is_there},
    eventually,
};

const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const CLUSTER: &str = "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster";
const MANAGER: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
const GRPC_SERVICES: &str = "grpc_services: [{envoy_grpc: {cluster_name: source, retry_policy: {retry_back_off: {base_interval: 0.1s, max_interval: 0.5s}}}}]";

/// The streams of Envoy: one for each type, or one for all.
#[derive(Clone, Copy)]
struct ConfigSource {
    api_type: &'static str,
    ads: bool,
}

impl ConfigSource {
    fn api(self) -> String {
        let server = match self.api_type {
            "REST" => "cluster_names: [source], refresh_delay: 0.1s, request_timeout: 1s",
            _ => GRPC_SERVICES,
        };
        format!("{{api_type: {}, transport_api_version: V3, {server}}}", self.api_type)
    }

    /// Where the resources of one type come from.
    fn config_source(self) -> String {
        if self.ads {
            "{ads: {}, resource_api_version: V3}".to_owned()
        } else {
            format!("{{api_config_source: {}, resource_api_version: V3}}", self.api())
        }
    }

    fn bootstrap(self, source: &str) -> String {
        let (config_source, port) = (self.config_source(), source.rsplit_once(':').unwrap().1);
        let ads = if self.ads { format!("  ads_config: {}\n", self.api()) } else { String::new() };
        format!(
            "node: {{id: real, cluster: test}}\n\
             dynamic_resources:\n{ads}  lds_config: {config_source}\n  cds_config: {config_source}\n\
             static_resources:\n  clusters:\n  - name: source\n    type: STATIC\n    connect_timeout: 1s\n    \
             typed_extension_protocol_options:\n      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n        \
             '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions\n        \
             explicit_http_config: {{http2_protocol_options: {{}}}}\n    \
             load_assignment: {{cluster_name: source, endpoints: [{{lb_endpoints: [{{endpoint: {}}}]}}]}}\n",
            endpoint(port)
        )
    }

    fn listener(self) -> String {
        format!(
            "resources:\n- '@type': {LISTENER}\n  name: front\n  \
             address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}\n  filter_chains:\n  - filters:\n    - name: http\n      \
             typed_config:\n        '@type': {MANAGER}\n        statPrefix: front\n        \
             rds: {{route_config_name: routes, config_source: {}}}\n        \
             http_filters: [{{name: router, typed_config: {{'@type': {ROUTER}}}}}]\n",
            self.config_source()
        )
    }

    /// A cluster whose endpoints come separately.
    fn clusters(self, upstream: &str) -> String {
        let endpoint = endpoint(upstream.rsplit_once(':').unwrap().1);
        format!(
            "resources:\n- {CLUSTER}\n  name: upstream\n  type: EDS\n  connect_timeout: 1s\n  eds_cluster_config: {{eds_config: {}}}\n\
             - '@type': type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\n  cluster_name: upstream\n  \
             endpoints: [{{lb_endpoints: [{{endpoint: {endpoint}}}]}}]\n",
            self.config_source()
        )
    }
}

fn endpoint(port: &str) -> String {
    format!("{{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}")
}

/// Routes that answer by themselves, and lead to the upstream under `/up`; as many hosts as there are answers.
fn routes(answers: &[&str]) -> String {
    let hosts = answers.iter().map(|answer| {
        format!(
            "  - name: host-{answer}\n    domains: ['*']\n    routes:\n    - {{match: {{prefix: /up}}, route: {{cluster: upstream}}}}\n    \
             - {{match: {{prefix: /}}, direct_response: {{status: 200, body: {{inline_string: {answer}}}}}}}\n"
        )
    });
    let hosts: String = hosts.collect();
    format!("resources:\n- '@type': {ROUTES}\n  name: routes\n  virtual_hosts:\n{hosts}")
}

/// A server with one answer for every request.
fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\nupstream");
        }
    });
    address
}

fn source(directory: &Path, listen: &str) -> Server {
    let ports = ["source", "--listen", listen, "--admin", "127.0.0.1:0"];
    let arguments = ports.into_iter().chain(["--certify", "--log", "error", "--config"]);
    Server::spawn(binary().args(arguments).arg(directory)).0
}

/// The streams of Envoy, as the source sees them.
fn streams(source: &Server) -> Vec<Json> {
    let answer = source.get("/config");
    let status: Json = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    status["sinks"].as_array().unwrap().iter().filter(|sink| sink["id"] == "real").cloned().collect()
}

/// The rules of clients that Envoy broke on its streams, as `--certify` reports them.
fn violations(source: &Server) -> Vec<Json> {
    let of = |stream: Json| stream["violations"].as_array().cloned();
    streams(source).into_iter().flat_map(|stream| of(stream).unwrap_or_default()).collect()
}

/// What the source says of the routes in Envoy, over the one stream or that of their own.
fn routes_in_envoy(source: &Server, what: &str) -> Option<Json> {
    let values = streams(source).into_iter().map(|sink| sink["collections"][ROUTES][what].clone());
    values.into_iter().find(|value| !value.is_null())
}

fn is_configured_throughout(form: ConfigSource) {
    if !is_there() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        // Moved there, so that it is never half written.
        let new = directory.path().join(".new");
        fs::write(&new, text).unwrap();
        fs::rename(new, directory.path().join(name)).unwrap();
    };
    let clusters = form.clusters(&upstream());
    write("listener.yaml", &form.listener());
    write("clusters.yaml", &clusters);
    write("routes.yaml", &routes(&["one"]));
    let mut served = source(directory.path(), "127.0.0.1:0");
    let envoy = Envoy::start(&form.bootstrap(&served.grpc));
    let front = envoy.listener("front");
    let answers = |text: &str| eventually(text, || get(&front, "/").filter(|answer| answer == text));
    answers("one");
    eventually("the cluster has its endpoint", || get(&front, "/up").filter(|answer| answer == "upstream"));
    eventually("the routes are accepted", || routes_in_envoy(&served, "accepted"));

    write("routes.yaml", &routes(&["two"]));
    answers("two");

    write("routes.yaml", &routes(&["bad", "worse"]));
    let refused = eventually("the routes are refused", || routes_in_envoy(&served, "refused"));
    let reason = "Only a single wildcard domain is permitted in route routes";
    assert!(refused.to_string().contains(reason), "{refused}");
    // What comes next on the stream is the cluster and not the routes again.
    write(
        "clusters.yaml",
        &format!("{clusters}- {CLUSTER}\n  name: another\n  type: STATIC\n  connect_timeout: 1s\n"),
    );
    eventually("the new cluster is there", || envoy.admin("/clusters").contains("another::").then_some(()));
    assert_eq!(envoy.counter("http.front.rds.routes.update_rejected"), 1);
    answers("two");
    assert_eq!(violations(&served), [Json::Null; 0], "with acknowledgements and a rejection");

    let address = served.grpc.clone();
    served.signal("TERM");
    eventually("the source has ended", || served.child.try_wait().unwrap());
    answers("two");
    write("routes.yaml", &routes(&["two"]));
    let served = source(directory.path(), &address);
    // An incremental client receives nothing, because it is up to date.
    eventually("Envoy has come back", || (!streams(&served).is_empty()).then_some(()));
    answers("two");
    write("routes.yaml", &routes(&["three"]));
    answers("three");
    assert_eq!(violations(&served), [Json::Null; 0], "after a reconnect");
    assert_eq!(envoy.counter("listener_manager.listener_create_failure"), 0);
}

#[test]
fn envoy_is_configured_by_whole_sets_over_one_stream() {
    is_configured_throughout(ConfigSource { api_type: "GRPC", ads: true });
}

#[test]
fn envoy_is_configured_by_changes_over_one_stream() {
    is_configured_throughout(ConfigSource { api_type: "DELTA_GRPC", ads: true });
}

#[test]
fn envoy_is_configured_by_whole_sets_over_a_stream_for_each_type() {
    is_configured_throughout(ConfigSource { api_type: "GRPC", ads: false });
}

#[test]
fn envoy_is_configured_by_changes_over_a_stream_for_each_type() {
    is_configured_throughout(ConfigSource { api_type: "DELTA_GRPC", ads: false });
}

#[test]
fn envoy_is_configured_by_rest_polling() {
    if !is_there() {
        return;
    }
    let form = ConfigSource { api_type: "REST", ads: false };
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let new = directory.path().join(".new");
        fs::write(&new, text).unwrap();
        fs::rename(new, directory.path().join(name)).unwrap();
    };
    write("listener.yaml", &form.listener());
    write("clusters.yaml", &form.clusters(&upstream()));
    write("routes.yaml", &routes(&["one"]));
    let mut served = source(directory.path(), "127.0.0.1:0");
    let envoy = Envoy::start(&form.bootstrap(&served.grpc));
    let front = envoy.listener("front");
    let answers = |text: &str| eventually(text, || get(&front, "/").filter(|answer| answer == text));
    answers("one");
    eventually("the cluster has its endpoint", || get(&front, "/up").filter(|answer| answer == "upstream"));
    write("routes.yaml", &routes(&["two"]));
    answers("two");
    write("routes.yaml", &routes(&["bad", "worse"]));
    let rejected = || Some(envoy.counter("http.front.rds.routes.update_rejected")).filter(|count| *count > 0);
    eventually("the routes are rejected", rejected);
    answers("two");
    write("routes.yaml", &routes(&["three"]));
    answers("three");
    served.signal("TERM");
    eventually("the source has ended", || served.child.try_wait().unwrap());
    answers("three");
}

/// The host of a request is asked for when it comes: by a name that is an alias, and by one of its own.
#[test]
fn envoy_asks_for_virtual_hosts_on_demand() {
    if !is_there() {
        return;
    }
    let form = ConfigSource { api_type: "DELTA_GRPC", ads: true };
    let directory = tempfile::tempdir().unwrap();
    let on_demand = "type.googleapis.com/envoy.extensions.filters.http.on_demand.v3.OnDemand";
    let filters = format!("http_filters: [{{name: on_demand, typed_config: {{'@type': {on_demand}}}}}, ");
    fs::write(directory.path().join("listener.yaml"), form.listener().replace("http_filters: [", &filters))
        .unwrap();
    let vhds =
        format!("'@type': {ROUTES}\nname: routes\nvhds: {{config_source: {}}}\n", form.config_source());
    fs::write(directory.path().join("routes.yaml"), vhds).unwrap();
    let host = |name: &str, line: &str, domain: &str| {
        format!(
            "'@type': type.googleapis.com/envoy.service.discovery.v3.Resource\nname: routes/{name}\n{line}\nresource:\n  \
             '@type': type.googleapis.com/envoy.config.route.v3.VirtualHost\n  name: {name}\n  domains: [{domain}]\n  \
             routes: [{{match: {{prefix: /}}, direct_response: {{status: 200, body: {{inline_string: {name}}}}}}}]\n"
        )
    };
    let shop = host("shop", "aliases: [routes/www.shop.example]", "www.shop.example");
    fs::write(
        directory.path().join("hosts.yaml"),
        format!("{shop}---\n{}", host("stock.example", "", "stock.example")),
    )
    .unwrap();
    let served = source(directory.path(), "127.0.0.1:0");
    let envoy = Envoy::start(&form.bootstrap(&served.grpc));
    let front = envoy.listener("front");
    for (domain, answer) in [("www.shop.example", "shop"), ("stock.example", "stock.example")] {
        eventually(domain, || get_from(&front, domain, "/").filter(|body| body == answer));
    }
    assert!(get_from(&front, "none.example", "/").is_none());
}

/// Clusters and listeners by collections of `xdstp` names, with the identity of the node as their context; endpoints and routes by name.
#[test]
fn envoy_is_configured_by_xdstp_names_and_glob_collections() {
    if !is_there() {
        return;
    }
    for api_type in ["DELTA_GRPC", "GRPC"] {
        let form = ConfigSource { api_type, ads: true };
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let new = directory.path().join(".new");
            fs::write(&new, text).unwrap();
            fs::rename(new, directory.path().join(name)).unwrap();
        };
        let named = |message: &str, id: &str| format!("xdstp://shop/{message}/{id}");
        let cluster =
            named("envoy.config.cluster.v3.Cluster", "eu/upstream?xds.node.cluster=test&xds.node.id=real");
        let endpoints = named("envoy.config.endpoint.v3.ClusterLoadAssignment", "eu/upstream");
        let listener =
            named("envoy.config.listener.v3.Listener", "eu/front?xds.node.cluster=test&xds.node.id=real");
        let route = named("envoy.config.route.v3.RouteConfiguration", "eu/routes");
        let clusters = form
            .clusters(&upstream())
            .replace("  name: upstream", &format!("  name: {cluster}"))
            .replace("cluster_name: upstream", &format!("cluster_name: {endpoints}"))
            .replace(
                "eds_cluster_config: {",
                &format!("eds_cluster_config: {{service_name: '{endpoints}', "),
            );
        write("clusters.yaml", &clusters);
        let front = form.listener().replace("name: front\n", &format!("name: {listener}\n"));
        write(
            "listener.yaml",
            &front.replace("route_config_name: routes", &format!("route_config_name: '{route}'")),
        );
        let routes = |answer: &str| {
            routes(&[answer])
                .replace("name: routes", &format!("name: {route}"))
                .replace("cluster: upstream", &format!("cluster: '{cluster}'"))
        };
        write("routes.yaml", &routes("one"));
        let served = source(directory.path(), "127.0.0.1:0");
        let locators = "  lds_resources_locator: xdstp://shop/envoy.config.listener.v3.Listener/eu/*\n  \
                        cds_resources_locator: xdstp://shop/envoy.config.cluster.v3.Cluster/eu/*\n";
        let bootstrap = form
            .bootstrap(&served.grpc)
            .replace("static_resources:", &format!("{locators}static_resources:"));
        let envoy = Envoy::start(&format!("node_context_params: [id, cluster]\n{bootstrap}"));
        let front = envoy.listener(&listener);
        let answers = |text: &str| eventually(text, || get(&front, "/").filter(|answer| answer == text));
        answers("one");
        eventually("the cluster has its endpoint", || {
            get(&front, "/up").filter(|answer| answer == "upstream")
        });
        write("routes.yaml", &routes("two"));
        answers("two");
    }
}
