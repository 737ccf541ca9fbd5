//! Claims of this server on sessions that servers share, and their changes that the store does not know.

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use crate::session::{ClaimOwner, SessionId};

/// The maximum number of owners, of all sessions, with changes that the store does not know. Of others, added claims are sent with all claims
/// of their session, and lost ones stay until it expires.
const MOST_CHANGES: usize = 100_000;

/// The claims of this server, as the store knows them.
#[derive(Default)]
pub(super) struct Claims {
    /// The sessions of this server that are in the store.
    pub(super) known: HashMap<SessionId, Stored>,
    pub(super) changes: BTreeMap<(SessionId, ClaimOwner), Change>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    /// The epoch in which this server added its claims.
    pub(super) epoch: u64,
    pub(super) touched: Instant,
}

/// Changes of the claims of an owner that the store does not know.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    pub(super) added: u32,
    /// The epoch in which the store counted the claims that are lost. In another one, it does not have them.
    pub(super) epoch: u64,
    /// Sent after the added claims.
    pub(super) lost: [u32; 2],
}

impl Change {
    fn is_sent(&self) -> bool {
        self.added == 0 && self.lost == [0; 2]
    }
}

/// How an owner loses claims: the index of [`Change::lost`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Loss {
    Released,
    Abandoned,
}

impl Claims {
    pub(super) fn epoch(&self, id: &SessionId) -> u64 {
        self.known.get(id).map_or(0, |stored| stored.epoch)
    }

    pub(super) fn change<T: Default>(
        &mut self,
        id: SessionId,
        owner: ClaimOwner,
        change: impl FnOnce(&mut Change) -> T,
    ) -> T {
        let key = (id, owner);
        if self.changes.len() >= MOST_CHANGES && !self.changes.contains_key(&key) {
            return T::default();
        }
        let entry = self.changes.entry(key).or_default();
        let changed = change(entry);
        if entry.is_sent() {
            self.changes.remove(&key);
        }
        changed
    }

    /// Notes that claims are to be added to the store. Without room for them, all claims of the session are added instead.
    pub(super) fn add(&mut self, id: SessionId, owner: ClaimOwner, count: u32) {
        let is_noted = self.change(id, owner, |change| {
            change.added += count;
            true
        });
        if !is_noted {
            self.known.remove(&id);
        }
    }

    /// Notes that claims are to be removed from the store. Claims that it does not know yet are not sent to it.
    pub(super) fn lose(&mut self, id: SessionId, owner: ClaimOwner, count: u32, loss: Loss) {
        let epoch = self.epoch(&id);
        let unsent = self.change(id, owner, |change| {
            let unsent = change.added.min(count);
            change.added -= unsent;
            if change.epoch != epoch {
                (change.epoch, change.lost) = (epoch, [0; 2]);
            }
            if epoch != 0 {
                change.lost[loss as usize] += count - unsent;
            }
            unsent
        });
        if matches!(loss, Loss::Abandoned) && unsent > 0 {
            self.add(id, ClaimOwner::Nobody, unsent);
        }
    }

    pub(super) fn of<'a>(&'a self, id: &'a SessionId) -> impl Iterator<Item = (ClaimOwner, &'a Change)> {
        let changes = self.changes.range((*id, ClaimOwner::Nobody)..);
        changes.take_while(move |((of, _), _)| of == id).map(|((_, owner), change)| (*owner, change))
    }

    pub(super) fn added(&self, id: &SessionId) -> Vec<(ClaimOwner, u32)> {
        self.of(id)
            .filter(|(_, change)| change.added > 0)
            .map(|(owner, change)| (owner, change.added))
            .collect()
    }

    /// Returns the number of claims of an owner that the store does not know.
    pub(super) fn added_by(&self, id: &SessionId, owner: ClaimOwner) -> u32 {
        self.changes.get(&(*id, owner)).map_or(0, |change| change.added)
    }

    /// Removes a loss of a session, and returns its owner, its kind, the number of claims and the epoch that counted them.
    pub(super) fn take_loss(&mut self, id: &SessionId) -> Option<(ClaimOwner, Loss, u32, u64)> {
        let (owner, change) = self.of(id).find(|(_, change)| change.lost != [0; 2])?;
        let loss = if change.lost[Loss::Released as usize] > 0 { Loss::Released } else { Loss::Abandoned };
        let epoch = change.epoch;
        let count = self.change(*id, owner, |change| std::mem::take(&mut change.lost[loss as usize]));
        Some((owner, loss, count, epoch))
    }

    /// Forgets a session that is closed.
    pub(super) fn forget(&mut self, id: &SessionId) {
        self.known.remove(id);
        let owners: Vec<ClaimOwner> = self.of(id).map(|(owner, _)| owner).collect();
        for owner in owners {
            self.changes.remove(&(*id, owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SessionKey;

    const OWNER: ClaimOwner = ClaimOwner::Nobody;

    fn claims(epoch: u64) -> (Claims, SessionId) {
        let id = SessionKey::random().id([&b"session"[..]]);
        let mut claims = Claims::default();
        claims.known.insert(id, Stored { epoch, touched: Instant::now() });
        (claims, id)
    }

    #[test]
    fn a_claim_that_the_store_has_not_counted_is_not_removed_from_it() {
        let (mut claims, id) = claims(1);
        claims.add(id, OWNER, 1);
        claims.lose(id, OWNER, 3, Loss::Released);
        assert_eq!(claims.added(&id), []);
        assert!(matches!(claims.take_loss(&id), Some((OWNER, Loss::Released, 2, 1))));
        assert!(claims.changes.is_empty());
    }

    #[test]
    fn what_was_lost_in_a_former_epoch_is_not_removed_in_the_next() {
        let (mut claims, id) = claims(1);
        claims.lose(id, OWNER, 2, Loss::Abandoned);
        claims.known.insert(id, Stored { epoch: 2, touched: Instant::now() });
        claims.lose(id, OWNER, 1, Loss::Released);
        assert!(matches!(claims.take_loss(&id), Some((OWNER, Loss::Released, 1, 2))));
        assert!(claims.take_loss(&id).is_none());
    }

    #[test]
    fn a_session_with_more_claims_than_are_noted_adds_all_of_them() {
        let (mut claims, id) = claims(1);
        let other = SessionKey::random().id([&b"other"[..]]);
        let owners =
            (0..MOST_CHANGES).filter_map(|owner| SessionId::parse(format!("{owner:032x}").as_bytes()));
        owners.for_each(|owner| claims.add(other, ClaimOwner::Client(owner), 1));
        assert_eq!((claims.changes.len(), claims.epoch(&id)), (MOST_CHANGES, 1));
        claims.add(id, OWNER, 1);
        assert_eq!((claims.changes.len(), claims.epoch(&id)), (MOST_CHANGES, 0));
    }

    #[test]
    fn claims_of_another_session_are_left() {
        let (mut claims, id) = claims(1);
        let other = SessionKey::random().id([&b"other"[..]]);
        claims.add(id, OWNER, 1);
        claims.add(other, OWNER, 2);
        claims.forget(&id);
        assert_eq!(claims.added(&id), []);
        assert_eq!(claims.added(&other), [(OWNER, 2)]);
    }
}
