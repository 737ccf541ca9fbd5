//! Sessions in memory.
//!
//! | question | file |
//! |---|---|
//! | who claims a session | `claims.rs` |
//! | what counts for whom | `holdings.rs` |
//! | what ends at a limit | `room.rs` |

mod claims;
mod holdings;
mod room;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use parking_lot::RwLock;

use self::{
    claims::{Claims, StoredSession},
    holdings::{Holdings, Owner},
    room::Added,
};
use super::{
    Release, STEPS_TO_EXPIRE, Session, SessionId, SessionLimitError, SessionLimits, SessionLookup,
    SessionStore, SessionSummary,
};
use crate::handler::{Caller, Handler};

/// The sessions of one process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    sessions: RwLock<Sessions>,
    clock: AtomicU32,
}

#[derive(Debug, Default)]
struct Sessions {
    by_id: HashMap<SessionId, StoredSession>,
    by_instance: InstanceIndex,
    /// The sessions claimed on each open connection.
    connections: HashMap<u64, ConnectionSessions>,
    holdings: Holdings,
    /// The number of claims so far, which orders them.
    next_order: u64,
    /// An estimate of the memory of all sessions and claims.
    bytes: usize,
}

/// Sessions by instance name and order of their newest claim: the newest session of an instance is the last of its range.
type InstanceIndex = BTreeMap<(Arc<str>, u64), SessionId>;

#[derive(Debug, Default)]
struct ConnectionSessions {
    /// The sessions it claims, by the order of its newest claim on each.
    claimed: BTreeMap<u64, SessionId>,
    by_instance: InstanceIndex,
}

/// The maximum number of sessions of one instance that are searched for one with all instances of a report.
const CANDIDATES: usize = 16;

/// Estimates of the memory of the claims of a peer on a connection, and of the index entries of each instance, in bytes.
const CLAIM_BYTES: usize = 96;
const CLAIMED_INSTANCE_BYTES: usize = 64;

/// Returns an estimate of the memory of the claims of a peer on a connection, in bytes.
fn claim_bytes(session: &Session) -> usize {
    CLAIM_BYTES + session.instances.len() * CLAIMED_INSTANCE_BYTES
}

impl MemoryStore {
    fn used(&self, session: &Session) -> Arc<Handler> {
        session.touch(self.clock.load(Relaxed));
        session.handler.clone()
    }
}

impl ConnectionSessions {
    fn remove(&mut self, session: &Session, order: u64) {
        self.claimed.remove(&order);
        for instance in &session.instances {
            self.by_instance.remove(&(instance.name.clone(), order));
        }
    }
}

impl Sessions {
    /// Adds a claim, which makes the session the newest of its instances and of its connection.
    fn acquire(&mut self, id: &SessionId, caller: &Caller) -> Option<Arc<Session>> {
        let order = self.next_order;
        let stored = self.by_id.get_mut(id)?;
        self.next_order += 1;
        let previous = std::mem::replace(&mut stored.order, order);
        let counted = stored.counted;
        let previous_of_caller = match stored.made_by(caller.connection, caller.peer.as_deref()) {
            Some(index) => {
                let claims = &mut stored.claims[index];
                claims.count = claims.count.saturating_add(1);
                Some(std::mem::replace(&mut claims.order, order))
            }
            None => {
                let (connection, peer) = (Some(caller.connection), caller.peer.clone());
                stored.claims.reserve_exact(1);
                let bytes = stored.bytes_of_next_claim();
                stored.claims.push(Claims { connection, peer, count: 1, order, bytes });
                self.bytes = self.bytes.saturating_add(bytes);
                self.holdings.add_claim(caller.connection, bytes);
                None
            }
        };
        let session = stored.session.clone();
        let own = self.connections.entry(caller.connection).or_default();
        if let Some(previous) = previous_of_caller {
            own.remove(&session, previous);
        }
        own.claimed.insert(order, *id);
        for instance in &session.instances {
            self.by_instance.remove(&(instance.name.clone(), previous));
            self.by_instance.insert((instance.name.clone(), order), *id);
            own.by_instance.insert((instance.name.clone(), order), *id);
        }
        let caller = Owner::Connection(caller.connection);
        let held = |owner| self.holdings.amount(owner, SessionLimitError::Sessions);
        match counted {
            // A session that several connections claim counts for one that has few.
            Some((owner @ Owner::Connection(_), _)) if owner != caller && held(caller) + 1 >= held(owner) => {
            }
            _ => self.count_for(id, caller, order),
        }
        Some(session)
    }

    /// Removes one claim, and the session with its last one, which is returned with the outcome.
    fn release(&mut self, id: &SessionId, caller: &Caller) -> (Release, Option<Arc<Session>>) {
        let Some(stored) = self.by_id.get_mut(id) else { return (Release::Unknown, None) };
        match stored.owned_by(caller) {
            Some(index) if stored.claims[index].count > 1 => stored.claims[index].count -= 1,
            Some(index) => {
                let removed = stored.claims.swap_remove(index);
                let session = stored.session.clone();
                self.forget(&session, &removed);
            }
            None if stored.abandoned > 0 => stored.abandoned -= 1,
            None => return (Release::NotClaimed, None),
        }
        match self.by_id.get(id).map_or(0, StoredSession::claims) {
            0 => (Release::Released(0), self.remove(id)),
            left => {
                self.recount(id);
                (Release::Released(left), None)
            }
        }
    }

    /// Removes the entries of claims that were removed from a session.
    fn forget(&mut self, session: &Session, removed: &Claims) {
        let Some(connection) = removed.connection else { return };
        self.forget_bytes(connection, removed.bytes);
        let Some(own) = self.connections.get_mut(&connection) else { return };
        own.remove(session, removed.order);
        if own.claimed.is_empty() {
            self.connections.remove(&connection);
        }
    }

    /// Subtracts the memory of claims on a connection.
    fn forget_bytes(&mut self, connection: u64, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.holdings.remove_claim(connection, bytes);
    }

    /// Removes all claims of a connection on a session, and the session with its last one, which is returned.
    fn withdraw(&mut self, connection: u64, id: &SessionId) -> Option<Arc<Session>> {
        let stored = self.by_id.get_mut(id)?;
        let session = stored.session.clone();
        let of_connection = |claims: &mut Claims| claims.connection == Some(connection);
        let removed: Vec<Claims> = stored.claims.extract_if(.., of_connection).collect();
        let is_claimed = stored.claims() > 0;
        removed.iter().for_each(|claims| self.forget(&session, claims));
        if !is_claimed {
            return self.remove(id);
        }
        self.recount(id);
        None
    }

    /// Makes a session count for an owner, and no longer for another one.
    fn count_for(&mut self, id: &SessionId, owner: Owner, order: u64) {
        let Some(stored) = self.by_id.get_mut(id) else { return };
        let former = stored.counted.replace((owner, order));
        if let Some((former, order)) = former {
            self.holdings.remove(former, order, &stored.session);
        }
        self.holdings.add(owner, order, &stored.session);
    }

    /// Makes a session count for another owner, if the one that it counts for claims it no more.
    fn recount(&mut self, id: &SessionId) {
        let Some(stored) = self.by_id.get(id) else { return };
        let mut open = stored
            .claims
            .iter()
            .filter_map(|claims| Some((Owner::Connection(claims.connection?), claims.order)));
        let counted = stored.counted.map(|(owner, _)| owner);
        if !open.clone().any(|(owner, _)| Some(owner) == counted) {
            let (owner, order) = open.next().unwrap_or((Owner::Unclaimed, stored.order));
            self.count_for(id, owner, order);
        }
    }

    fn remove(&mut self, id: &SessionId) -> Option<Arc<Session>> {
        let stored = self.by_id.remove(id)?;
        let session = stored.session;
        if let Some((owner, order)) = stored.counted {
            self.holdings.remove(owner, order, &session);
        }
        for claims in &stored.claims {
            self.forget(&session, claims);
        }
        self.bytes = self.bytes.saturating_sub(session.bytes());
        for instance in &session.instances {
            self.by_instance.remove(&(instance.name.clone(), stored.order));
        }
        Some(session)
    }

    fn end_connection(&mut self, connection: u64) {
        let Some(own) = self.connections.remove(&connection) else { return };
        for id in own.claimed.into_values() {
            let Some(stored) = self.by_id.get_mut(&id) else { continue };
            let (mut abandoned, mut bytes) = (0_u32, 0);
            let mut elsewhere: Vec<Claims> = Vec::new();
            for mut claims in stored.claims.extract_if(.., |claims| claims.connection == Some(connection)) {
                bytes += std::mem::take(&mut claims.bytes);
                match claims.peer {
                    None => abandoned = abandoned.saturating_add(claims.count),
                    Some(_) => {
                        claims.connection = None;
                        elsewhere.push(claims);
                    }
                }
            }
            stored.abandoned = stored.abandoned.saturating_add(abandoned);
            for claims in elsewhere {
                let known = stored
                    .claims
                    .iter_mut()
                    .find(|known| known.connection.is_none() && known.peer == claims.peer);
                match known {
                    Some(known) => known.count = known.count.saturating_add(claims.count),
                    None => stored.claims.push(claims),
                }
            }
            self.forget_bytes(connection, bytes);
            self.recount(&id);
        }
    }

    fn find(
        &self,
        template: &str,
        instances: &[&str],
        connection: u64,
        peer: Option<&str>,
        lookup: SessionLookup,
    ) -> Option<&Session> {
        let name: Arc<str> = (*instances.first()?).into();
        let newest = |index: &InstanceIndex, accepts: &dyn Fn(&StoredSession) -> bool| {
            let candidates = index.range((name.clone(), 0)..=(name.clone(), u64::MAX)).rev().take(CANDIDATES);
            candidates
                .filter_map(|(_, id)| self.by_id.get(id))
                .find(|stored| accepts(stored) && stored.session.announced(template, instances))
        };
        let own = self.connections.get(&connection);
        let own = own
            .and_then(|own| newest(&own.by_instance, &|stored| stored.made_by(connection, peer).is_some()));
        let found = match lookup {
            SessionLookup::Own => own,
            SessionLookup::Any => own.or_else(|| newest(&self.by_instance, &|_| true)),
        };
        Some(&*found?.session)
    }
}

impl SessionStore for MemoryStore {
    fn acquire(
        &self,
        id: &SessionId,
        caller: &Caller,
        limits: SessionLimits,
    ) -> Result<Option<usize>, SessionLimitError> {
        // Dropped after the lock is released, because dropping a session may close its handler.
        let mut ended = Vec::new();
        let mut sessions = self.sessions.write();
        let Some(stored) = sessions.by_id.get(id) else { return Ok(None) };
        if stored.made_by(caller.connection, caller.peer.as_deref()).is_none() {
            let added = Added { to: *id, sessions: 0, bytes: stored.bytes_of_next_claim() };
            ended = sessions.make_room(added, caller.connection, limits)?;
        }
        let acquired = sessions.acquire(id, caller);
        drop(sessions);
        let Some(session) = acquired else { return Ok(None) };
        session.touch(self.clock.load(Relaxed));
        Ok(Some(ended.len()))
    }

    fn create(
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
            let added = Added { to: id, sessions: 1, bytes };
            ended = sessions.make_room(added, caller.connection, limits)?;
            sessions.bytes = sessions.bytes.saturating_add(bytes);
            sessions.by_id.insert(id, StoredSession::new(Arc::new(session)));
        }
        sessions.acquire(&id, caller);
        drop(sessions);
        Ok(ended.len())
    }

    fn admits(&self, caller: &Caller, limits: SessionLimits) -> bool {
        let sessions = self.sessions.read();
        let limit = SessionLimitError::Sessions;
        let fair = sessions.holdings.amount(Owner::Connection(caller.connection), limit) + 1;
        sessions.by_id.len() < limits.sessions
            || sessions.holdings.owners(limit).next().is_some_and(|(held, _)| held > fair)
    }

    fn release(&self, id: &SessionId, caller: &Caller) -> Release {
        let (outcome, ended) = self.sessions.write().release(id, caller);
        // Dropped without the lock, because dropping a session may close its handler.
        drop(ended);
        outcome
    }

    fn end_connection(&self, connection: u64) {
        if connection != 0 {
            self.sessions.write().end_connection(connection);
        }
    }

    fn handler(&self, id: &SessionId) -> Option<Arc<Handler>> {
        Some(self.used(&self.sessions.read().by_id.get(id)?.session))
    }

    fn find(
        &self,
        template: &str,
        instances: &[&str],
        connection: u64,
        peer: Option<&str>,
        lookup: SessionLookup,
    ) -> Option<Arc<Handler>> {
        self.sessions
            .read()
            .find(template, instances, connection, peer, lookup)
            .map(|session| self.used(session))
    }

    fn expire_idle(&self) -> usize {
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

    fn clear(&self) -> usize {
        let ended = std::mem::take(&mut *self.sessions.write());
        ended.by_id.len()
    }

    fn counts(&self) -> Vec<(&'static str, usize)> {
        let mut counts = BTreeMap::new();
        for stored in self.sessions.read().by_id.values() {
            *counts.entry(stored.session.handler.adapter().name).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    fn list(&self, limit: usize) -> Vec<SessionSummary> {
        let now = self.clock.load(Relaxed);
        let sessions = self.sessions.read();
        let mut stored: Vec<&StoredSession> = sessions.by_id.values().collect();
        stored.sort_unstable_by_key(|stored| stored.session.id);
        stored.truncate(limit);
        let summary = |stored: &StoredSession| SessionSummary {
            id: stored.session.id.abbreviated(),
            adapter: stored.session.handler.adapter().name,
            claims: stored.claims(),
            abandoned: u64::from(stored.abandoned),
            instances: stored.session.instances.iter().map(|instance| instance.name.to_string()).collect(),
            idle_tenths: now.wrapping_sub(stored.session.used.load(Relaxed)),
        };
        stored.into_iter().map(summary).collect()
    }
}
