//! Sessions in memory.

use std::{
    collections::{BTreeMap, BinaryHeap, HashMap},
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
    /// What counts for no open connection, because none claims it.
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
    /// The sessions it claims, by the order of its newest claim on each.
    claimed: BTreeMap<u64, SessionId>,
    by_instance: InstanceIndex,
    held: Holdings,
}

/// Sessions that count for one owner, by the order of its newest claim on each. Every session counts for one owner.
#[derive(Debug, Default)]
struct Holdings {
    ids: BTreeMap<u64, SessionId>,
    bytes: usize,
}

/// An owner that gives way to others: a connection or, before those that hold as much, all whose connections have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// How much of what a limit counts a session takes.
fn amount(session: &Session, limit: SessionLimitError) -> usize {
    match limit {
        SessionLimitError::Sessions => 1,
        SessionLimitError::Bytes => session.bytes(),
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
    /// The owner it counts for, with its order there.
    counted: Option<(Owner, u64)>,
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

/// The maximum number of sessions of one instance that are searched for one with all instances of a report.
const CANDIDATES: usize = 16;

/// The maximum number of sessions that are searched for those that end in favour of one, and of the claims on each that are searched.
const MAX_STEPS: usize = 1_024;
const MAX_CLAIMS: usize = 64;

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
        Self { session, claims: Vec::new(), abandoned: 0, order: u64::MAX, counted: None }
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
                stored.claims.push(Claims { connection, peer, count: 1, order });
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
        let held = |owner| self.held(owner, SessionLimitError::Sessions);
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
        let Some(own) = self.connections.get_mut(&connection) else { return };
        own.remove(session, removed.order);
        if own.claimed.is_empty() {
            self.connections.remove(&connection);
        }
    }

    fn holdings(&self, owner: Owner) -> Option<&Holdings> {
        match owner {
            Owner::Connection(connection) => Some(&self.connections.get(&connection)?.held),
            Owner::Unclaimed => Some(&self.unclaimed),
        }
    }

    fn holdings_mut(&mut self, owner: Owner) -> Option<&mut Holdings> {
        match owner {
            Owner::Connection(connection) => Some(&mut self.connections.get_mut(&connection)?.held),
            Owner::Unclaimed => Some(&mut self.unclaimed),
        }
    }

    /// Returns how much an owner holds of what a limit counts.
    fn held(&self, owner: Owner, limit: SessionLimitError) -> usize {
        self.holdings(owner).map_or(0, |held| held.amount(limit))
    }

    /// Returns all owners with what they hold of what a limit counts.
    fn owners(&self, limit: SessionLimitError) -> impl Iterator<Item = (usize, Owner)> {
        let connections = self.connections.iter();
        let connections = connections.map(move |(id, own)| (own.held.amount(limit), Owner::Connection(*id)));
        connections.chain([(self.unclaimed.amount(limit), Owner::Unclaimed)])
    }

    /// Makes a session count for an owner, and no longer for another one.
    fn count_for(&mut self, id: &SessionId, owner: Owner, order: u64) {
        let Some(stored) = self.by_id.get_mut(id) else { return };
        let (session, former) = (stored.session.clone(), stored.counted.replace((owner, order)));
        if let Some((former, order)) = former
            && let Some(held) = self.holdings_mut(former)
        {
            held.remove(order, &session);
        }
        if let Some(held) = self.holdings_mut(owner) {
            held.add(order, &session);
        }
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

    /// Returns the sessions that end in favour of a new one of a connection: the newest ones of the owners that hold the most of what
    /// a limit counts, as long as they hold more than that connection will.
    fn sessions_to_end(
        &mut self,
        added: &Session,
        connection: u64,
        limits: SessionLimits,
    ) -> Result<Vec<SessionId>, SessionLimitError> {
        let bytes = self.bytes.saturating_add(added.bytes());
        let (limit, excess) = if bytes > limits.bytes {
            (SessionLimitError::Bytes, bytes - limits.bytes)
        } else if self.by_id.len() >= limits.sessions {
            (SessionLimitError::Sessions, 1)
        } else {
            return Ok(Vec::new());
        };
        let fair = self.held(Owner::Connection(connection), limit).saturating_add(amount(added, limit));
        // With the order of the oldest session of the owner that was searched.
        let owners = self.owners(limit).filter(|(held, _)| *held > fair);
        let mut owners: BinaryHeap<(usize, Owner, u64)> =
            owners.map(|(held, owner)| (held, owner, u64::MAX)).collect();
        let (mut ending, mut freed) = (Vec::new(), 0_usize);
        for _ in 0..MAX_STEPS {
            if freed >= excess {
                break;
            }
            let Some((held, owner, searched)) = owners.pop() else { break };
            let newest = self.holdings(owner).and_then(|held| held.ids.range(..searched).next_back());
            let Some((order, id)) = newest.map(|(order, id)| (*order, *id)) else { continue };
            let Some(stored) = self.by_id.get(&id) else { continue };
            let amount = amount(&stored.session, limit);
            match self.modest_owner(stored, fair, limit) {
                // It is not theirs to lose.
                Some((modest, order)) => {
                    self.count_for(&id, modest, order);
                    let held = self.held(modest, limit);
                    if held > fair {
                        owners.push((held, modest, u64::MAX));
                    }
                }
                None => {
                    ending.push(id);
                    freed = freed.saturating_add(amount);
                }
            }
            let left = held.saturating_sub(amount);
            if left > fair {
                owners.push((left, owner, order));
            }
        }
        if freed >= excess { Ok(ending) } else { Err(limit) }
    }

    /// Returns a connection that claims a session and holds at most `fair` of what a limit counts.
    fn modest_owner(
        &self,
        stored: &StoredSession,
        fair: usize,
        limit: SessionLimitError,
    ) -> Option<(Owner, u64)> {
        let claims = stored.claims.iter().take(MAX_CLAIMS);
        let mut open =
            claims.filter_map(|claims| Some((Owner::Connection(claims.connection?), claims.order)));
        open.find(|(owner, _)| self.held(*owner, limit) <= fair)
    }

    fn remove(&mut self, id: &SessionId) -> Option<Arc<Session>> {
        let stored = self.by_id.remove(id)?;
        let session = stored.session;
        if let Some((owner, order)) = stored.counted
            && let Some(held) = self.holdings_mut(owner)
        {
            held.remove(order, &session);
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
            let ending = sessions.sessions_to_end(&session, caller.connection, limits)?;
            ended.extend(ending.iter().filter_map(|id| sessions.remove(id)));
            sessions.bytes = sessions.bytes.saturating_add(bytes);
            sessions.by_id.insert(id, StoredSession::new(Arc::new(session)));
        }
        sessions.acquire(&id, caller);
        drop(sessions);
        Ok(ended.len())
    }

    fn admits(&self, caller: &Caller, limits: SessionLimits) -> bool {
        let sessions = self.read();
        let fair = sessions.held(Owner::Connection(caller.connection), SessionLimitError::Sessions) + 1;
        sessions.by_id.len() < limits.sessions
            || sessions.owners(SessionLimitError::Sessions).any(|(held, _)| held > fair)
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
