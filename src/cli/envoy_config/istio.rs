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

const RESOURCES: &str = include_str!("templates/istio.yaml");

const ENVOY_FILTER: &str = include_str!("templates/istio_envoy_filter.yaml");

const MANAGER: &str = include_str!("templates/istio_connection_manager.yaml");

const RATE_LIMIT: &str = include_str!("templates/istio_rate_limit.yaml");
