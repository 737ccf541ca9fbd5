//! Sessions in memory.

mod claims;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use mixer_adapter_net::Shares;
use parking_lot::RwLock;

use self::claims::{Claims, StoredSession};
use super::{
    ClaimCounts, Claimant, LostClaims, Release, STEPS_TO_EXPIRE, Session, SessionId, SessionLimitError,
    SessionLimits, SessionLookup, SessionSummary,
};
use crate::handler::{Caller, Handler};

/// The sessions of one process.
///
/// A claim belongs to the authenticated peer that made it or, without authentication, to its connection. When the connection
/// has ended, a claim of a peer without authentication is abandoned: any client that knows the id may remove it.
#[derive(Debug, Default)]
pub struct MemoryStore {
    sessions: RwLock<Sessions>,
    clock: AtomicU32,
}

/// The sessions and their claims.
///
/// At a limit, the owner with the largest share loses its newest claim, until the sessions are within the limit. Every session
/// that an owner claims counts for it. A session ends with its last claim, so sessions that a greedy connection shares with others
/// survive its evictions.
#[derive(Debug, Default)]
struct Sessions {
    by_id: HashMap<SessionId, StoredSession>,
    by_instance: InstanceIndex,
    owners: HashMap<Owner, Claimed>,
    shares: Shares<Owner>,
    byte_shares: Shares<Owner>,
    /// The number of claims so far, which orders them.
    next_order: u64,
    /// An estimate of the memory of all sessions and claims.
    bytes: usize,
    /// Claims that were evicted, where other servers have to learn of them.
    evicted: Option<Vec<LostClaims>>,
}

/// The owner of claims. Of owners with equal shares, the last one here loses first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Owner {
    Connection(u64),
    /// The owner of all sessions that no open connection claims.
    Nobody,
}

/// Sessions by instance name and order of their newest claim: the newest session of an instance is the last of its range.
type InstanceIndex = BTreeMap<(Arc<str>, u64), Arc<Session>>;

/// The sessions that one owner claims, by the order of its newest claim on each.
#[derive(Debug, Default)]
struct Claimed {
    sessions: BTreeMap<u64, Arc<Session>>,
    by_instance: InstanceIndex,
}

/// The maximum number of sessions of one instance that are searched for one with all instances of a report.
const CANDIDATES: usize = 16;

/// The maximum number of claims that end for one addition.
const MAX_EVICTIONS: usize = 4_096;

fn add_instances(index: &mut InstanceIndex, session: &Arc<Session>, order: u64) {
    let keys = session.instances.iter().map(|instance| (instance.name.clone(), order));
    index.extend(keys.map(|key| (key, session.clone())));
}

fn remove_instances(index: &mut InstanceIndex, session: &Session, order: u64) {
    for instance in &session.instances {
        index.remove(&(instance.name.clone(), order));
    }
}

impl Claimed {
    fn add(&mut self, session: &Arc<Session>, order: u64) {
        self.sessions.insert(order, session.clone());
        add_instances(&mut self.by_instance, session, order);
    }

    fn remove(&mut self, session: &Session, order: u64) {
        self.sessions.remove(&order);
        remove_instances(&mut self.by_instance, session, order);
    }
}

impl Sessions {
    /// Adds a claim, which makes the session the newest of its instances and of its connection.
    fn acquire(&mut self, id: &SessionId, caller: &Caller) -> Option<Arc<Session>> {
        let (order, owner) = (self.next_order, Owner::Connection(caller.connection));
        let stored = self.by_id.get_mut(id)?;
        self.next_order += 1;
        let session = stored.session.clone();
        let previous = std::mem::replace(&mut stored.order, order);
        let was_unclaimed = std::mem::take(&mut stored.is_unclaimed);
        if let Some(index) = stored.made_by(caller.connection, caller.peer.as_deref()) {
            let claims = &mut stored.claims[index];
            claims.count = claims.count.saturating_add(1);
            let former = std::mem::replace(&mut claims.order, order);
            let claimed = self.owners.entry(owner).or_default();
            claimed.remove(&session, former);
            claimed.add(&session, order);
        } else {
            let bytes = stored.add(caller, order);
            self.bytes = self.bytes.saturating_add(bytes);
            self.charge(owner, &session, order, bytes);
        }
        if was_unclaimed {
            self.discharge(Owner::Nobody, &session, previous, 0);
        }
        remove_instances(&mut self.by_instance, &session, previous);
        add_instances(&mut self.by_instance, &session, order);
        Some(session)
    }

    /// Adds a session to the share of an owner.
    fn charge(&mut self, owner: Owner, session: &Arc<Session>, order: u64, claim_bytes: usize) {
        self.owners.entry(owner).or_default().add(session, order);
        self.shares.add(owner, 1);
        self.byte_shares.add(owner, session.bytes() + claim_bytes);
    }

    fn discharge(&mut self, owner: Owner, session: &Session, order: u64, claim_bytes: usize) {
        self.shares.remove(owner, 1);
        self.byte_shares.remove(owner, session.bytes() + claim_bytes);
        let Some(claimed) = self.owners.get_mut(&owner) else { return };
        claimed.remove(session, order);
        if claimed.sessions.is_empty() {
            self.owners.remove(&owner);
        }
    }

    /// Removes one claim, and the session with its last one, which is returned with the outcome.
    fn release(&mut self, id: &SessionId, caller: &Caller) -> (Release, Option<Arc<Session>>) {
        let Some(stored) = self.by_id.get_mut(id) else { return (Release::Unknown, None) };
        let left = stored.claims().saturating_sub(1);
        match stored.owned_by(caller) {
            Some(index) if stored.claims[index].count > 1 => stored.claims[index].count -= 1,
            Some(index) => {
                let removed = stored.claims.swap_remove(index);
                self.forget(id, &removed);
            }
            None if stored.abandoned > 0 => stored.abandoned -= 1,
            None => return (Release::NotClaimed, None),
        }
        (Release::Released(left), self.settle(id))
    }

    /// Removes the entries of claims that were removed from a session.
    fn forget(&mut self, id: &SessionId, removed: &Claims) {
        self.bytes = self.bytes.saturating_sub(removed.bytes);
        if let (Some(connection), Some(stored)) = (removed.connection, self.by_id.get(id)) {
            let session = stored.session.clone();
            self.discharge(Owner::Connection(connection), &session, removed.order, removed.bytes);
        }
    }

    /// Charges a session that lost claims to nobody if no open connection claims it; returns it if it had no other claims.
    fn settle(&mut self, id: &SessionId) -> Option<Arc<Session>> {
        let stored = self.by_id.get_mut(id)?;
        if stored.claims() == 0 {
            return self.remove(id);
        }
        if !stored.is_unclaimed && stored.claims.iter().all(|claims| claims.connection.is_none()) {
            stored.is_unclaimed = true;
            let (session, order) = (stored.session.clone(), stored.order);
            self.charge(Owner::Nobody, &session, order, 0);
        }
        None
    }

    fn remove(&mut self, id: &SessionId) -> Option<Arc<Session>> {
        let stored = self.by_id.get_mut(id)?;
        let (claims, session) = (std::mem::take(&mut stored.claims), stored.session.clone());
        let (order, is_unclaimed) = (stored.order, stored.is_unclaimed);
        claims.iter().for_each(|claims| self.forget(id, claims));
        if is_unclaimed {
            self.discharge(Owner::Nobody, &session, order, 0);
        }
        self.by_id.remove(id);
        self.bytes = self.bytes.saturating_sub(session.bytes());
        remove_instances(&mut self.by_instance, &session, order);
        Some(session)
    }

    /// Removes the newest claim of an owner. Returns the session if it ends.
    fn evict(&mut self, owner: Owner) -> Option<Arc<Session>> {
        let (order, session) = self.owners.get(&owner)?.sessions.last_key_value()?;
        let (order, id) = (*order, session.id);
        let stored = self.by_id.get_mut(&id)?;
        let Some(index) =
            stored.claims.iter().position(|claims| claims.connection.is_some() && claims.order == order)
        else {
            let lost = stored.claimants();
            self.note_evicted(id, lost);
            return self.remove(&id);
        };
        let removed = stored.claims.swap_remove(index);
        self.forget(&id, &removed);
        self.note_evicted(id, vec![(removed.claimant, removed.count)]);
        self.settle(&id)
    }

    fn note_evicted(&mut self, id: SessionId, lost: ClaimCounts) {
        let Some(evicted) = &mut self.evicted else { return };
        evicted.extend(lost.into_iter().map(|(claimant, count)| LostClaims { id, claimant, count }));
    }

    /// Evicts claims of owners with a larger share than `owner`, which has just added a claim, until the sessions are within the limits.
    /// Moves sessions that end to `ended`.
    ///
    /// # Errors
    /// The limit, if others do not hold enough. The newest claim of the owner is evicted then.
    fn trim(
        &mut self,
        owner: Owner,
        limits: SessionLimits,
        ended: &mut Vec<Arc<Session>>,
    ) -> Result<(), SessionLimitError> {
        for evictions in 0.. {
            let bytes = self.bytes.saturating_sub(limits.bytes);
            let sessions = self.by_id.len().saturating_sub(limits.sessions);
            let (shares, excess, limit) = match bytes {
                0 => (&self.shares, sessions, SessionLimitError::Sessions),
                _ => (&self.byte_shares, bytes, SessionLimitError::Bytes),
            };
            if excess == 0 {
                break;
            }
            let fair = shares.amount(owner);
            match shares.heaviest(fair) {
                Some(heaviest) if evictions < MAX_EVICTIONS && shares.can_spare(excess, fair) => {
                    ended.extend(self.evict(heaviest));
                }
                _ => {
                    let noted = self.evicted.as_ref().map_or(0, Vec::len);
                    ended.extend(self.evict(owner));
                    // Other servers have not learned of the new claim.
                    self.evicted.iter_mut().for_each(|evicted| evicted.truncate(noted));
                    return Err(limit);
                }
            }
        }
        Ok(())
    }

    /// Abandons the claims of a connection that has ended. Returns the claims of clients without authentication.
    fn end_connection(&mut self, connection: u64) -> Vec<LostClaims> {
        let mut abandoned = Vec::new();
        let owner = Owner::Connection(connection);
        let claimed = self.owners.get(&owner).into_iter().flat_map(|claimed| claimed.sessions.values());
        let ids: Vec<SessionId> = claimed.map(|session| session.id).collect();
        for id in ids {
            let Some(stored) = self.by_id.get_mut(&id) else { continue };
            let removed: Vec<Claims> =
                stored.claims.extract_if(.., |claims| claims.connection == Some(connection)).collect();
            removed.iter().for_each(|claims| self.forget(&id, claims));
            let lost = removed.iter().filter(|claims| matches!(claims.claimant, Claimant::Address(_)));
            abandoned.extend(lost.map(|claims| LostClaims {
                id,
                claimant: claims.claimant.clone(),
                count: claims.count,
            }));
            if let Some(stored) = self.by_id.get_mut(&id) {
                removed.into_iter().for_each(|claims| stored.abandon(claims));
            }
            // A session with abandoned claims does not end.
            self.settle(&id);
        }
        abandoned
    }

    /// Returns the sessions of an index that announced these instances, newest first. Searches up to [`CANDIDATES`].
    fn newest<'s>(
        &'s self,
        index: &'s InstanceIndex,
        template: &str,
        instances: &[&str],
    ) -> impl Iterator<Item = &'s StoredSession> {
        let name = instances.first().map(|name| Arc::<str>::from(*name));
        let range = name.map(|name| index.range((name.clone(), 0)..=(name, u64::MAX)));
        let candidates = range.into_iter().flatten().rev().take(CANDIDATES);
        let stored = candidates.filter_map(|(_, session)| self.by_id.get(&session.id));
        stored.filter(move |stored| stored.session.announced(template, instances))
    }
}

impl MemoryStore {
    fn used(&self, session: &Session) -> Arc<Handler> {
        session.touch(self.clock.load(Relaxed));
        session.handler.clone()
    }

    /// Adds a claim of the caller to an existing session, and returns how many sessions ended for it, as in
    /// [`create`](Self::create). Returns `None` if the session does not exist.
    ///
    /// # Errors
    /// The limit that the claim exceeds.
    pub fn acquire(
        &self,
        id: &SessionId,
        caller: &Caller,
        limits: SessionLimits,
    ) -> Result<Option<usize>, SessionLimitError> {
        // Dropped after the lock is released, because dropping a session may close its handler.
        let mut ended = Vec::new();
        let mut sessions = self.sessions.write();
        let Some(session) = sessions.acquire(id, caller) else { return Ok(None) };
        let trimmed = sessions.trim(Owner::Connection(caller.connection), limits, &mut ended);
        drop(sessions);
        session.touch(self.clock.load(Relaxed));
        trimmed.map(|()| Some(ended.len()))
    }

    /// Stores a new session with one claim, or adds a claim to an equal session that was stored meanwhile. Returns how many sessions
    /// ended for it. At a limit, the connection with the most sessions loses its newest claims. All sessions whose connections
    /// have ended count for one owner.
    ///
    /// # Errors
    /// The limit that the session exceeds, if no connection holds more than its own would. Normally no other session ends then.
    pub fn create(
        &self,
        session: Session,
        caller: &Caller,
        limits: SessionLimits,
    ) -> Result<usize, SessionLimitError> {
        session.touch(self.clock.load(Relaxed));
        let (id, bytes) = (session.id, session.bytes());
        // Dropped after the lock is released, because dropping a session may close its handler.
        let mut ended = Vec::new();
        let mut sessions = self.sessions.write();
        if !sessions.by_id.contains_key(&id) {
            sessions.bytes = sessions.bytes.saturating_add(bytes);
            sessions.by_id.insert(id, StoredSession::new(session));
        }
        sessions.acquire(&id, caller);
        let trimmed = sessions.trim(Owner::Connection(caller.connection), limits, &mut ended);
        drop(sessions);
        trimmed.map(|()| ended.len())
    }

    /// Returns whether the number of sessions lets the caller create one more.
    pub fn admits(&self, caller: &Caller, limits: SessionLimits) -> bool {
        let sessions = self.sessions.read();
        let fair = sessions.shares.amount(Owner::Connection(caller.connection)) + 1;
        sessions.by_id.len() < limits.sessions || sessions.shares.heaviest(fair).is_some()
    }

    /// Removes one claim of the caller, or else an abandoned one. Without claims the session ends; its handler closes after
    /// calls in flight.
    pub fn release(&self, id: &SessionId, caller: &Caller) -> Release {
        let (outcome, ended) = self.sessions.write().release(id, caller);
        // Dropped without the lock, because dropping a session may close its handler.
        drop(ended);
        outcome
    }

    /// Abandons the claims of a connection that has ended, and forgets the sessions created on it. The connection 0, which
    /// stands for callers in the process, does not end. Returns the claims that nobody owns now.
    pub(crate) fn end_connection(&self, connection: u64) -> Vec<LostClaims> {
        if connection == 0 { Vec::new() } else { self.sessions.write().end_connection(connection) }
    }

    /// Stores a session of another server without a claim, and returns how many sessions ended for it. It counts for the owner of
    /// sessions that no connection claims.
    ///
    /// # Errors
    /// The limit that the session exceeds.
    pub(crate) fn adopt(&self, session: Session, limits: SessionLimits) -> Result<usize, SessionLimitError> {
        session.touch(self.clock.load(Relaxed));
        let (id, bytes) = (session.id, session.bytes());
        let mut ended = Vec::new();
        let mut sessions = self.sessions.write();
        if sessions.by_id.contains_key(&id) {
            return Ok(0);
        }
        let order = sessions.next_order;
        sessions.next_order += 1;
        sessions.bytes = sessions.bytes.saturating_add(bytes);
        let stored = StoredSession { order, is_unclaimed: true, ..StoredSession::new(session) };
        let session = stored.session.clone();
        sessions.by_id.insert(id, stored);
        sessions.charge(Owner::Nobody, &session, order, 0);
        add_instances(&mut sessions.by_instance, &session, order);
        let trimmed = sessions.trim(Owner::Nobody, limits, &mut ended);
        drop(sessions);
        trimmed.map(|()| ended.len())
    }

    /// Ends a session, whatever claims it has.
    pub(crate) fn end(&self, id: &SessionId) {
        let ended = self.sessions.write().remove(id);
        // Dropped without the lock, because dropping a session may close its handler.
        drop(ended);
    }

    /// Collects claims that are evicted from now on, for [`take_evicted`](Self::take_evicted).
    pub(crate) fn collect_evicted(&self) {
        self.sessions.write().evicted = Some(Vec::new());
    }

    /// Returns the claims that were evicted since the last call.
    pub(crate) fn take_evicted(&self) -> Vec<LostClaims> {
        self.sessions.write().evicted.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns a session with its claims.
    pub(crate) fn claims(&self, id: &SessionId) -> Option<(Arc<Session>, ClaimCounts)> {
        let sessions = self.sessions.read();
        let stored = sessions.by_id.get(id)?;
        Some((stored.session.clone(), stored.claimants()))
    }

    /// Returns the ids of all sessions.
    pub(crate) fn ids(&self) -> HashSet<SessionId> {
        self.sessions.read().by_id.keys().copied().collect()
    }

    /// Returns for how many steps of the clock a session was not used.
    pub(crate) fn age(&self, session: &Session) -> u32 {
        self.clock.load(Relaxed).wrapping_sub(session.used.load(Relaxed))
    }

    /// Returns the handler of a session and marks the session as used.
    pub fn handler(&self, id: &SessionId) -> Option<Arc<Handler>> {
        Some(self.used(&self.sessions.read().by_id.get(id)?.session))
    }

    /// Returns the handler of the newest session that announced these instances of a template: a real Mixer sends no session
    /// id, but uses one connection for a session and its calls
    /// (docs/behaviour/sessions.md#finding-the-session-of-a-call).
    pub fn find(
        &self,
        template: &str,
        instances: &[&str],
        connection: u64,
        peer: Option<&str>,
        lookup: SessionLookup,
    ) -> Option<Arc<Handler>> {
        let sessions = self.sessions.read();
        let newest = |index| sessions.newest(index, template, instances);
        let own = sessions.owners.get(&Owner::Connection(connection));
        let own = own.and_then(|own| {
            newest(&own.by_instance).find(|stored| stored.made_by(connection, peer).is_some())
        });
        let found = match lookup {
            SessionLookup::Own => own,
            SessionLookup::Any => own.or_else(|| newest(&sessions.by_instance).next()),
        };
        Some(self.used(&found?.session))
    }

    /// Advances the clock by one step, ends sessions that were not used for [`STEPS_TO_EXPIRE`] steps, and returns how many.
    pub fn expire_idle(&self) -> usize {
        let now = self.clock.fetch_add(1, Relaxed).wrapping_add(1);
        let expired =
            |stored: &StoredSession| now.wrapping_sub(stored.session.used.load(Relaxed)) > STEPS_TO_EXPIRE;
        let idle: Vec<SessionId> = self
            .sessions
            .read()
            .by_id
            .iter()
            .filter(|(_, stored)| expired(stored))
            .map(|(id, _)| *id)
            .collect();
        let mut sessions = self.sessions.write();
        // Checked again under the lock, because a call may have used the session meanwhile.
        let idle = idle.into_iter().filter(|id| sessions.by_id.get(id).is_some_and(expired));
        let idle: Vec<SessionId> = idle.collect();
        let ended: Vec<_> = idle.iter().filter_map(|id| sessions.remove(id)).collect();
        drop(sessions);
        ended.len()
    }

    /// Ends all sessions and returns how many.
    pub fn clear(&self) -> usize {
        let mut sessions = self.sessions.write();
        let evicted = sessions.evicted.as_ref().map(|_| Vec::new());
        let ended = std::mem::replace(&mut *sessions, Sessions { evicted, ..Sessions::default() });
        drop(sessions);
        ended.by_id.len()
    }

    /// Returns the number of sessions by adapter.
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        let mut counts = BTreeMap::new();
        for stored in self.sessions.read().by_id.values() {
            *counts.entry(stored.session.handler.adapter().name).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    /// Returns the first `limit` sessions in the order of their ids.
    pub fn list(&self, limit: usize) -> Vec<SessionSummary> {
        let now = self.clock.load(Relaxed);
        let sessions = self.sessions.read();
        let mut stored: Vec<&StoredSession> = sessions.by_id.values().collect();
        stored.sort_unstable_by_key(|stored| stored.session.id);
        stored.truncate(limit);
        stored
            .into_iter()
            .map(|stored| SessionSummary {
                id: stored.session.id.abbreviated(),
                adapter: stored.session.handler.adapter().name,
                claims: stored.claims(),
                abandoned: u64::from(stored.abandoned),
                instances: stored
                    .session
                    .instances
                    .iter()
                    .map(|instance| instance.name.to_string())
                    .collect(),
                idle_tenths: now.wrapping_sub(stored.session.used.load(Relaxed)),
            })
            .collect()
    }
}
