//! Sessions in memory.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use super::{STEPS_TO_EXPIRE, Session, SessionId, SessionStore, SessionSummary};
use crate::handler::Handler;

/// The sessions of one process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    sessions: RwLock<Sessions>,
    clock: AtomicU32,
}

#[derive(Debug, Default)]
struct Sessions {
    by_id: HashMap<SessionId, StoredSession>,
    /// By instance name and order of the newest claim: the newest session of an instance is the last of its range.
    by_instance: BTreeMap<(Arc<str>, u64), SessionId>,
    /// The same within one connection.
    by_connection: BTreeMap<(Arc<str>, u64, u64), SessionId>,
    /// The number of claims so far, which orders them.
    next_order: u64,
}

#[derive(Debug)]
struct StoredSession {
    session: Arc<Session>,
    claims: u32,
    /// The order of its newest claim.
    order: u64,
    /// The connections of its newest claims with their order.
    connections: Vec<(u64, u64)>,
}

/// The maximum number of connections stored for a session. Mixers that reconnect without closing must not make it grow.
const CONNECTIONS: usize = 8;

/// The maximum number of sessions of one instance that are searched for one with all instances of a report.
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

impl Sessions {
    /// Adds a claim, which makes the session the newest of its instances and of its connection.
    fn acquire(&mut self, id: &SessionId, connection: u64) -> Option<Arc<Session>> {
        let order = self.next_order;
        let stored = self.by_id.get_mut(id)?;
        self.next_order += 1;
        stored.claims = stored.claims.saturating_add(1);
        let previous = std::mem::replace(&mut stored.order, order);
        let dropped = match stored.connections.iter().position(|(known, _)| *known == connection) {
            Some(index) => Some(stored.connections.remove(index)),
            None if stored.connections.len() == CONNECTIONS => Some(stored.connections.remove(0)),
            None => None,
        };
        stored.connections.push((connection, order));
        let session = stored.session.clone();
        for instance in &session.instances {
            self.by_instance.remove(&(instance.name.clone(), previous));
            self.by_instance.insert((instance.name.clone(), order), *id);
            if let Some((connection, order)) = dropped {
                self.by_connection.remove(&(instance.name.clone(), connection, order));
            }
            self.by_connection.insert((instance.name.clone(), connection, order), *id);
        }
        Some(session)
    }

    fn remove(&mut self, id: &SessionId) -> Option<Arc<Session>> {
        let stored = self.by_id.remove(id)?;
        for instance in &stored.session.instances {
            self.by_instance.remove(&(instance.name.clone(), stored.order));
            for (connection, order) in &stored.connections {
                self.by_connection.remove(&(instance.name.clone(), *connection, *order));
            }
        }
        Some(stored.session)
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
    fn acquire(&self, id: &SessionId, connection: u64) -> Option<Arc<Session>> {
        let session = self.write().acquire(id, connection)?;
        session.touch(self.clock.load(Relaxed));
        Some(session)
    }

    fn create(&self, session: Session, connection: u64) -> Arc<Session> {
        session.touch(self.clock.load(Relaxed));
        let (id, session) = (session.id, Arc::new(session));
        let mut sessions = self.write();
        let stored = || StoredSession {
            session: session.clone(),
            claims: 0,
            order: u64::MAX,
            connections: Vec::new(),
        };
        sessions.by_id.entry(id).or_insert_with(stored);
        sessions.acquire(&id, connection).unwrap_or(session)
    }

    fn release(&self, id: &SessionId) -> Option<u64> {
        // Dropped after the lock is released, because dropping a session may close its handler.
        let _ended;
        let mut sessions = self.write();
        let stored = sessions.by_id.get_mut(id)?;
        stored.claims = stored.claims.saturating_sub(1);
        let left = stored.claims;
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
            id: stored.session.id.to_string(),
            adapter: stored.session.handler.adapter().name,
            claims: u64::from(stored.claims),
            instances: stored.session.instances.iter().map(|instance| instance.name.to_string()).collect(),
            idle_tenths: now.wrapping_sub(stored.session.used.load(Relaxed)),
        };
        stored.into_iter().map(summary).collect()
    }
}
