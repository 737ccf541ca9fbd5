//! `envoy-config`: prints a bootstrap for an Envoy in front of this server.

use std::{fmt::Write as _, process::ExitCode};

use clap::Args;

use super::{value_parsers, value_parsers::DescriptorEntry};

pub(super) const EXAMPLES: &str = "\
Examples:
  mixer-adapter envoy-config --upstream 127.0.0.1:8080 > envoy.yaml && envoy -c envoy.yaml
  mixer-adapter envoy-config --upstream 127.0.0.1:8080 --rate-limit requestcount --descriptor user=x-user
  mixer-adapter envoy-config --upstream shop.example.com:80 --address mixer-adapter.example.com:9091 --namespace shop";

/// Print a bootstrap for Envoy with external authorization, rate limits and access logs by this server
#[derive(Debug, Args)]
pub(super) struct EnvoyConfig {
    /// Address of the service behind Envoy
    #[arg(long, value_name = "HOST:PORT", env = "MIXER_ADAPTER_UPSTREAM", value_parser = value_parsers::target)]
    upstream: String,

    /// Address of this server's gRPC port, as Envoy reaches it
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9091", env = "MIXER_ADAPTER_ADDRESS", value_parser = value_parsers::target)]
    address: String,

    /// Address that Envoy listens on; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10000", env = "MIXER_ADAPTER_ENVOY_LISTEN", value_parser = value_parsers::address)]
    envoy_listen: std::net::SocketAddr,

    /// Namespace whose rules apply to all requests of this Envoy
    #[arg(long, value_name = "NAMESPACE", env = "MIXER_ADAPTER_NAMESPACE", value_parser = value_parsers::namespace)]
    namespace: Option<String>,

    /// Limit rates by this quota: the name of an instance, or NAMESPACE/NAME
    #[arg(long, value_name = "QUOTA", env = "MIXER_ADAPTER_RATE_LIMIT", value_parser = value_parsers::quota)]
    rate_limit: Option<String>,

    /// An entry of the rate limit's descriptor with the value of a request header. Can be repeated; requests without one of
    /// the headers are not limited [default: remote_address, with the client's address]
    #[arg(long, value_name = "KEY=HEADER", env = "MIXER_ADAPTER_DESCRIPTOR", value_delimiter = ',', requires = "rate_limit", value_parser = value_parsers::descriptor_entry)]
    descriptor: Vec<DescriptorEntry>,

    /// Let requests pass that could not be checked or limited, also while this server is away
    #[arg(long, env = "MIXER_ADAPTER_FAILURE_MODE_ALLOW", value_parser = value_parsers::switch(), action = clap::ArgAction::SetTrue)]
    failure_mode_allow: bool,
}

impl EnvoyConfig {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        super::print(&self.bootstrap())?;
        Ok(ExitCode::SUCCESS)
    }

    fn bootstrap(&self) -> String {
        let mut text = BOOTSTRAP
            .replace("$LISTEN", &socket(&self.envoy_listen.ip().to_string(), self.envoy_listen.port()))
            .replace("$SERVER", &endpoint(&self.address))
            .replace("$UPSTREAM", &endpoint(&self.upstream))
            .replace("$FAILURE_MODE_ALLOW", if self.failure_mode_allow { "true" } else { "false" })
            .replace("$ROUTE_CONFIG", &self.route_config());
        text = text.replace("$RATE_LIMIT\n", &self.rate_limit());
        text
    }

    /// What the route has in addition.
    fn route_config(&self) -> String {
        match &self.namespace {
            None => String::new(),
            Some(namespace) => CONTEXT.replace("$NAMESPACE", namespace),
        }
    }

    fn rate_limit(&self) -> String {
        let Some(quota) = &self.rate_limit else { return String::new() };
        let mut actions = String::new();
        for DescriptorEntry { key, header } in &self.descriptor {
            let _ =
                write!(actions, "{{request_headers: {{descriptor_key: {key}, header_name: {header}}}}}, ");
        }
        if self.descriptor.is_empty() {
            actions.push_str("{remote_address: {}}, ");
        }
        let actions = actions.trim_end_matches(", ");
        let deny = if self.failure_mode_allow { "false" } else { "true" };
        RATE_LIMIT.replace("$QUOTA", quota).replace("$ACTIONS", actions).replace("$FAILURE_MODE_DENY", deny)
    }
}

fn socket(host: &str, port: u16) -> String {
    format!("{{socket_address: {{address: \"{host}\", port_value: {port}}}}}")
}

/// The endpoint of an address; the parser of the flag has checked that it has a port.
fn endpoint(address: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    socket(host.trim_start_matches('[').trim_end_matches(']'), port.parse().unwrap_or_default())
}

const CONTEXT: &str = "
              typed_per_filter_config:
                envoy.filters.http.ext_authz:
                  \"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute
                  check_settings: {context_extensions: {destination.namespace: $NAMESPACE}}";

const BOOTSTRAP: &str = r#"static_resources:
  listeners:
  - name: front
    address: $LISTEN
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          # The client is the peer of the connection; addresses in x-forwarded-for of clients do not count.
          use_remote_address: true
          # Clients cannot choose the id of a request.
          preserve_external_request_id: false
          # Rules see the path that the upstream will see.
          normalize_path: true
          merge_slashes: true
          path_with_escaped_slashes_action: UNESCAPE_AND_REDIRECT
          route_config:
            name: routes
            virtual_hosts:
            - name: upstream
              domains: ["*"]$ROUTE_CONFIG
              routes: [{match: {prefix: /}, route: {cluster: upstream}}]
          access_log:
          - name: envoy.access_loggers.http_grpc
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig
              common_config:
                log_name: mixer-adapter
                transport_api_version: V3
                grpc_service: {envoy_grpc: {cluster_name: mixer_adapter}}
                # Entries wait at most this long. What a server that is away would have received is lost.
                buffer_flush_interval: 1s
              additional_request_headers_to_log: [content-type]
              additional_response_headers_to_log: [grpc-status, grpc-message]
              additional_response_trailers_to_log: [grpc-status, grpc-message]
          http_filters:
          - name: envoy.filters.http.ext_authz
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
              transport_api_version: V3
              grpc_service:
                envoy_grpc: {cluster_name: mixer_adapter}
                # For all tries together.
                timeout: 2.5s
                retry_policy: &retry
                  num_retries: 20
                  retry_on: connect-failure,refused-stream,reset
                  retry_back_off: {base_interval: 0.05s, max_interval: 0.2s}
              # If a request could not be checked: false responds with status_on_error.
              failure_mode_allow: $FAILURE_MODE_ALLOW
              status_on_error: {code: ServiceUnavailable}
              validate_mutations: true
              include_peer_certificate: true
              include_tls_session: true
              metadata_context_namespaces: [envoy.filters.http.jwt_authn, envoy.filters.http.rbac, mixer_adapter]
              route_metadata_context_namespaces: [mixer_adapter]
              bootstrap_metadata_labels_key: labels
$RATE_LIMIT
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: mixer_adapter
    type: STRICT_DNS
    connect_timeout: 1s
    # Retries are limited by the policies above.
    circuit_breakers: {thresholds: [{max_retries: 1000}]}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {connection_keepalive: {interval: 10s, timeout: 2s}}}
    load_assignment: {cluster_name: mixer_adapter, endpoints: [{lb_endpoints: [{endpoint: {address: $SERVER}}]}]}
  - name: upstream
    type: STRICT_DNS
    connect_timeout: 1s
    load_assignment: {cluster_name: upstream, endpoints: [{lb_endpoints: [{endpoint: {address: $UPSTREAM}}]}]}
"#;

const RATE_LIMIT: &str = r#"          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: $QUOTA
              timeout: 2.5s
              # If a rate could not be determined: true responds with status_on_error.
              failure_mode_deny: $FAILURE_MODE_DENY
              status_on_error: {code: ServiceUnavailable}
              rate_limited_as_resource_exhausted: true
              enable_x_ratelimit_headers: DRAFT_VERSION_03
              enable_retry_after_header: true
              rate_limits:
              - actions: [$ACTIONS]
              rate_limit_service:
                transport_api_version: V3
                grpc_service: {envoy_grpc: {cluster_name: mixer_adapter}, timeout: 2.5s, retry_policy: *retry}
"#;
