use crate::{
    attributes::{HostPattern, NamespaceMap},
    headers::AddedHeader,
};

/// Options of the services.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// How requests become attributes.
    pub mapping: MappingOptions,
    /// The answer to a request that could not be checked.
    pub failure_answer: FailureAnswer,
    /// The header of requests to the upstream and of responses that has the id of the decision.
    pub decision_header: Option<AddedHeader>,
    /// Count repeated calls for rate limits once, by their header `x-request-id`. Clients can choose it unless Envoy overwrites it.
    pub trust_request_id: bool,
}

/// How requests become attributes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MappingOptions {
    /// Number of trusted proxies in front of Envoy; each adds an address to `x-forwarded-for`.
    pub trusted_hops: usize,
    /// Take the source's identity from `x-forwarded-client-cert` if the connection has none.
    pub trust_forwarded_client_cert: bool,
    pub(crate) namespaces: NamespaceMap,
}

impl MappingOptions {
    /// Sets the namespaces of hosts.
    #[must_use]
    pub fn with_namespaces(mut self, entries: Vec<(HostPattern, String)>) -> Self {
        self.namespaces = NamespaceMap::new(entries);
        self
    }
}

/// The answer to a request that could not be checked. In both cases Envoy counts an error and applies its own
/// `failure_mode_allow`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureAnswer {
    /// The gRPC error UNAVAILABLE, which Envoy can retry; it responds with `status_on_error`, by default 403.
    #[default]
    Unavailable,
    /// An `error_response` with status 503.
    ErrorResponse,
}
