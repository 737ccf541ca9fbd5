//! The filters and access logs of Envoy that call this server, the same for all products that run Envoy.

use std::fmt::Write as _;

use super::{
    EnvoyConfig,
    rate_limits::RateLimits,
    requirements::Requirements,
    template::{fill, list, quoted},
};

/// The part of a request's body that a check receives.
pub(super) const BODY_BYTES: u32 = 8192;

/// Headers of requests, and headers and trailers of responses, that access logs need for attributes of every configuration.
const REQUEST_HEADERS: [&str; 1] = ["content-type"];
pub(super) const RESPONSE_TRAILERS: [&str; 2] = ["grpc-status", "grpc-message"];

/// The parts of a configuration of Envoy.
pub(super) struct Filters<'a> {
    options: &'a EnvoyConfig,
    requirements: &'a Requirements,
    /// The name of the cluster of this server.
    cluster: String,
}

impl<'a> Filters<'a> {
    pub(super) fn new(options: &'a EnvoyConfig, requirements: &'a Requirements) -> Self {
        Self { options, requirements, cluster: "mixer_adapter".to_owned() }
    }

    /// Calls this server by a cluster that Envoy has already.
    pub(super) fn with_cluster(self, cluster: String) -> Self {
        Self { cluster, ..self }
    }

    /// The calls of this server, with further metadata.
    fn grpc_service(&self, metadata: &str) -> String {
        fill(GRPC_SERVICE, &[("$CLUSTER", &quoted(&self.cluster)), ("$METADATA", metadata)])
    }

    /// The authorization filter of HTTP.
    pub(super) fn authorization(&self) -> String {
        let body = if self.requirements.body {
            fill(
                BODY,
                &[
                    ("$COMMENT", &self.body_comment()),
                    ("$BYTES", &BODY_BYTES.to_string()),
                    ("$PART", self.body_part()),
                ],
            )
        } else {
            String::new()
        };
        let token = if self.requirements.token { TOKEN } else { "" };
        fill(
            AUTHORIZATION,
            &[
                ("$GRPC_SERVICE", &self.grpc_service("")),
                ("$BODY", &body),
                ("$TOKEN", token),
                ("$FAILURE_MODE_ALLOW", self.failure_mode_allow()),
            ],
        )
    }

    /// The authorization filter of connections.
    pub(super) fn connection_authorization(&self) -> String {
        fill(
            CONNECTION_AUTHORIZATION,
            &[("$GRPC_SERVICE", &self.grpc_service("")), ("$FAILURE_MODE_ALLOW", self.failure_mode_allow())],
        )
    }

    /// Whether a longer body is cut off. Without a rule that reads whether it is, padding would pass any rule on the rest.
    pub(super) fn body_part(&self) -> &'static str {
        if self.requirements.body_part { "true" } else { "false" }
    }

    /// A comment about longer bodies.
    pub(super) fn body_comment(&self) -> String {
        if self.requirements.body_part {
            return format!(
                "# A rule reads request.body: the first {BODY_BYTES} bytes, and request.body_truncated."
            );
        }
        format!(
            "# A rule reads request.body: it is buffered, and requests with more than {BODY_BYTES} bytes get 413."
        )
    }

    fn failure_mode_allow(&self) -> &'static str {
        if self.options.failure_mode_allow { "true" } else { "false" }
    }

    /// The rate limit filter; empty without a quota.
    pub(super) fn rate_limit(&self, limits: &RateLimits) -> String {
        if limits.is_empty() {
            return String::new();
        }
        let deny = if self.options.failure_mode_allow { "false" } else { "true" };
        fill(
            RATE_LIMIT,
            &[
                ("$GRPC_SERVICE", &self.grpc_service(REQUEST_ID)),
                ("$DOMAIN", limits.domain()),
                ("$LIMITS", &limits.to_yaml()),
                ("$FAILURE_MODE_DENY", deny),
            ],
        )
    }

    /// The access log of HTTP.
    pub(super) fn access_log(&self) -> String {
        fill(
            ACCESS_LOG,
            &[
                ("$COMMON", LOG_COMMON),
                ("$REQUEST_HEADERS", &list(self.request_headers())),
                ("$RESPONSE_HEADERS", &list(self.response_headers())),
                ("$TRAILERS", &list(RESPONSE_TRAILERS)),
            ],
        )
    }

    /// The access log of connections.
    pub(super) fn connection_log() -> String {
        fill(CONNECTION_LOG, &[("$COMMON", LOG_COMMON)])
    }

    /// The headers of requests that are logged.
    pub(super) fn request_headers(&self) -> impl Iterator<Item = &str> {
        let read = self.requirements.request_headers.iter().map(String::as_str);
        REQUEST_HEADERS.into_iter().chain(read.filter(|name| !REQUEST_HEADERS.contains(name)))
    }

    /// The headers of responses that are logged.
    pub(super) fn response_headers(&self) -> impl Iterator<Item = &str> {
        let read = self.requirements.response_headers.iter().map(String::as_str);
        RESPONSE_TRAILERS.into_iter().chain(read.filter(|name| !RESPONSE_TRAILERS.contains(name)))
    }

    /// What the listener does to names of headers with underscores.
    pub(super) fn underscores(&self, limits: &RateLimits) -> &'static str {
        if self.options.allow_underscores || self.requirements.underscores || limits.have_underscores() {
            return "";
        }
        REJECT_UNDERSCORES
    }

    /// A comment with what happens to requests that cannot be decided.
    pub(super) fn failure_modes(&self) -> String {
        let passes = |is_open: bool, otherwise: &'static str| if is_open { "PASSES" } else { otherwise };
        let policy = self.options.configuration.policy();
        let mut text = String::new();
        let mut line = |what: &str, outcome: &str| {
            let _ = writeln!(text, "# * {what}: {outcome}");
        };
        let allow = self.options.failure_mode_allow;
        line("a request while no server answers, or that could not be checked", passes(allow, "503"));
        line("a request whose rate could not be determined", passes(allow, "503"));
        line(
            "a request for which the condition of a rule cannot be evaluated",
            of_policy(policy.match_error, allow),
        );
        line("a request for which an adapter fails", of_policy(policy.adapter_error, allow));
        line("a request for which an adapter does not answer in time", of_policy(policy.timeout, allow));
        line("entries of access logs while no server answers", "lost");
        text
    }
}

/// The outcome of a failure in the server by its policy.
fn of_policy(policy: mixer_adapter_engine::dispatch::OnFailure, failure_mode_allow: bool) -> &'static str {
    use mixer_adapter_engine::dispatch::OnFailure;
    match policy {
        OnFailure::Open => "PASSES this rule",
        OnFailure::Closed => "denied",
        OnFailure::Mixer | OnFailure::Fail if failure_mode_allow => "PASSES",
        OnFailure::Mixer | OnFailure::Fail => "503",
    }
}

/// The calls of this server. The timeout is for all tries, so that a restart of the server fails no request.
const GRPC_SERVICE: &str = r#"envoy_grpc: {cluster_name: $CLUSTER}
# For all tries: requests wait for a server that is away for up to 1.5 s.
timeout: 2.5s
initial_metadata:
# For one try, which Envoy otherwise ends after the max_interval of the retries, also while an adapter is working.
- {key: x-envoy-upstream-rq-per-try-timeout-ms, value: "2500"}
$METADATA
retry_policy:
  # Enough for all of this time: the waits between tries are random, 0.1 s on average.
  num_retries: 40
  retry_on: connect-failure,refused-stream,reset
  retry_back_off: {base_interval: 0.05s, max_interval: 0.2s}
  # Another server first, where there are several.
  host_selection_retry_max_attempts: 3
  retry_host_predicate:
  - name: envoy.retry_host_predicates.previous_hosts
    typed_config: {"@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate}
"#;

const REJECT_UNDERSCORES: &str = "# Many upstreams read x_user as x-user, which a rule on x-user does not. --allow-underscores lets such requests pass.
common_http_protocol_options: {headers_with_underscores_action: REJECT_REQUEST}
";

const AUTHORIZATION: &str = r#"name: envoy.filters.http.ext_authz
typed_config:
  "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
  transport_api_version: V3
  grpc_service:
    $GRPC_SERVICE
  # If a request could not be checked: true lets it pass, false answers with status_on_error.
  failure_mode_allow: $FAILURE_MODE_ALLOW
  status_on_error: {code: ServiceUnavailable}
  validate_mutations: true
  $BODY
  # Needed by source.principal, connection.requested_server_name, request.auth..., rbac..., source.labels.
  include_peer_certificate: true
  include_tls_session: true
  $TOKEN
  metadata_context_namespaces: [envoy.filters.http.jwt_authn, envoy.filters.http.rbac, mixer_adapter]
  route_metadata_context_namespaces: [mixer_adapter]
  bootstrap_metadata_labels_key: labels
"#;

const BODY: &str = "$COMMENT
with_request_body: {max_request_bytes: $BYTES, allow_partial_message: $PART}
";

const TOKEN: &str = "# A rule reads request.auth...: put the filter envoy.filters.http.jwt_authn before this one, with payload_in_metadata.
";

const CONNECTION_AUTHORIZATION: &str = r#"name: envoy.filters.network.ext_authz
typed_config:
  "@type": type.googleapis.com/envoy.extensions.filters.network.ext_authz.v3.ExtAuthz
  stat_prefix: front
  transport_api_version: V3
  grpc_service:
    $GRPC_SERVICE
  # If a connection could not be checked: true lets it pass, false closes it.
  failure_mode_allow: $FAILURE_MODE_ALLOW
  include_peer_certificate: true
  include_tls_session: true
  bootstrap_metadata_labels_key: labels
"#;

const RATE_LIMIT: &str = r#"name: envoy.filters.http.ratelimit
typed_config:
  "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
  domain: $DOMAIN
  timeout: 2.5s
  # If a rate could not be determined: false lets the request pass, true answers with status_on_error.
  failure_mode_deny: $FAILURE_MODE_DENY
  status_on_error: {code: ServiceUnavailable}
  rate_limited_as_resource_exhausted: true
  enable_x_ratelimit_headers: DRAFT_VERSION_03
  enable_retry_after_header: true
  rate_limits:
  $LIMITS
  rate_limit_service:
    transport_api_version: V3
    grpc_service:
      $GRPC_SERVICE
"#;

const REQUEST_ID: &str = "# A call that is repeated has the same id, and counts once with --trust-request-id.
- {key: x-request-id, value: \"%REQ(x-request-id)%\"}
";

const ACCESS_LOG: &str = r#"name: envoy.access_loggers.http_grpc
typed_config:
  "@type": type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig
  common_config:
    $COMMON
  # Headers that reports read, and those of context.protocol and response.grpc_status.
  additional_request_headers_to_log: $REQUEST_HEADERS
  additional_response_headers_to_log: $RESPONSE_HEADERS
  additional_response_trailers_to_log: $TRAILERS
"#;

const CONNECTION_LOG: &str = r#"name: envoy.access_loggers.tcp_grpc
typed_config:
  "@type": type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig
  common_config:
    $COMMON
"#;

const LOG_COMMON: &str = "log_name: mixer-adapter
transport_api_version: V3
grpc_service: {envoy_grpc: {cluster_name: mixer_adapter}}
# Entries wait at most this long, and are lost if no server answers then.
buffer_flush_interval: 1s
buffer_size_bytes: 65536
# The workloads of peers, which Envoys of Istio exchange: source.labels, destination.workload.name and the like.
filter_state_objects_to_log: [downstream_peer, upstream_peer]
";
