//! Resources for Istio.

use super::{
    EnvoyConfig,
    filters::{BODY_BYTES, Filters, RESPONSE_TRAILERS},
    rate_limits::RateLimits,
    requirements::Requirements,
    template::{fill, list, quoted},
};

/// Returns the resources.
pub(super) fn istio(options: &EnvoyConfig, requirements: &Requirements) -> String {
    let filters = Filters::new(options, requirements);
    let address = options.address.first().map_or("", String::as_str);
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "9091"));
    let namespace = options.namespace.as_deref().unwrap_or("istio-system");
    let body = format!(
        "{}\nincludeRequestBodyInCheck: {{maxRequestBytes: {BODY_BYTES}, allowPartialMessage: {}}}",
        filters.body_comment(),
        filters.body_part()
    );
    let limits = RateLimits::new(options, requirements);
    let mut labels = host.split('.');
    let (server, server_namespace) = (labels.next().unwrap_or(host), labels.next().unwrap_or(namespace));
    let underscores = filters.underscores(&limits);
    let (failure_modes, request_headers) = (filters.failure_modes(), list(filters.request_headers()));
    let response_headers = list(filters.response_headers());
    // Istio's own cluster, which has the mutual TLS of the mesh.
    let filters = filters.with_cluster(format!("outbound|{port}||{host}"));
    let patches = ["SIDECAR_INBOUND", "GATEWAY"].map(|context| {
        let manager = match underscores {
            "" => String::new(),
            underscores => fill(MANAGER, &[("$CONTEXT", context), ("$UNDERSCORES", underscores)]),
        };
        let limit = if limits.is_empty() {
            String::new()
        } else {
            fill(RATE_LIMIT, &[("$CONTEXT", context), ("$FILTER", &filters.rate_limit(&limits))])
        };
        manager + &limit
    });
    let patches = patches.concat();
    let envoy_filter = if patches.is_empty() {
        String::new()
    } else {
        fill(ENVOY_FILTER, &[("$NAMESPACE", namespace), ("$PATCHES", &patches)])
    };
    fill(
        RESOURCES,
        &[
            ("$FAILURE_MODES", &failure_modes),
            ("$SERVICE", &format!("service: {}\nport: {port}", quoted(host))),
            ("$FAIL_OPEN", if options.failure_mode_allow { "true" } else { "false" }),
            ("$BODY", if requirements.body { &body } else { "" }),
            ("$REQUEST_HEADERS", &request_headers),
            ("$RESPONSE_HEADERS", &response_headers),
            ("$TRAILERS", &list(RESPONSE_TRAILERS)),
            ("$NAMESPACE", namespace),
            ("$SERVER_NAMESPACE", server_namespace),
            ("$WORKLOAD", server),
            ("$PORT", port),
            ("$ENVOY_FILTER", &envoy_filter),
        ],
    )
}

const RESOURCES: &str = r#"# Istio with mixer-adapter as its external authorization, access log and rate limit service: docs/envoy/README.md
#
# What happens if something fails:
$FAILURE_MODES
#
# Istio's providers have no retries, no peer certificate and no server name of TLS: a restart of the only server fails requests
# (run two), and connection.requested_server_name is absent.
#
# In ambient mode only waypoints check requests: give the AuthorizationPolicy and the Telemetry `targetRefs` to them. EnvoyFilters have no
# effect there, and so nothing limits rates.
#
# MeshConfig: values of the Helm chart `istiod`; `istioctl install -f` has the same under `spec` of an IstioOperator.
meshConfig:
  extensionProviders:
  - name: mixer-adapter
    envoyExtAuthzGrpc:
      $SERVICE
      timeout: 2.5s
      # If a request could not be checked: true lets it pass, false answers with statusOnError.
      failOpen: $FAIL_OPEN
      statusOnError: "503"
      $BODY
  - name: mixer-adapter-http-log
    envoyHttpAls:
      $SERVICE
      logName: mixer-adapter
      # What source.labels, source.workload.name and the like are made of.
      filterStateObjectsToLog: [downstream_peer, upstream_peer]
      additionalRequestHeadersToLog: $REQUEST_HEADERS
      additionalResponseHeadersToLog: $RESPONSE_HEADERS
      additionalResponseTrailersToLog: $TRAILERS
  - name: mixer-adapter-tcp-log
    envoyTcpAls:
      $SERVICE
      logName: mixer-adapter
      filterStateObjectsToLog: [downstream_peer, upstream_peer]
---
# In the root namespace it applies to the whole mesh, in another one to its workloads.
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: mixer-adapter, namespace: $NAMESPACE}
spec:
  action: CUSTOM
  provider: {name: mixer-adapter}
  # Every request and every connection. A policy without rules would check none.
  rules: [{}]
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: mixer-adapter, namespace: $NAMESPACE}
spec:
  accessLogging:
  - providers: [{name: mixer-adapter-http-log}, {name: mixer-adapter-tcp-log}]
$ENVOY_FILTER
---
# Calls of this server are neither checked nor limited, if its pods have sidecars: each check would need another one.
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: mixer-adapter-own-port, namespace: $SERVER_NAMESPACE}
spec:
  workloadSelector: {labels: {app.kubernetes.io/name: $WORKLOAD}}
  configPatches:
  - applyTo: HTTP_ROUTE
    match: {context: SIDECAR_INBOUND, routeConfiguration: {vhost: {name: "inbound|http|$PORT"}}}
    patch:
      operation: MERGE
      value:
        typed_per_filter_config:
          envoy.filters.http.ext_authz: {"@type": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true}
          envoy.filters.http.ratelimit: {"@type": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true}
"#;

const ENVOY_FILTER: &str = r#"---
# Istio has no resource for rate limits and headers with underscores: this patches the configuration of its Envoys. A request through a gateway
# and a sidecar counts twice: remove one of the patches if it should not.
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: mixer-adapter, namespace: $NAMESPACE}
spec:
  configPatches:
  $PATCHES
"#;

const MANAGER: &str = r#"- applyTo: NETWORK_FILTER
  match:
    context: $CONTEXT
    listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}
  patch:
    operation: MERGE
    value:
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        $UNDERSCORES
"#;

const RATE_LIMIT: &str = r#"- applyTo: HTTP_FILTER
  match:
    context: $CONTEXT
    listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}
  patch:
    operation: INSERT_BEFORE
    value:
      $FILTER
"#;
