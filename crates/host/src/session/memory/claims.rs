//! Claims on a session, with their owners.

use std::sync::Arc;

use super::{super::Session, claim_bytes, holdings::Owner};
use crate::handler::Caller;

#[derive(Debug)]
pub(super) struct StoredSession {
    pub(super) session: Arc<Session>,
    pub(super) claims: Vec<Claims>,
    /// The number of claims whose owners are gone.
    pub(super) abandoned: u32,
    /// The order of its newest claim.
    pub(super) order: u64,
    /// The owner it counts for, with its order there.
    pub(super) counted: Option<(Owner, u64)>,
}

/// The claims of one owner: of a peer on a connection, or of a peer whose connections have ended.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) connection: Option<u64>,
    pub(super) peer: Option<Arc<str>>,
    pub(super) count: u32,
    /// The order of the newest.
    pub(super) order: u64,
    /// Their memory; 0 for the first claims on a session, whose memory is part of the session's.
    pub(super) bytes: usize,
}

impl StoredSession {
    /// Returns the memory of a claim of a further peer or connection.
    pub(super) fn bytes_of_next_claim(&self) -> usize {
        if self.claims.is_empty() { 0 } else { claim_bytes(&self.session) }
    }

    pub(super) fn new(session: Arc<Session>) -> Self {
        Self { session, claims: Vec::new(), abandoned: 0, order: u64::MAX, counted: None }
    }

    pub(super) fn claims(&self) -> u64 {
        self.claims.iter().map(|claims| u64::from(claims.count)).sum::<u64>() + u64::from(self.abandoned)
    }

    /// Returns the position of the claims that a caller made on its connection.
    pub(super) fn made_by(&self, connection: u64, peer: Option<&str>) -> Option<usize> {
        self.claims
            .iter()
            .position(|claims| claims.connection == Some(connection) && claims.peer.as_deref() == peer)
    }

    /// Returns the position of claims that a caller may remove: those of its connection, or of the same peer elsewhere.
    pub(super) fn owned_by(&self, caller: &Caller) -> Option<usize> {
        let elsewhere = || {
            let peer = caller.peer.as_deref()?;
            self.claims.iter().position(|claims| claims.peer.as_deref() == Some(peer))
        };
        self.made_by(caller.connection, caller.peer.as_deref()).or_else(elsewhere)
    }
}
