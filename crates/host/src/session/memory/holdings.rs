//! The shares of owners in the limits of sessions.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::super::{Session, SessionId, SessionLimitError};

/// An owner that gives way to others: a connection or, before those that hold as much, all whose connections have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Owner {
    Connection(u64),
    Unclaimed,
}

/// The holdings of each owner, ordered by size.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    by_owner: HashMap<Owner, Held>,
    by_sessions: BTreeSet<(usize, Owner)>,
    by_bytes: BTreeSet<(usize, Owner)>,
}

/// The holdings of one owner: its sessions, by the order of its newest claim on each, and the memory of these and of its claims.
/// Every session counts for one owner.
#[derive(Debug, Default)]
struct Held {
    ids: BTreeMap<u64, SessionId>,
    bytes: usize,
}

impl Holdings {
    pub(super) fn add(&mut self, owner: Owner, order: u64, session: &Session) {
        self.change(owner, |held| {
            if held.ids.insert(order, session.id).is_none() {
                held.bytes += session.bytes();
            }
        });
    }

    pub(super) fn remove(&mut self, owner: Owner, order: u64, session: &Session) {
        self.change(owner, |held| {
            if held.ids.remove(&order).is_some() {
                held.bytes = held.bytes.saturating_sub(session.bytes());
            }
        });
    }

    pub(super) fn add_claim(&mut self, connection: u64, bytes: usize) {
        self.change(Owner::Connection(connection), |held| held.bytes += bytes);
    }

    pub(super) fn remove_claim(&mut self, connection: u64, bytes: usize) {
        self.change(Owner::Connection(connection), |held| held.bytes = held.bytes.saturating_sub(bytes));
    }

    /// Returns the share of an owner in a limit.
    pub(super) fn amount(&self, owner: Owner, limit: SessionLimitError) -> usize {
        self.by_owner.get(&owner).map_or(0, |held| match limit {
            SessionLimitError::Sessions => held.ids.len(),
            SessionLimitError::Bytes => held.bytes,
        })
    }

    /// Returns the owners by their share in a limit, the one with the largest first.
    pub(super) fn owners(&self, limit: SessionLimitError) -> impl Iterator<Item = (usize, Owner)> {
        let owners = match limit {
            SessionLimitError::Sessions => &self.by_sessions,
            SessionLimitError::Bytes => &self.by_bytes,
        };
        owners.iter().rev().copied()
    }

    /// Returns the newest session of an owner whose order is less than `before`.
    pub(super) fn newest(&self, owner: Owner, before: u64) -> Option<(u64, SessionId)> {
        let (order, id) = self.by_owner.get(&owner)?.ids.range(..before).next_back()?;
        Some((*order, *id))
    }

    fn change(&mut self, owner: Owner, change: impl FnOnce(&mut Held)) {
        let held = self.by_owner.entry(owner).or_default();
        let before = (held.ids.len(), held.bytes);
        change(held);
        let after = (held.ids.len(), held.bytes);
        if after == (0, 0) {
            self.by_owner.remove(&owner);
        }
        for (owners, before, after) in
            [(&mut self.by_sessions, before.0, after.0), (&mut self.by_bytes, before.1, after.1)]
        {
            if before != after {
                owners.remove(&(before, owner));
                if after > 0 {
                    owners.insert((after, owner));
                }
            }
        }
    }
}
