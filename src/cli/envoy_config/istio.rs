//! Resources for Istio.

use super::{
    EnvoyConfig,
    bootstrap::server_cluster,
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
    let rate_limit = match limits.is_empty() {
        true => String::new(),
        false => fill(
            RATE_LIMIT,
            &[
                ("$NAMESPACE", namespace),
                ("$FILTER", &filters.rate_limit(&limits)),
                ("$CLUSTER", &server_cluster(options)),
            ],
        ),
    };
    fill(
        RESOURCES,
        &[
            ("$FAILURE_MODES", &filters.failure_modes()),
            ("$SERVICE", &format!("service: {}\nport: {port}", quoted(host))),
            ("$FAIL_OPEN", if options.failure_mode_allow { "true" } else { "false" }),
            ("$BODY", if requirements.body { &body } else { "" }),
            ("$REQUEST_HEADERS", &list(filters.request_headers())),
            ("$RESPONSE_HEADERS", &list(filters.response_headers())),
            ("$TRAILERS", &list(RESPONSE_TRAILERS)),
            ("$NAMESPACE", namespace),
            ("$RATE_LIMIT", &rate_limit),
        ],
    )
}

const RESOURCES: &str = r#"# Istio with mixer-adapter as its external authorization, access log and rate limit service: docs/envoy.md
#
# What happens if something fails:
$FAILURE_MODES
#
# Istio's providers have no retries, no peer certificate and no server name of TLS: a restart of the only server fails requests
# (run two), and connection.requested_server_name is absent.
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
$RATE_LIMIT
"#;

const RATE_LIMIT: &str = r#"---
# Istio has no resource for rate limits: this patches the configuration of its Envoys.
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: mixer-adapter-rate-limit, namespace: $NAMESPACE}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {context: SIDECAR_INBOUND}
    patch:
      operation: ADD
      value:
        name: mixer_adapter
        $CLUSTER
  - applyTo: HTTP_FILTER
    match:
      context: SIDECAR_INBOUND
      listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        $FILTER
"#;
