//! A bootstrap for Envoy in front of a service.

use super::{
    EnvoyConfig,
    filters::Filters,
    rate_limits::RateLimits,
    requirements::Requirements,
    template::{fill, quoted},
};

/// Returns the bootstrap.
pub(super) fn bootstrap(options: &EnvoyConfig, requirements: &Requirements, upstream: &str) -> String {
    let filters = Filters::new(options, requirements);
    let chain = match options.tcp {
        true => fill(
            CONNECTIONS,
            &[
                ("$AUTHORIZATION", &item(&filters.connection_authorization())),
                ("$LOG", &item(&Filters::connection_log())),
            ],
        ),
        false => {
            let limits = RateLimits::new(options, requirements);
            fill(
                REQUESTS,
                &[
                    ("$NAMESPACE", &options.namespace.as_deref().map(namespace).unwrap_or_default()),
                    ("$LOG", &item(&filters.access_log())),
                    ("$AUTHORIZATION", &item(&filters.authorization())),
                    ("$RATE_LIMIT", &item(&filters.rate_limit(&limits))),
                ],
            )
        }
    };
    let admin = options
        .envoy_admin
        .map(|address| format!("admin: {{address: {}}}", socket(&address.ip().to_string(), address.port())));
    let protocol = if options.tcp { "" } else { UPSTREAM_PROTOCOL };
    let listener_tls = options.tls.listener();
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
            ("$ENDPOINT", &endpoint(upstream)),
            ("$PROTOCOL", protocol),
            ("$SECURITY", &options.tls.upstream(upstream)),
        ],
    )
}

/// The cluster of this server.
pub(super) fn server_cluster(options: &EnvoyConfig) -> String {
    let endpoints: Vec<String> = options.address.iter().map(|address| endpoint(address)).collect();
    let tls = options.address.first().map(|address| options.tls.server(address)).unwrap_or_default();
    let values =
        [("$ENDPOINTS", &*endpoints.join(", ")), ("$TLS", &tls), ("$FILTERS", options.tls.server_filters())];
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

/// The endpoint of an address; the parser of the flag has checked that it has a port.
fn endpoint(address: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    format!("{{endpoint: {{address: {}}}}}", socket(host, port.parse().unwrap_or_default()))
}

const BOOTSTRAP: &str = r#"# Envoy in front of a service, with mixer-adapter behind its filters: docs/envoy.md
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
  - name: upstream
    type: STRICT_DNS
    connect_timeout: 1s
    $PROTOCOL
    $SECURITY
    load_assignment: {cluster_name: upstream, endpoints: [{lb_endpoints: [$ENDPOINT]}]}
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
    route_config:
      name: routes
      virtual_hosts:
      - name: upstream
        domains: ["*"]
        $NAMESPACE
        routes: [{match: {prefix: /}, route: {cluster: upstream}}]
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

const CLUSTER: &str = r#"type: STRICT_DNS
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

/// The upstream is called by the protocol of the client, so that gRPC passes.
const UPSTREAM_PROTOCOL: &str = r#"typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    # The protocol of the client, so that gRPC passes.
    use_downstream_protocol_config: {http_protocol_options: {}, http2_protocol_options: {}}
"#;
