//! Sessions in memory.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
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
    /// The sessions that no open connection claims.
    unclaimed: Holdings,
    /// The number of claims so far, which orders them.
    next_order: u64,
    /// An estimate of the memory of all sessions.
    bytes: usize,
}

/// Sessions by instance name and order of their newest claim: the newest session of an instance is the last of its range.
type InstanceIndex = BTreeMap<(Arc<str>, u64), SessionId>;

#[derive(Debug, Default)]
struct ConnectionSessions {
    held: Holdings,
    by_instance: InstanceIndex,
}

/// Sessions that count as those of one owner, by the order of its newest claim on each.
#[derive(Debug, Default)]
struct Holdings {
    ids: BTreeMap<u64, SessionId>,
    bytes: usize,
}

/// An owner that gives way to others: a connection, or those whose connections have ended.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Connection(u64),
    Unclaimed,
}

impl Holdings {
    fn add(&mut self, order: u64, session: &Session) {
        if self.ids.insert(order, session.id).is_none() {
            self.bytes += session.bytes();
        }
    }

    fn remove(&mut self, order: u64, session: &Session) {
        if self.ids.remove(&order).is_some() {
            self.bytes = self.bytes.saturating_sub(session.bytes());
        }
    }

    /// How much of what a limit counts.
    fn amount(&self, limit: SessionLimitError) -> usize {
        match limit {
            SessionLimitError::Sessions => self.ids.len(),
            SessionLimitError::Bytes => self.bytes,
        }
    }
}

#[derive(Debug)]
struct StoredSession {
    session: Arc<Session>,
    claims: Vec<Claims>,
    /// The number of claims whose owners are gone.
    abandoned: u32,
    /// The order of its newest claim.
    order: u64,
}

/// The claims of one owner: of a peer on a connection, or of a peer whose connections have ended.
#[derive(Debug)]
struct Claims {
    connection: Option<u64>,
    peer: Option<Arc<str>>,
    count: u32,
    /// The order of the newest.
    order: u64,
}

/// The maximum number of sessions that are searched: those of one instance for one with all instances of a report, and those of one
/// owner for one to end.
const CANDIDATES: usize = 16;

impl MemoryStore {
    fn read(&self) -> RwLockReadGuard<'_, Sessions> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Sessions> {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self, session: &Session) -> Arc<Handler> {
        session.touch(self.clock.load(Relaxed));
        session.handler.clone()
    }
}

impl StoredSession {
    fn new(session: Arc<Session>) -> Self {
        Self { session, claims: Vec::new(), abandoned: 0, order: u64::MAX }
    }

    fn claims(&self) -> u64 {
        self.claims.iter().map(|claims| u64::from(claims.count)).sum::<u64>() + u64::from(self.abandoned)
    }

    /// Returns the position of the claims that a caller made on its connection.
    fn made_by(&self, connection: u64, peer: Option<&str>) -> Option<usize> {
        self.claims
            .iter()
            .position(|claims| claims.connection == Some(connection) && claims.peer.as_deref() == peer)
    }

    /// Returns the position of claims that a caller may remove: those of its connection, or of the same peer elsewhere.
    fn owned_by(&self, caller: &Caller) -> Option<usize> {
        let elsewhere = || {
            let peer = caller.peer.as_deref()?;
            self.claims.iter().position(|claims| claims.peer.as_deref() == Some(peer))
        };
        self.made_by(caller.connection, caller.peer.as_deref()).or_else(elsewhere)
    }
}

impl ConnectionSessions {
    fn remove(&mut self, session: &Session, order: u64) {
        self.held.remove(order, session);
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
        self.unclaimed.remove(previous, &stored.session);
        let previous_of_caller = match stored.made_by(caller.connection, caller.peer.as_deref()) {
            Some(index) => {
                let claims = &mut stored.claims[index];
                claims.count = claims.count.saturating_add(1);
                Some(std::mem::replace(&mut claims.order, order))
            }
            None => {
                let (connection, peer) = (Some(caller.connection), caller.peer.clone());
                stored.claims.reserve_exact(1);
                stored.claims.push(Claims { connection, peer, count: 1, order });
                None
            }
        };
        let session = stored.session.clone();
        let own = self.connections.entry(caller.connection).or_default();
        if let Some(previous) = previous_of_caller {
            own.remove(&session, previous);
        }
        own.held.add(order, &session);
        for instance in &session.instances {
            self.by_instance.remove(&(instance.name.clone(), previous));
            self.by_instance.insert((instance.name.clone(), order), *id);
            own.by_instance.insert((instance.name.clone(), order), *id);
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
                if let Some(connection) = removed.connection {
                    self.forget(connection, id, removed.order);
                }
            }
            None if stored.abandoned > 0 => stored.abandoned -= 1,
            None => return (Release::NotClaimed, None),
        }
        match self.by_id.get(id).map_or(0, StoredSession::claims) {
            0 => (Release::Released(0), self.remove(id)),
            left => {
                self.note_unclaimed(id);
                (Release::Released(left), None)
            }
        }
    }

    /// Removes the entries of claims that were removed from a session.
    fn forget(&mut self, connection: u64, id: &SessionId, order: u64) {
        let Some(stored) = self.by_id.get(id) else { return };
        let Some(own) = self.connections.get_mut(&connection) else { return };
        own.remove(&stored.session, order);
        if own.held.ids.is_empty() {
            self.connections.remove(&connection);
        }
    }

    /// Adds a session to those that no open connection claims, if it is one.
    fn note_unclaimed(&mut self, id: &SessionId) {
        let Some(stored) = self.by_id.get(id) else { return };
        if stored.claims.iter().all(|claims| claims.connection.is_none()) {
            self.unclaimed.add(stored.order, &stored.session);
        }
    }

    /// Returns the owner that holds the most of what a limit counts, and how much.
    fn busiest(&self, limit: SessionLimitError) -> (usize, Owner) {
        let connections = self
            .connections
            .iter()
            .map(|(connection, own)| (own.held.amount(limit), Owner::Connection(*connection)));
        let unclaimed = (self.unclaimed.amount(limit), Owner::Unclaimed);
        connections
            .max_by_key(|(amount, _)| *amount)
            .filter(|(most, _)| *most > unclaimed.0)
            .unwrap_or(unclaimed)
    }

    /// Returns the limit that `added` more would exceed, with what that limit counts of it.
    fn exceeded(&self, added: &Session, limits: SessionLimits) -> Option<(SessionLimitError, usize)> {
        if self.by_id.len() >= limits.sessions {
            return Some((SessionLimitError::Sessions, 1));
        }
        let bytes = added.bytes();
        (self.bytes.saturating_add(bytes) > limits.bytes).then_some((SessionLimitError::Bytes, bytes))
    }

    /// Ends the newest sessions of the owner that holds the most, until there is room for a session of a connection that holds less.
    fn make_room(
        &mut self,
        added: &Session,
        connection: u64,
        limits: SessionLimits,
        ended: &mut Vec<Arc<Session>>,
    ) -> Result<(), SessionLimitError> {
        while let Some((limit, amount)) = self.exceeded(added, limits) {
            let newest = self.newest_of_busiest(connection, limit, amount).ok_or(limit)?;
            ended.extend(self.remove(&newest));
        }
        Ok(())
    }

    /// Returns the session that gives way to one of a connection that takes `amount` of what a limit counts; `None` if the
    /// connection would then hold the most itself.
    fn newest_of_busiest(
        &self,
        connection: u64,
        limit: SessionLimitError,
        amount: usize,
    ) -> Option<SessionId> {
        let mine = self.connections.get(&connection).map_or(0, |own| own.held.amount(limit));
        let (most, busiest) = self.busiest(limit);
        if mine.saturating_add(amount) >= most {
            return None;
        }
        let held = match busiest {
            Owner::Connection(busiest) => &self.connections.get(&busiest)?.held,
            Owner::Unclaimed => &self.unclaimed,
        };
        // One that others claim, too, is not theirs to lose.
        let own = |id: &SessionId| self.by_id.get(id).is_some_and(|stored| stored.claims.len() <= 1);
        held.ids.values().rev().take(CANDIDATES).copied().find(own)
    }

    fn remove(&mut self, id: &SessionId) -> Option<Arc<Session>> {
        let claims = std::mem::take(&mut self.by_id.get_mut(id)?.claims);
        for claims in claims {
            if let Some(connection) = claims.connection {
                self.forget(connection, id, claims.order);
            }
        }
        let stored = self.by_id.remove(id)?;
        self.bytes = self.bytes.saturating_sub(stored.session.bytes());
        self.unclaimed.remove(stored.order, &stored.session);
        for instance in &stored.session.instances {
            self.by_instance.remove(&(instance.name.clone(), stored.order));
        }
        Some(stored.session)
    }

    fn end_connection(&mut self, connection: u64) {
        let Some(own) = self.connections.remove(&connection) else { return };
        for id in own.held.ids.into_values() {
            let Some(stored) = self.by_id.get_mut(&id) else { continue };
            let mut abandoned = 0_u32;
            let mut elsewhere: Vec<Claims> = Vec::new();
            for mut claims in stored.claims.extract_if(.., |claims| claims.connection == Some(connection)) {
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
            self.note_unclaimed(&id);
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
    fn acquire(&self, id: &SessionId, caller: &Caller) -> Option<Arc<Session>> {
        let session = self.write().acquire(id, caller)?;
        session.touch(self.clock.load(Relaxed));
        Some(session)
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
        let mut sessions = self.write();
        if !sessions.by_id.contains_key(&id) {
            let room = sessions.make_room(&session, caller.connection, limits, &mut ended);
            if let Err(limit) = room {
                drop(sessions);
                return Err(limit);
            }
            sessions.bytes = sessions.bytes.saturating_add(bytes);
            sessions.by_id.insert(id, StoredSession::new(Arc::new(session)));
        }
        sessions.acquire(&id, caller);
        drop(sessions);
        Ok(ended.len())
    }

    fn admits(&self, caller: &Caller, limits: SessionLimits) -> bool {
        let sessions = self.read();
        sessions.by_id.len() < limits.sessions
            || sessions.newest_of_busiest(caller.connection, SessionLimitError::Sessions, 1).is_some()
    }

    fn release(&self, id: &SessionId, caller: &Caller) -> Release {
        let (outcome, ended) = self.write().release(id, caller);
        // Dropped without the lock, because dropping a session may close its handler.
        drop(ended);
        outcome
    }

    fn end_connection(&self, connection: u64) {
        if connection != 0 {
            self.write().end_connection(connection);
        }
    }

    fn handler(&self, id: &SessionId) -> Option<Arc<Handler>> {
        Some(self.used(&self.read().by_id.get(id)?.session))
    }

    fn find(
        &self,
        template: &str,
        instances: &[&str],
        connection: u64,
        peer: Option<&str>,
        lookup: SessionLookup,
    ) -> Option<Arc<Handler>> {
        self.read().find(template, instances, connection, peer, lookup).map(|session| self.used(session))
    }

    fn expire_idle(&self) -> usize {
        let now = self.clock.fetch_add(1, Relaxed).wrapping_add(1);
        let expired =
            |stored: &StoredSession| now.wrapping_sub(stored.session.used.load(Relaxed)) > STEPS_TO_EXPIRE;
        let idle: Vec<SessionId> =
            self.read().by_id.iter().filter(|(_, stored)| expired(stored)).map(|(id, _)| *id).collect();
        let mut sessions = self.write();
        // Checked again under the lock, because a call may have used the session meanwhile.
        let idle = idle.into_iter().filter(|id| sessions.by_id.get(id).is_some_and(expired));
        let idle: Vec<SessionId> = idle.collect();
        let ended: Vec<_> = idle.iter().filter_map(|id| sessions.remove(id)).collect();
        drop(sessions);
        ended.len()
    }

    fn clear(&self) -> usize {
        let ended = std::mem::take(&mut *self.write());
        ended.by_id.len()
    }

    fn counts(&self) -> Vec<(&'static str, usize)> {
        let mut counts = BTreeMap::new();
        for stored in self.read().by_id.values() {
            *counts.entry(stored.session.handler.adapter().name).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    fn list(&self, limit: usize) -> Vec<SessionSummary> {
        let now = self.clock.load(Relaxed);
        let sessions = self.read();
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
