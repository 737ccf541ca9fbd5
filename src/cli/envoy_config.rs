//! `envoy-config`: prints what Envoy, Istio and Envoy Gateway need to call this server.

mod bootstrap;
mod filters;
mod gateway;
mod istio;
mod rate_limits;
mod requirements;
mod template;
mod tls;

use std::{net::SocketAddr, process::ExitCode};

use clap::Args;

use super::{
    UsageError,
    config_args::ConfigArgs,
    output_args::OutputArgs,
    value_parsers::{self, DescriptorEntry, socket_path},
};
use rate_limits::RateLimits;
use requirements::Requirements;

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

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    tls: tls::EnvoyTlsArgs,

    #[command(flatten)]
    configuration: ConfigArgs,
}

impl EnvoyConfig {
    pub(super) fn run(&self, sample: Option<&'static str>) -> anyhow::Result<ExitCode> {
        let (set, faults) = self.configuration.read(sample)?;
        for fault in faults.iter().filter(|fault| fault.is_error()) {
            super::print_error(&fault.to_string());
        }
        anyhow::ensure!(
            !faults.iter().any(mixer_adapter_config::ValidationError::is_error),
            "the configuration has errors; `validate` lists all faults"
        );
        let requirements = Requirements::of(&set);
        RateLimits::check(self, &requirements)?;
        self.check_addresses()?;
        let document = self.document(&requirements)?;
        match self.output.data() {
            Some(data) => data.print_documents(&document)?,
            None => super::print(&document)?,
        }
        Ok(ExitCode::SUCCESS)
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

    fn document(&self, requirements: &Requirements) -> Result<String, UsageError> {
        match (&self.gateway, &self.upstream) {
            (Some(gateway), _) => Ok(gateway::gateway(self, requirements, gateway)),
            (None, _) if self.istio => Ok(istio::istio(self, requirements)),
            (None, Some(upstream)) => Ok(bootstrap::bootstrap(self, requirements, upstream)),
            (None, None) => Err(UsageError("--upstream: required for a bootstrap of Envoy".to_owned())),
        }
    }
}
