use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use super::{Session, SessionId, SessionStore, SessionSummary, TICKS_TO_EXPIRE};
use crate::handler::Handler;

/// Sessions of one process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    sessions: RwLock<Sessions>,
    tick: AtomicU32,
}

#[derive(Debug, Default)]
struct Sessions {
    by_id: HashMap<SessionId, Held>,
    /// By instance name and order of creation: the newest session of an instance is the last of its range.
    by_instance: BTreeMap<(Arc<str>, u64), SessionId>,
    /// The same within one connection.
    by_connection: BTreeMap<(Arc<str>, u64, u64), SessionId>,
    created: u64,
}

#[derive(Debug)]
struct Held {
    session: Arc<Session>,
    claims: u32,
    /// The order of its newest claim.
    order: u64,
    /// The connections of its newest claims, with their order.
    connections: Vec<(u64, u64)>,
}

/// A session remembers the connections of so many claims. Mixers that come and go without closing must not make it grow.
const CONNECTIONS: usize = 8;

/// How many sessions of one instance are looked at for one that announced the other instances of a report too.
const CANDIDATES: usize = 16;

impl MemoryStore {
    fn read(&self) -> RwLockReadGuard<'_, Sessions> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Sessions> {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self, session: &Session) -> Arc<Handler> {
        session.touch(self.tick.load(Relaxed));
        session.handler.clone()
    }
}

impl Sessions {
    /// Counts a claim, and makes the session the newest of its instances and of its connection.
    fn claim(&mut self, id: &SessionId, connection: u64) -> Option<Arc<Session>> {
        let order = self.created;
        let held = self.by_id.get_mut(id)?;
        self.created += 1;
        held.claims = held.claims.saturating_add(1);
        let former = std::mem::replace(&mut held.order, order);
        let forgotten = match held.connections.iter().position(|(known, _)| *known == connection) {
            Some(index) => Some(held.connections.remove(index)),
            None if held.connections.len() == CONNECTIONS => Some(held.connections.remove(0)),
            None => None,
        };
        held.connections.push((connection, order));
        let session = held.session.clone();
        for instance in &session.instances {
            self.by_instance.remove(&(instance.name.clone(), former));
            self.by_instance.insert((instance.name.clone(), order), *id);
            if let Some((connection, order)) = forgotten {
                self.by_connection.remove(&(instance.name.clone(), connection, order));
            }
            self.by_connection.insert((instance.name.clone(), connection, order), *id);
        }
        Some(session)
    }

    fn remove(&mut self, id: &SessionId) -> Option<Arc<Session>> {
        let held = self.by_id.remove(id)?;
        for instance in &held.session.instances {
            self.by_instance.remove(&(instance.name.clone(), held.order));
            for (connection, order) in &held.connections {
                self.by_connection.remove(&(instance.name.clone(), *connection, *order));
            }
        }
        Some(held.session)
    }

    fn find(&self, template: &str, instances: &[&str], connection: u64) -> Option<&Session> {
        let name: Arc<str> = (*instances.first()?).into();
        let on_connection =
            self.by_connection.range((name.clone(), connection, 0)..=(name.clone(), connection, u64::MAX));
        let anywhere = self.by_instance.range((name.clone(), 0)..=(name, u64::MAX));
        let on_connection = on_connection.rev().map(|(_, id)| id).take(CANDIDATES);
        let anywhere = anywhere.rev().map(|(_, id)| id).take(CANDIDATES);
        on_connection
            .chain(anywhere)
            .filter_map(|id| Some(&*self.by_id.get(id)?.session))
            .find(|session| session.announced(template, instances))
    }
}

impl SessionStore for MemoryStore {
    fn claim(&self, id: &SessionId, connection: u64) -> Option<Arc<Session>> {
        let session = self.write().claim(id, connection)?;
        session.touch(self.tick.load(Relaxed));
        Some(session)
    }

    fn create(&self, session: Session, connection: u64) -> Arc<Session> {
        session.touch(self.tick.load(Relaxed));
        let (id, session) = (session.id, Arc::new(session));
        let mut sessions = self.write();
        let held = || Held { session: session.clone(), claims: 0, order: u64::MAX, connections: Vec::new() };
        sessions.by_id.entry(id).or_insert_with(held);
        sessions.claim(&id, connection).unwrap_or(session)
    }

    fn close(&self, id: &SessionId) -> Option<u64> {
        // What ended is dropped after the lock is released: dropping it may close its handler.
        let _ended;
        let mut sessions = self.write();
        let held = sessions.by_id.get_mut(id)?;
        held.claims = held.claims.saturating_sub(1);
        let left = held.claims;
        if left == 0 {
            _ended = sessions.remove(id);
        }
        drop(sessions);
        Some(u64::from(left))
    }

    fn handler(&self, id: &SessionId) -> Option<Arc<Handler>> {
        Some(self.used(&self.read().by_id.get(id)?.session))
    }

    fn find(&self, template: &str, instances: &[&str], connection: u64) -> Option<Arc<Handler>> {
        self.read().find(template, instances, connection).map(|session| self.used(session))
    }

    fn tick(&self) -> usize {
        let tick = self.tick.fetch_add(1, Relaxed).wrapping_add(1);
        let expired = |held: &Held| tick.wrapping_sub(held.session.used.load(Relaxed)) > TICKS_TO_EXPIRE;
        let idle: Vec<SessionId> =
            self.read().by_id.iter().filter(|(_, held)| expired(held)).map(|(id, _)| *id).collect();
        let mut sessions = self.write();
        // Looked at again under the lock: a call may have come meanwhile.
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
        for held in self.read().by_id.values() {
            *counts.entry(held.session.handler.adapter().name).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    fn list(&self, at_most: usize) -> Vec<SessionSummary> {
        let tick = self.tick.load(Relaxed);
        let sessions = self.read();
        let mut held: Vec<&Held> = sessions.by_id.values().collect();
        held.sort_unstable_by_key(|held| held.session.id);
        held.truncate(at_most);
        let summary = |held: &Held| SessionSummary {
            id: held.session.id.to_string(),
            adapter: held.session.handler.adapter().name,
            claims: u64::from(held.claims),
            instances: held.session.instances.iter().map(|instance| instance.name.to_string()).collect(),
            idle_tenths: tick.wrapping_sub(held.session.used.load(Relaxed)),
        };
        held.into_iter().map(summary).collect()
    }
}
