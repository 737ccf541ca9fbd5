use crate::proto::envoy::data::accesslog::v3::ResponseFlags;

/// Returns the short names of the flags that are set, as in Envoy's text logs, joined by commas; `-` if there are none.
pub(super) fn short_names(flags: &ResponseFlags) -> String {
    let names = [
        (flags.failed_local_healthcheck, "LH"),
        (flags.no_healthy_upstream, "UH"),
        (flags.upstream_request_timeout, "UT"),
        (flags.local_reset, "LR"),
        (flags.upstream_remote_reset, "UR"),
        (flags.upstream_connection_failure, "UF"),
        (flags.upstream_connection_termination, "UC"),
        (flags.upstream_overflow, "UO"),
        (flags.no_route_found, "NR"),
        (flags.delay_injected, "DI"),
        (flags.fault_injected, "FI"),
        (flags.rate_limited, "RL"),
        (flags.unauthorized_details.is_some(), "UAEX"),
        (flags.rate_limit_service_error, "RLSE"),
        (flags.downstream_connection_termination, "DC"),
        (flags.upstream_retry_limit_exceeded, "URX"),
        (flags.stream_idle_timeout, "SI"),
        (flags.invalid_envoy_request_headers, "IH"),
        (flags.downstream_protocol_error, "DPE"),
        (flags.upstream_max_stream_duration_reached, "UMSDR"),
        (flags.response_from_cache_filter, "RFCF"),
        (flags.no_filter_config_found, "NFCF"),
        (flags.duration_timeout, "DT"),
        (flags.upstream_protocol_error, "UPE"),
        (flags.no_cluster_found, "NC"),
        (flags.overload_manager, "OM"),
        (flags.dns_resolution_failure, "DF"),
        (flags.downstream_remote_reset, "DR"),
    ];
    let set: Vec<&str> = names.into_iter().filter_map(|(is_set, name)| is_set.then_some(name)).collect();
    if set.is_empty() { "-".to_owned() } else { set.join(",") }
}
