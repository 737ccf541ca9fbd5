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

/// The endpoint of an address; the parser of the flag has checked that it has a port, or is that of a Unix socket.
fn endpoint(address: &str) -> String {
    if let Some(path) = socket_path(address) {
        return format!("{{endpoint: {{address: {{pipe: {{path: {}}}}}}}}}", quoted(path));
    }
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    format!("{{endpoint: {{address: {}}}}}", socket(host, port.parse().unwrap_or_default()))
}

const BOOTSTRAP: &str = r#"# Envoy in front of a service, with mixer-adapter behind its filters: docs/envoy/README.md
#
# What happens if something fails:
$FAILURE_MODES
$ADMIN
static_resources:
  $SECRETS
  listeners:
  - name: front
    address: $LISTENER
    $INSPECTOR
    filter_chains:
    - filters:
      $CHAIN
      $TLS
  clusters:
  - name: mixer_adapter
    $SERVER
  $UPSTREAMS
"#;

const UPSTREAM: &str = r#"name: $NAME
type: $TYPE
connect_timeout: 1s
$PROTOCOL
$SECURITY
load_assignment: {cluster_name: $NAME, endpoints: [{lb_endpoints: [$ENDPOINT]}]}
"#;

/// The listener filter for the server name of connections that are passed on encrypted.
const INSPECTOR: &str = r#"listener_filters:
- name: envoy.filters.listener.tls_inspector
  typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}
"#;

const REQUESTS: &str = r#"- name: envoy.filters.network.http_connection_manager
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
    stat_prefix: front
    # The client is the peer of the connection. No address is internal: Envoy would trust it to set x-forwarded-for and x-request-id.
    use_remote_address: true
    internal_address_config: {cidr_ranges: [{address_prefix: 0.0.0.0, prefix_len: 32}]}
    # Envoy chooses the id of a request, also if the client sent one.
    generate_request_id: true
    preserve_external_request_id: false
    # Rules see the path that the upstream sees.
    normalize_path: true
    merge_slashes: true
    path_with_escaped_slashes_action: UNESCAPE_AND_REDIRECT
    $UNDERSCORES
    route_config:
      name: routes
      virtual_hosts:
      - name: upstream
        domains: ["*"]
        $NAMESPACE
        routes: [{match: {prefix: /, grpc: {}}, route: {cluster: upstream_grpc}}, {match: {prefix: /}, route: {cluster: upstream}}]
    access_log:
    $LOG
    http_filters:
    $AUTHORIZATION
    $RATE_LIMIT
    - name: envoy.filters.http.router
      typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
"#;

const CONTEXT: &str = r#"typed_per_filter_config:
  envoy.filters.http.ext_authz:
    "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute
    check_settings: {context_extensions: {destination.namespace: $VALUE}}
"#;

const CONNECTIONS: &str = r#"$AUTHORIZATION
- name: envoy.filters.network.tcp_proxy
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
    stat_prefix: front
    cluster: upstream
    # An entry when the connection is open, one a minute, and one at its end: connection.event.
    access_log_options: {flush_access_log_on_connected: true, access_log_flush_interval: 60s}
    access_log:
    $LOG
"#;

const CLUSTER: &str = r#"type: $TYPE
connect_timeout: 1s
# Retries are limited by the policies of the filters.
circuit_breakers: {thresholds: [{max_retries: 1000}]}
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    # A server that does not answer pings is left: a call would wait for its timeout.
    explicit_http_config: {http2_protocol_options: {connection_keepalive: {interval: 10s, timeout: 2s}}}
    $FILTERS
$TLS
load_assignment: {cluster_name: mixer_adapter, endpoints: [{lb_endpoints: [$ENDPOINTS]}]}
"#;

/// The protocol of upstreams by TLS.
const NEGOTIATED: &str = r#"typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    auto_config: {http_protocol_options: {}, http2_protocol_options: {}}
"#;

/// The protocol of gRPC.
const HTTP2: &str = r#"typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: {http2_protocol_options: {}}
"#;
