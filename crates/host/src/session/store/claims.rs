//! Claims on a session, with their owners.

use std::sync::Arc;

use super::super::{ClaimCounts, Claimant, Session};
use crate::handler::Caller;

#[derive(Debug)]
pub(super) struct StoredSession {
    pub(super) session: Arc<Session>,
    pub(super) claims: Vec<Claims>,
    /// The number of claims whose owners are gone.
    pub(super) abandoned: u32,
    /// The order of its newest claim.
    pub(super) order: u64,
    /// Whether no open connection claims it.
    pub(super) is_unclaimed: bool,
}

/// The claims of a peer on a connection, or of a peer whose connections have ended.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) connection: Option<u64>,
    pub(super) claimant: Claimant,
    pub(super) count: u32,
    /// The order of the newest.
    pub(super) order: u64,
    /// Their memory; 0 for the first claims on a session, whose memory is part of the session's.
    pub(super) bytes: usize,
}

/// Estimates of the memory of the claims of a peer on a connection, and of the index entries of each instance, in bytes.
const CLAIM_BYTES: usize = 96;
const CLAIMED_INSTANCE_BYTES: usize = 64;

impl Claims {
    fn peer(&self) -> Option<&str> {
        match &self.claimant {
            Claimant::Peer(peer) => Some(peer),
            Claimant::Address(_) | Claimant::Gone => None,
        }
    }
}

impl StoredSession {
    pub(super) fn new(session: Session) -> Self {
        let (session, claims) = (Arc::new(session), Vec::new());
        Self { session, claims, abandoned: 0, order: u64::MAX, is_unclaimed: false }
    }

    /// Adds claims of a peer on a connection, and returns their memory in bytes.
    pub(super) fn add(&mut self, caller: &Caller, order: u64) -> usize {
        let instances = self.session.instances.len();
        let bytes = if self.claims.is_empty() { 0 } else { CLAIM_BYTES + instances * CLAIMED_INSTANCE_BYTES };
        let (connection, claimant) = (Some(caller.connection), Claimant::of(caller));
        self.claims.reserve_exact(1);
        self.claims.push(Claims { connection, claimant, count: 1, order, bytes });
        bytes
    }

    /// Abandons claims whose connection has ended. A peer that is authenticated keeps its own.
    pub(super) fn abandon(&mut self, claims: Claims) {
        if claims.peer().is_none() {
            self.abandoned = self.abandoned.saturating_add(claims.count);
            return;
        }
        let known = self
            .claims
            .iter_mut()
            .find(|known| known.connection.is_none() && known.claimant == claims.claimant);
        match known {
            Some(known) => known.count = known.count.saturating_add(claims.count),
            None => self.claims.push(Claims { connection: None, bytes: 0, ..claims }),
        }
    }

    pub(super) fn claims(&self) -> u64 {
        self.claims.iter().map(|claims| u64::from(claims.count)).sum::<u64>() + u64::from(self.abandoned)
    }

    /// Returns the position of the claims that a caller made on its connection.
    pub(super) fn made_by(&self, connection: u64, peer: Option<&str>) -> Option<usize> {
        self.claims.iter().position(|claims| claims.connection == Some(connection) && claims.peer() == peer)
    }

    /// Returns the position of claims that a caller may remove: made on its connection, or elsewhere by the same peer.
    pub(super) fn owned_by(&self, caller: &Caller) -> Option<usize> {
        self.made_by(caller.connection, caller.peer.as_deref()).or_else(|| {
            let peer = caller.peer.as_deref()?;
            self.claims.iter().position(|claims| claims.peer() == Some(peer))
        })
    }

    /// Returns the claims by who made them.
    pub(super) fn claimants(&self) -> ClaimCounts {
        let claims = self.claims.iter().map(|claims| (claims.claimant.clone(), claims.count));
        let abandoned = (self.abandoned > 0).then_some((Claimant::Gone, self.abandoned));
        claims.chain(abandoned).collect()
    }
}
