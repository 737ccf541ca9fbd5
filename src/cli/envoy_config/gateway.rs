//! Resources for Envoy Gateway.

use super::{
    EnvoyConfig,
    bootstrap::server_cluster,
    filters::{BODY_BYTES, Filters, RESPONSE_TRAILERS},
    rate_limits::RateLimits,
    requirements::Requirements,
    template::{fill, list},
};

/// Returns the resources for a gateway.
pub(super) fn gateway(options: &EnvoyConfig, requirements: &Requirements, gateway: &str) -> String {
    let filters = Filters::new(options, requirements);
    let (gateway_namespace, gateway) = gateway.split_once('/').unwrap_or(("default", gateway));
    let address = options.address.first().map_or("", String::as_str);
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "9091"));
    let mut labels = host.split('.');
    let (service, namespace) = (labels.next().unwrap_or(host), labels.next().unwrap_or(gateway_namespace));
    let backend = format!("backendRefs: [{{name: {service}, namespace: {namespace}, port: {port}}}]");
    let body =
        format!("# Larger bodies are refused with 413.\nbodyToExtAuth: {{maxRequestBytes: {BODY_BYTES}}}");
    let limits = RateLimits::new(options, requirements);
    let listener = &options.gateway_listener;
    let listener = match listener.parse::<u16>() {
        Ok(port) => format!("tcp-{port}"),
        Err(_) => format!("{gateway_namespace}/{gateway}/{listener}"),
    };
    let common = [("$GATEWAY", gateway), ("$NAMESPACE", gateway_namespace)];
    let underscores = match filters.underscores(&limits) {
        "" => fill(UNDERSCORES, &common),
        _ => String::new(),
    };
    let rate_limit = if limits.is_empty() {
        String::new()
    } else {
        let (filter, cluster) = (filters.rate_limit(&limits), server_cluster(options));
        fill(
            RATE_LIMIT,
            &[&common[..], &[("$FILTER", &filter), ("$CLUSTER", &cluster), ("$LISTENER", &listener)]]
                .concat(),
        )
    };
    let own = [
        ("$FAILURE_MODES", filters.failure_modes()),
        ("$BACKEND", backend),
        ("$SERVER_NAMESPACE", namespace.to_owned()),
        ("$FAIL_OPEN", if options.failure_mode_allow { "true" } else { "false" }.to_owned()),
        ("$BODY", if requirements.body { body } else { String::new() }),
        ("$REQUEST_HEADERS", list(filters.request_headers())),
        ("$RESPONSE_HEADERS", list(filters.response_headers())),
        ("$TRAILERS", list(RESPONSE_TRAILERS)),
        ("$UNDERSCORES", underscores),
        ("$RATE_LIMIT", rate_limit),
    ];
    let own: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    fill(RESOURCES, &[&own[..], &common].concat())
}

const RESOURCES: &str = r#"# Envoy Gateway with mixer-adapter as its external authorization, access log and rate limit service: docs/envoy/README.md
#
# What happens if something fails:
$FAILURE_MODES
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: SecurityPolicy
metadata: {name: mixer-adapter, namespace: $NAMESPACE}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: $GATEWAY}]
  extAuth:
    # If a request could not be checked: true lets it pass, false answers with statusOnError.
    failOpen: $FAIL_OPEN
    statusOnError: 503
    timeout: 2500ms
    $BODY
    grpc:
      $BACKEND
      backendSettings:
        # Requests wait for a server that is away for about a second. Envoy ends each try after maxInterval, also while an adapter is working.
        retry:
          numRetries: 40
          retryOn: {triggers: [connect-failure, refused-stream, reset]}
          perRetry: {backOff: {baseInterval: 50ms, maxInterval: 2500ms}}
        circuitBreaker: {maxParallelRetries: 1000}
---
# The Gateway refers to it: spec.infrastructure.parametersRef {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: mixer-adapter}.
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: mixer-adapter, namespace: $NAMESPACE}
spec:
  telemetry:
    accessLog:
      settings:
      - sinks:
        - type: ALS
          als:
            $BACKEND
            logName: mixer-adapter
            type: HTTP
            http:
              requestHeaders: $REQUEST_HEADERS
              responseHeaders: $RESPONSE_HEADERS
              responseTrailers: $TRAILERS
---
# Envoy Gateway may refer to the service in another namespace.
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: mixer-adapter, namespace: $SERVER_NAMESPACE}
spec:
  from:
  - {group: gateway.envoyproxy.io, kind: SecurityPolicy, namespace: $NAMESPACE}
  - {group: gateway.envoyproxy.io, kind: EnvoyProxy, namespace: $NAMESPACE}
  to: [{group: "", kind: Service}]
$UNDERSCORES
$RATE_LIMIT
"#;

/// By default Envoy Gateway rejects requests with such headers.
const UNDERSCORES: &str = r#"---
# A rule, a descriptor or --allow-underscores needs headers with underscores in their names.
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: ClientTrafficPolicy
metadata: {name: mixer-adapter, namespace: $NAMESPACE}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: $GATEWAY}]
  headers: {withUnderscoresAction: Allow}
"#;

const RATE_LIMIT: &str = r#"---
# Rate limits of a BackendTrafficPolicy are those of Envoy Gateway's own service. This adds the filter of this server to a listener without
# TLS, before the checks: their decisions are not in descriptors. Envoy Gateway has to enable EnvoyPatchPolicies.
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyPatchPolicy
metadata: {name: mixer-adapter-rate-limit, namespace: $NAMESPACE}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: $GATEWAY}
  type: JSONPatch
  jsonPatches:
  - type: type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: mixer_adapter
    operation:
      op: add
      path: ""
      value:
        name: mixer_adapter
        $CLUSTER
  - type: type.googleapis.com/envoy.config.listener.v3.Listener
    # NAMESPACE/GATEWAY/LISTENER, or tcp-PORT with XDSNameSchemeV2, the default from Envoy Gateway 1.10: --gateway-listener NAME or PORT.
    name: $LISTENER
    operation:
      op: add
      path: /default_filter_chain/filters/0/typed_config/http_filters/0
      value:
        $FILTER
"#;
