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

const RESOURCES: &str = include_str!("templates/gateway.yaml");

/// By default Envoy Gateway rejects requests with such headers.
const UNDERSCORES: &str = include_str!("templates/gateway_underscores.yaml");

const RATE_LIMIT: &str = include_str!("templates/gateway_rate_limit.yaml");
