//! `envoy-config`: prints what Envoy, Istio and Envoy Gateway need to call this server.

mod rate_limits;
mod requirements;
mod tls;

use std::{collections::BTreeSet, net::SocketAddr};

use clap::Args;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::{
    UsageError,
    config_args::ConfigArgs,
    output_args::OutputArgs,
    template::{self, quoted},
    value_parsers::{self, DescriptorEntry, socket_path},
};
use mixer_adapter_config::ValidationError;
use mixer_adapter_engine::dispatch::OnFailure;
use rate_limits::RateLimits;
use requirements::Requirements;
use tls::ClientTls;

/// Print a configuration of Envoy, Istio or Envoy Gateway, with this server for authorization, rate limits and access logs
#[derive(Debug, Args)]
pub(super) struct EnvoyConfig {
    /// Address of the service behind Envoy, HOST:PORT or unix:PATH
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_parser = value_parsers::server,
        required_unless_present_any = ["istio", "gateway"]
    )]
    upstream: Option<String>,

    /// Address of this server's gRPC port, as Envoy reaches it, HOST:PORT or unix:PATH
    ///
    /// Several, separated by commas, are tried in turn
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9091", value_delimiter = ',', value_parser = value_parsers::server)]
    address: Vec<String>,

    /// Address that Envoy listens on; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10000", value_parser = value_parsers::address)]
    envoy_listen: SocketAddr,

    /// Address of Envoy's admin port [default: none]
    #[arg(long, value_name = "HOST:PORT", value_parser = value_parsers::address)]
    envoy_admin: Option<SocketAddr>,

    /// Check and log connections of any protocol instead of HTTP requests
    #[arg(
        long,
        conflicts_with_all = ["istio", "gateway", "namespace", "rate_limit", "descriptor", "count_response_bytes"]
    )]
    tcp: bool,

    /// Print resources for Istio
    ///
    /// Extension providers of MeshConfig, AuthorizationPolicy, Telemetry and EnvoyFilter
    #[arg(long, conflicts_with = "gateway")]
    istio: bool,

    /// Print resources for this Gateway of Envoy Gateway
    ///
    /// SecurityPolicy, EnvoyProxy, ReferenceGrant and EnvoyPatchPolicy
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        num_args = 0..=1,
        default_missing_value = "default/eg",
        value_parser = value_parsers::quota
    )]
    gateway: Option<String>,

    /// Listener of the Gateway whose rates are limited: its name, or its port for names by XDSNameSchemeV2
    ///
    /// That scheme is the default of Envoy Gateway since 1.10
    #[arg(long, value_name = "NAME|PORT", default_value = "http", value_parser = value_parsers::gateway_listener)]
    gateway_listener: String,

    /// Namespace whose rules apply to all requests of this Envoy
    ///
    /// Of Istio, the namespace of the policies
    #[arg(long, value_name = "NAMESPACE", value_parser = value_parsers::namespace)]
    namespace: Option<String>,

    /// Limit rates by this quota
    ///
    /// The name of an instance, or NAMESPACE/NAME. Can be repeated, or separated by commas [default: the quotas of the
    /// rules]
    #[arg(long, value_name = "QUOTA", value_delimiter = ',', value_parser = value_parsers::quota)]
    rate_limit: Vec<String>,

    /// An entry of the rate limit's descriptors with the value of a request header
    ///
    /// Of the quotas that read KEY. Requests without the header are not limited, unless the expression has another value. Can be
    /// repeated [default: the entries that the quota reads]
    #[arg(long, value_name = "KEY=HEADER", value_delimiter = ',', value_parser = value_parsers::descriptor_entry)]
    descriptor: Vec<DescriptorEntry>,

    /// Count the bytes of responses by this quota, at the end of requests
    ///
    /// Requests are limited once it is exhausted. Can be repeated, or separated by commas
    #[arg(long, value_name = "QUOTA", value_delimiter = ',', value_parser = value_parsers::quota)]
    count_response_bytes: Vec<String>,

    /// Let requests pass that could not be checked or limited, also while this server is away
    #[arg(long)]
    failure_mode_allow: bool,

    /// Let requests pass that have a header with an underscore in its name
    ///
    /// Many upstreams read x_user as x-user [default: only if a rule or a descriptor names such a header]
    #[arg(long, conflicts_with = "tcp")]
    allow_underscores: bool,

    /// Maximum size of a request's body that a check receives, if a rule reads it: 64Ki is 64 KiB
    ///
    /// Envoy buffers the body, and answers 413 to longer ones, unless a rule reads whether it is cut off
    #[arg(long, value_name = "BYTES", default_value = "8Ki", conflicts_with = "tcp", value_parser = value_parsers::body_bytes)]
    body_bytes: usize,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    tls: tls::EnvoyTlsArgs,

    #[command(flatten)]
    configuration: ConfigArgs,
}

impl EnvoyConfig {
    pub(super) fn run(&self, sample: Option<&'static str>) -> anyhow::Result<()> {
        let (set, faults) = self.configuration.read(sample)?;
        for fault in faults.iter().filter(|fault| fault.is_error()) {
            super::print_error(&fault.to_string());
        }
        anyhow::ensure!(
            self.configuration.lenient || !faults.iter().any(ValidationError::is_error),
            "the configuration has errors; `validate` lists all faults"
        );
        let requirements = Requirements::of(&set);
        RateLimits::check(self, &requirements)?;
        self.check_addresses()?;
        let document = template::render(&TEMPLATES, self.document(), &self.values(&requirements))?;
        self.output.print_documents(&document)
    }

    fn check_addresses(&self) -> Result<(), UsageError> {
        let sockets = self.address.iter().filter(|address| socket_path(address).is_some()).count();
        if sockets > 0 && (self.istio || self.gateway.is_some()) {
            return Err(UsageError(
                "--address: write HOST:PORT, the name of a service in the cluster".to_owned(),
            ));
        }
        if sockets > 0 && sockets < self.address.len() {
            return Err(UsageError(
                "--address: write either hosts or paths of Unix sockets, not both".to_owned(),
            ));
        }
        Ok(())
    }

    fn document(&self) -> &'static str {
        match self.gateway {
            Some(_) => "gateway",
            None if self.istio => "istio",
            None => "bootstrap",
        }
    }

    /// Returns the values of the templates.
    fn values(&self, requirements: &Requirements) -> Json {
        let limits = RateLimits::new(self, requirements);
        let address = self.address.first().map_or("", String::as_str);
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "9091"));
        let gateway = self.gateway.as_deref().unwrap_or_default();
        let (gateway_namespace, gateway) = gateway.split_once('/').unwrap_or(("default", gateway));
        let listener = match self.gateway_listener.parse::<u16>() {
            Ok(port) => format!("tcp-{port}"),
            Err(_) => format!("{gateway_namespace}/{gateway}/{}", self.gateway_listener),
        };
        let namespace = self.namespace.as_deref().or(self.istio.then_some("istio-system"));
        let clients = if self.istio { namespace.unwrap_or_default() } else { gateway_namespace };
        let mut labels = host.split('.');
        let (service, server_namespace) = (labels.next().unwrap_or(host), labels.next().unwrap_or(clients));
        // Istio's own cluster has the mutual TLS of the mesh.
        let cluster =
            if self.istio { format!("outbound|{port}||{host}") } else { "mixer_adapter".to_owned() };
        let upstream = self.upstream.as_ref().map(|upstream| Peer {
            discovery: discovery(upstream),
            endpoints: endpoint(upstream),
            tls: self.tls.upstream(upstream),
        });
        let server = Peer {
            discovery: discovery(address),
            endpoints: self.address.iter().map(|address| endpoint(address)).collect::<Vec<_>>().join(", "),
            tls: self.tls.server(address),
        };
        json!({
            "failure_mode_allow": self.failure_mode_allow,
            "undecided": self.outcome(OnFailure::Mixer),
            "on_match_error": self.outcome(self.configuration.policy().match_error),
            "on_adapter_error": self.outcome(self.configuration.policy().adapter_error),
            "on_timeout": self.outcome(self.configuration.policy().timeout),
            "request_headers": headers(&["content-type"], &requirements.request_headers),
            "response_headers": headers(&RESPONSE_TRAILERS, &requirements.response_headers),
            "response_trailers": RESPONSE_TRAILERS,
            "body": requirements.body,
            "body_bytes": self.body_bytes,
            // Without a rule that reads whether the body is cut off, padding would pass any rule on the rest.
            "body_part": requirements.body_part,
            "token": requirements.token,
            "underscores": self.allow_underscores || requirements.underscores || limits.have_underscores(),
            "domain": limits.domain,
            "limits": limits.limits,
            "tcp": self.tcp,
            "tls": self.tls,
            "admin": self.envoy_admin.map(socket),
            "listener": socket(self.envoy_listen),
            "cluster": cluster,
            "server": server,
            "upstream": upstream,
            "namespace": namespace,
            "gateway": gateway,
            "gateway_namespace": gateway_namespace,
            "gateway_listener": listener,
            "host": host,
            "port": port,
            "service": service,
            "server_namespace": server_namespace,
        })
    }

    /// Returns what happens to requests by the policy for a failure in the server.
    fn outcome(&self, policy: OnFailure) -> &'static str {
        match policy {
            OnFailure::Open => "PASSES this rule",
            OnFailure::Closed => "denied",
            OnFailure::Mixer | OnFailure::Fail if self.failure_mode_allow => "PASSES",
            OnFailure::Mixer | OnFailure::Fail => "503",
        }
    }
}

const TEMPLATES: [(&str, &str); 13] = [
    ("body_comment", include_str!("envoy_config/templates/body_comment.yaml")),
    ("bootstrap", include_str!("envoy_config/templates/bootstrap.yaml")),
    ("connections", include_str!("envoy_config/templates/connections.yaml")),
    ("failure_modes", include_str!("envoy_config/templates/failure_modes.yaml")),
    ("gateway", include_str!("envoy_config/templates/gateway.yaml")),
    ("grpc_service", include_str!("envoy_config/templates/grpc_service.yaml")),
    ("istio", include_str!("envoy_config/templates/istio.yaml")),
    ("log_common", include_str!("envoy_config/templates/log_common.yaml")),
    ("rate_limit", include_str!("envoy_config/templates/rate_limit.yaml")),
    ("reject_underscores", include_str!("envoy_config/templates/reject_underscores.yaml")),
    ("requests", include_str!("envoy_config/templates/requests.yaml")),
    ("server_cluster", include_str!("envoy_config/templates/server_cluster.yaml")),
    ("tls_client", include_str!("envoy_config/templates/tls_client.yaml")),
];

/// A server that Envoy connects to.
#[derive(Serialize)]
struct Peer<'a> {
    discovery: &'static str,
    endpoints: String,
    tls: Option<ClientTls<'a>>,
}

/// Headers and trailers of responses that access logs need for attributes of every configuration.
const RESPONSE_TRAILERS: [&str; 2] = ["grpc-status", "grpc-message"];

/// The logged headers: `always`, and the headers that reports read.
fn headers<'a>(always: &[&'a str], read: &'a BTreeSet<String>) -> Vec<&'a str> {
    let read = read.iter().map(String::as_str).filter(|name| !always.contains(name));
    always.iter().copied().chain(read).collect()
}

fn socket(address: SocketAddr) -> String {
    socket_address(&address.ip().to_string(), address.port())
}

fn socket_address(host: &str, port: u16) -> String {
    format!("{{socket_address: {{address: {}, port_value: {port}}}}}", quoted(host))
}

/// The type of a cluster with this address. Sockets have no names to resolve.
fn discovery(address: &str) -> &'static str {
    if socket_path(address).is_some() { "STATIC" } else { "STRICT_DNS" }
}

/// Returns the endpoint of an address with a port, or of a Unix socket; the parser of the flag has checked it.
fn endpoint(address: &str) -> String {
    let address = match socket_path(address) {
        Some(path) => format!("{{pipe: {{path: {}}}}}", quoted(path)),
        None => {
            let (host, port) = host_and_port(address);
            socket_address(host, port.parse().unwrap_or_default())
        }
    };
    format!("{{endpoint: {{address: {address}}}}}")
}

/// Splits an address, and removes the brackets of IPv6.
fn host_and_port(address: &str) -> (&str, &str) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}
