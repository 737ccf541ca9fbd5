//! A bootstrap for Envoy in front of a service.

use super::{
    EnvoyConfig,
    filters::Filters,
    rate_limits::RateLimits,
    requirements::Requirements,
    template::{fill, quoted},
    tls::HTTP2_ALONE,
};
use crate::cli::value_parsers::socket_path;

/// Returns the bootstrap.
pub(super) fn bootstrap(options: &EnvoyConfig, requirements: &Requirements, upstream: &str) -> String {
    let filters = Filters::new(options, requirements);
    let chain = if options.tcp {
        fill(
            CONNECTIONS,
            &[
                ("$AUTHORIZATION", &item(&filters.connection_authorization())),
                ("$LOG", &item(&Filters::connection_log())),
            ],
        )
    } else {
        let limits = RateLimits::new(options, requirements);
        fill(
            REQUESTS,
            &[
                ("$UNDERSCORES", filters.underscores(&limits)),
                ("$NAMESPACE", &options.namespace.as_deref().map(namespace).unwrap_or_default()),
                ("$LOG", &item(&filters.access_log())),
                ("$AUTHORIZATION", &item(&filters.authorization())),
                ("$RATE_LIMIT", &item(&filters.rate_limit(&limits))),
            ],
        )
    };
    let admin = options
        .envoy_admin
        .map(|address| format!("admin: {{address: {}}}", socket(&address.ip().to_string(), address.port())));
    let listener_tls = options.tls.listener(options.tcp);
    let cluster = |name: &str, protocol: &str, security: &str| {
        let values = [
            ("$NAME", name),
            ("$TYPE", discovery(upstream)),
            ("$PROTOCOL", protocol),
            ("$SECURITY", security),
            ("$ENDPOINT", &endpoint(upstream)),
        ];
        item(&fill(UPSTREAM, &values))
    };
    let security = options.tls.upstream(upstream, "");
    let upstreams = match (options.tcp, security.is_empty()) {
        (true, _) => cluster("upstream", "", &security),
        (false, true) => cluster("upstream", "", "") + &cluster("upstream_grpc", HTTP2, ""),
        (false, false) => {
            let security_of_grpc = options.tls.upstream(upstream, HTTP2_ALONE);
            cluster("upstream", NEGOTIATED, &security) + &cluster("upstream_grpc", HTTP2, &security_of_grpc)
        }
    };
    fill(
        BOOTSTRAP,
        &[
            ("$FAILURE_MODES", &filters.failure_modes()),
            ("$ADMIN", &admin.unwrap_or_default()),
            ("$SECRETS", &options.tls.secrets()),
            ("$LISTENER", &socket(&options.envoy_listen.ip().to_string(), options.envoy_listen.port())),
            ("$CHAIN", &chain),
            ("$INSPECTOR", if options.tcp && listener_tls.is_empty() { INSPECTOR } else { "" }),
            ("$TLS", &listener_tls),
            ("$SERVER", &server_cluster(options)),
            ("$UPSTREAMS", &upstreams),
        ],
    )
}

/// The cluster of this server.
pub(super) fn server_cluster(options: &EnvoyConfig) -> String {
    let endpoints: Vec<String> = options.address.iter().map(|address| endpoint(address)).collect();
    let tls = options.address.first().map(|address| options.tls.server(address)).unwrap_or_default();
    let values = [
        ("$TYPE", options.address.first().map_or("", |address| discovery(address))),
        ("$ENDPOINTS", &*endpoints.join(", ")),
        ("$TLS", &tls),
        ("$FILTERS", options.tls.server_filters()),
    ];
    fill(CLUSTER, &values)
}

/// An item of a list.
pub(super) fn item(text: &str) -> String {
    let mut lines = text.lines();
    let Some(first) = lines.next() else { return String::new() };
    lines.fold(format!("- {first}\n"), |text, line| format!("{text}  {line}\n"))
}

fn namespace(namespace: &str) -> String {
    fill(CONTEXT, &[("$VALUE", namespace)])
}

fn socket(host: &str, port: u16) -> String {
    format!("{{socket_address: {{address: {}, port_value: {port}}}}}", quoted(host))
}

/// The type of a cluster with this address. Sockets have no names to resolve.
fn discovery(address: &str) -> &'static str {
    if socket_path(address).is_some() { "STATIC" } else { "STRICT_DNS" }
}

/// Returns the endpoint of an address with a port, or of a Unix socket; the parser of the flag has checked it.
fn endpoint(address: &str) -> String {
    if let Some(path) = socket_path(address) {
        return format!("{{endpoint: {{address: {{pipe: {{path: {}}}}}}}}}", quoted(path));
    }
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    format!("{{endpoint: {{address: {}}}}}", socket(host, port.parse().unwrap_or_default()))
}

const BOOTSTRAP: &str = include_str!("templates/bootstrap.yaml");

const UPSTREAM: &str = include_str!("templates/upstream_cluster.yaml");

/// The listener filter for the server name of connections that are passed on encrypted.
const INSPECTOR: &str = include_str!("templates/tls_inspector.yaml");

const REQUESTS: &str = include_str!("templates/requests.yaml");

const CONTEXT: &str = include_str!("templates/namespace.yaml");

const CONNECTIONS: &str = include_str!("templates/connections.yaml");

const CLUSTER: &str = include_str!("templates/server_cluster.yaml");

/// The protocol of upstreams by TLS.
const NEGOTIATED: &str = include_str!("templates/negotiated_protocol.yaml");

/// The protocol of gRPC.
const HTTP2: &str = include_str!("templates/http2_protocol.yaml");
