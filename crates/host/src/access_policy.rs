//! The origin of a configuration, and what it may reach.

use std::collections::BTreeSet;

use mixer_adapter_core::adapter::{Access, AccessLimits};

/// Where a configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Files of the operator.
    Operator,
    /// A configuration server, over MCP or xDS.
    Server,
    /// A call or a session.
    Call,
}

/// The files, hosts and adapters that configurations may use, by their origin. By default, configurations of servers, calls and sessions may
/// configure every adapter, and reach no file and no host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AccessPolicy {
    /// The limits of configurations of calls and sessions.
    pub calls: Access,
    /// The limits of configurations of servers.
    pub servers: Access,
    /// The adapters that calls and sessions may configure; `None` for all.
    pub adapters_in_calls: Option<BTreeSet<String>>,
}

impl Default for AccessPolicy {
    fn default() -> Self {
        Self::limited(AccessLimits::default())
    }
}

impl AccessPolicy {
    /// Lets every configuration reach everything: for tests, and programs that trust all of their clients.
    pub fn unrestricted() -> Self {
        let everything = Access::unrestricted();
        Self { calls: everything.clone(), servers: everything, adapters_in_calls: None }
    }

    /// Limits the configurations of calls, sessions and servers.
    pub fn limited(limits: AccessLimits) -> Self {
        let limited = Access::limited(limits);
        Self { calls: limited.clone(), servers: limited, adapters_in_calls: None }
    }

    pub(crate) fn of(&self, origin: Origin) -> Access {
        match origin {
            Origin::Operator => Access::unrestricted(),
            Origin::Server => self.servers.clone(),
            Origin::Call => self.calls.clone(),
        }
    }
}
