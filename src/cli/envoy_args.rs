//! Flags of the services of Envoy.

use std::sync::Arc;

use clap::{Args, builder::TypedValueParser};
use tokio::runtime::Handle;

use super::value_parsers;
use mixer_adapter_engine::Mixer;
use mixer_adapter_envoy::{AddedHeader, FailureAnswer, HostPattern, Options, Services};

/// How requests of Envoy are treated.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests of Envoy")]
pub(super) struct EnvoyArgs {
    /// The namespace of a host
    ///
    /// For requests whose route does not set destination.namespace. HOST=NAMESPACE, where HOST can be *.DOMAIN or *. Can be repeated
    #[arg(long, value_name = "HOST=NAMESPACE", value_delimiter = ',', value_parser = value_parsers::host_namespace)]
    envoy_namespace: Vec<(HostPattern, String)>,

    /// Trusted proxies in front of Envoy, for origin.ip
    ///
    /// The number of addresses at the end of x-forwarded-for that they added
    #[arg(long, value_name = "N", default_value_t = 0)]
    envoy_trusted_hops: usize,

    /// Take source.principal from x-forwarded-client-cert if the connection to Envoy has no client certificate
    ///
    /// Only where Envoy removes or overwrites this header of its clients
    #[arg(long, hide_short_help = true)]
    envoy_trust_xfcc: bool,

    /// The answer to Envoy if a request could not be checked
    ///
    /// `unavailable` is that gRPC error, `error-response` an error response with status 503. Envoy applies its failure
    /// mode to both
    #[arg(long, hide_short_help = true, value_name = "ANSWER", default_value = "unavailable", value_parser = failure_answer())]
    envoy_failure: FailureAnswer,

    /// Maximum size of the cache of answers to checks of Envoy, each valid as long as its adapters allow
    ///
    /// 32Mi is 32 MiB, 0 disables it [default: a twelfth of --memory-limit]
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = value_parsers::bytes)]
    pub(super) envoy_check_cache: Option<usize>,

    /// Add the id of each decision to the request and to the response, as this header
    #[arg(long, hide_short_help = true, value_name = "HEADER")]
    envoy_decision_header: Option<AddedHeader>,

    /// Recognize calls for rate limits that Envoy repeats by their header x-request-id, and count them once
    ///
    /// Only where Envoy overwrites this header of its clients
    #[arg(long, hide_short_help = true)]
    trust_request_id: bool,
}

impl EnvoyArgs {
    /// The services with these options, with tasks on `runtime`.
    pub(super) fn services(&self, mixer: &Arc<Mixer>, runtime: &Handle) -> Arc<Services> {
        let mut options = Options::default();
        options.mapping = options.mapping.with_namespaces(self.envoy_namespace.clone());
        options.mapping.trusted_hops = self.envoy_trusted_hops;
        options.mapping.trust_forwarded_client_cert = self.envoy_trust_xfcc;
        options.failure_answer = self.envoy_failure;
        options.decision_header = self.envoy_decision_header.clone();
        options.trust_request_id = self.trust_request_id;
        Arc::new(Services::new(mixer.clone(), options, runtime))
    }
}

fn failure_answer() -> impl TypedValueParser<Value = FailureAnswer> {
    value_parsers::one_of([
        ("unavailable", FailureAnswer::Unavailable),
        ("error-response", FailureAnswer::ErrorResponse),
    ])
}
