//! Checks of the other end of a stream against the rules of MCP and xDS (docs/behaviour/xds.md#rules-for-servers).
//!
//! [`ServerRules`] and [`ClientRules`] observe the messages of a stream and return what breaks a rule; they have no sockets. [`certify`]
//! asks a server what an ordinary client would not, and reports on each check.

mod client_rules;
mod probe;
mod server_rules;

use serde::Serialize;

use crate::{MAX_TEXT, truncate};

pub use client_rules::ClientRules;
pub use probe::{Certification, certify};
pub use server_rules::ServerRules;

/// The number of violations of one stream that are reported.
const MAX_VIOLATIONS: usize = 100;

/// A rule that a message breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// What happened instead.
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
    /// The peer follows the rule.
    Passed,
    /// The rule is broken: what was observed.
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
    /// Whether the server follows it.
    pub outcome: Outcome,
}

/// What goes over a stream, as far as rules differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The Mesh Configuration Protocol.
    Mcp,
    /// Whole sets of xDS.
    Sotw,
    /// Changes of xDS.
    Delta,
}
