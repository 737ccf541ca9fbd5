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

    /// Returns how the listener treats headers with underscores in their names.
    pub(super) fn underscores(&self, limits: &RateLimits) -> &'static str {
        if self.options.allow_underscores || self.requirements.underscores || limits.have_underscores() {
            return "";
        }
        REJECT_UNDERSCORES
    }

    /// A comment with what happens to requests that cannot be decided.
    pub(super) fn failure_modes(&self) -> String {
        let policy = self.options.configuration.policy();
        let mut text = String::new();
        let mut line = |what: &str, outcome: &str| {
            let _ = writeln!(text, "# * {what}: {outcome}");
        };
        let allow = self.options.failure_mode_allow;
        let passes = if allow { "PASSES" } else { "503" };
        line("a request while no server answers, or that could not be checked", passes);
        line("a request whose rate could not be determined", passes);
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
const GRPC_SERVICE: &str = include_str!("templates/grpc_service.yaml");

const REJECT_UNDERSCORES: &str = include_str!("templates/reject_underscores.yaml");

const AUTHORIZATION: &str = include_str!("templates/authorization.yaml");

const BODY: &str = include_str!("templates/body.yaml");

const TOKEN: &str = include_str!("templates/token.yaml");

const CONNECTION_AUTHORIZATION: &str = include_str!("templates/connection_authorization.yaml");

const RATE_LIMIT: &str = include_str!("templates/rate_limit.yaml");

const REQUEST_ID: &str = include_str!("templates/request_id.yaml");

const ACCESS_LOG: &str = include_str!("templates/access_log.yaml");

const CONNECTION_LOG: &str = include_str!("templates/connection_log.yaml");

const LOG_COMMON: &str = include_str!("templates/log_common.yaml");
