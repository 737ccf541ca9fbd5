//! Checks of the other end of a stream against the rules of MCP and xDS (docs/behaviour/xds.md#rules-for-servers).
//!
//! [`ServerRules`] and [`ClientRules`] observe the messages of a stream and return violations; they have no sockets.
//! [`certify`] sends a server requests that an ordinary client would not send, and reports each check.

pub(crate) mod client_rules;
mod probe;
mod response_rules;
mod server_rules;

use std::{io, time::Duration};

use serde::Serialize;

use crate::{
    stream::{peer::Peer, sink::dialect::Variant},
    xds::sink::dial::ApiVersion,
};
use mixer_adapter_config::{MAX_TEXT, truncate};

pub use client_rules::ClientRules;
pub use probe::{Certification, certify};
pub use server_rules::ServerRules;

/// The number of violations of one stream that are reported.
const MAX_VIOLATIONS: usize = 100;

/// A violation of a rule by a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// The observation.
    pub observed: String,
}

impl Violation {
    fn new(rule: &'static str, observed: impl Into<String>) -> Self {
        Self { rule, observed: truncate(&observed.into(), MAX_TEXT) }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The peer complies with the rule.
    Passed,
    /// The peer violates the rule, with the observation.
    Failed(String),
    /// The check was not possible, for this reason.
    Skipped(String),
}

/// A check of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// The rule.
    pub rule: &'static str,
    /// The type or collection of the result: the first that failed, if one did.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub type_url: String,
    /// The result for the rule.
    pub outcome: Outcome,
}

/// A protocol with rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// The Mesh Configuration Protocol.
    Mcp,
    /// The predecessor of MCP, `AggregatedMeshConfigService`.
    Aggregated(Variant),
    /// Streams of xDS, in a version of Envoy's API.
    Xds(ApiVersion, Variant),
    /// xDS over HTTP.
    Rest,
}

impl Protocol {
    /// Returns whether responses contain changes rather than whole sets.
    fn is_delta(self) -> bool {
        matches!(self, Self::Aggregated(Variant::Delta) | Self::Xds(_, Variant::Delta))
    }
}

/// The reason why a server cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertifyError {
    /// The connection failed.
    #[error("{0}: cannot connect: {1}")]
    Connect(Peer, io::Error),
    /// The connection timed out.
    #[error("{0}: no connection within {1:?}")]
    Timeout(Peer, Duration),
}
