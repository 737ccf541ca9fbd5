//! Sessions that servers share: sends claims to their store, opens sessions of other servers, and notices which ones these have closed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use super::{
    ClaimOwner, Claimant, LostClaims, Release, STEPS_TO_EXPIRE, Session, SessionId, SessionLookup,
    SessionStore, SessionStoreError, SharedClaim, SharedState,
};
use crate::{
    Host,
    handler::{CallError, Caller, Handler},
};

/// How long a session without use lives in the store if sessions do not expire, as long as no server has it.
const LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// The number of sessions whose states are read, or changed, before others have a turn.
const BATCH: usize = 500;
/// The maximum number of sessions with changes that the store does not know. Claims in others stay until the session expires.
const MOST_CHANGED: usize = 100_000;

/// The store that servers share, and what it does not know yet.
pub(crate) struct SharedSessions {
    store: Arc<dyn SessionStore>,
    /// How long a session without use lives.
    life: Duration,
    /// The sessions of this server that are in the store. Claims are changed under the lock, so that they are counted once.
    known: AsyncMutex<Known>,
    changes: Mutex<Changes>,
}

type Known = HashMap<SessionId, Stored>;
type Changes = BTreeMap<SessionId, BTreeMap<ClaimOwner, Change>>;

#[derive(Clone, Copy, Debug)]
struct Stored {
    /// The epoch in which this server added its claims.
    epoch: u64,
    touched: Instant,
}

/// Changes of the claims of an owner that the store does not know.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    added: u32,
    /// Sent after the added claims.
    released: u32,
    abandoned: u32,
}

impl SharedSessions {
    /// Shares sessions through a store; `idle` is how long one without use lives.
    pub(crate) fn new(store: Arc<dyn SessionStore>, idle: Option<Duration>) -> Self {
        Self { store, life: idle.unwrap_or(LIFE), known: AsyncMutex::default(), changes: Mutex::default() }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.store.is_connected()
    }

    fn change(&self, id: SessionId, owner: ClaimOwner, change: impl FnOnce(&mut Change)) {
        let mut changes = self.changes.lock();
        if changes.len() < MOST_CHANGED || changes.contains_key(&id) {
            change(changes.entry(id).or_default().entry(owner).or_default());
        }
    }
}

/// The claims of this server on sessions, which nothing else changes meanwhile.
pub(super) struct Exchange<'h> {
    shared: &'h SharedSessions,
    known: MutexGuard<'h, Known>,
}

impl Host {
    /// Waits for the right to change claims of shared sessions; `None` if sessions are not shared.
    pub(super) async fn exchange(&self) -> Option<Exchange<'_>> {
        let shared = self.shared.as_ref()?;
        Some(Exchange { shared, known: shared.known.lock().await })
    }

    /// Adds a claim that the caller has made to the store. Without the store, it is added later.
    pub(super) async fn share_claim(&self, exchange: Option<Exchange<'_>>, id: &SessionId, caller: &Caller) {
        let Some(mut exchange) = exchange else { return };
        self.note_evicted(exchange.shared);
        exchange.shared.change(*id, self.owner(&Claimant::of(caller)), |change| change.added += 1);
        self.send(&mut exchange, id).await;
    }

    /// Removes a claim of the caller from the store. Without the store, claims that were made here are removed.
    pub(super) async fn release_shared(
        &self,
        shared: &SharedSessions,
        id: &SessionId,
        caller: &Caller,
    ) -> Result<Release, CallError> {
        let mut exchange = Exchange { shared, known: shared.known.lock().await };
        if shared.changes.lock().contains_key(id) {
            self.send(&mut exchange, id).await;
        }
        let owner = self.owner(&Claimant::of(caller));
        match shared.store.release(id, owner, 1).await {
            Ok(Release::Released(left)) => {
                self.sessions.release(id, caller);
                if left == 0 {
                    self.sessions.end(id);
                    exchange.known.remove(id);
                }
                Ok(Release::Released(left))
            }
            // The store has lost it, or does not know it yet.
            Ok(Release::Unknown) => Ok(self.sessions.release(id, caller)),
            Ok(Release::NotClaimed) => Ok(Release::NotClaimed),
            Err(error) => match self.sessions.release(id, caller) {
                released @ Release::Released(_) => {
                    if matches!(error, SessionStoreError::NotSent(_)) {
                        shared.change(*id, owner, |change| match change.added {
                            0 => change.released += 1,
                            _ => change.added -= 1,
                        });
                    }
                    Ok(released)
                }
                _ => Err(away(id, &error)),
            },
        }
    }

    /// Abandons the claims of a connection that has ended. Sessions created on it are no longer found by its calls.
    pub fn end_connection(&self, connection: u64) {
        let abandoned = self.sessions.end_connection(connection);
        let Some(shared) = &self.shared else { return };
        for LostClaims { id, claimant, count } in abandoned {
            shared.change(id, self.owner(&claimant), |change| change.abandoned += count);
        }
    }

    /// Returns the handler of a session that another server has created, and that the caller knows the id of.
    ///
    /// # Errors
    /// The store does not answer, or the session cannot be opened here.
    pub(crate) async fn load_session(
        &self,
        id: &SessionId,
        caller: &Caller,
    ) -> Result<Option<Arc<Handler>>, CallError> {
        let Some(shared) = &self.shared else { return Ok(None) };
        let Some(session) = self.open_shared(shared, id, caller).await? else { return Ok(None) };
        Ok(Some(session.handler.clone()))
    }

    /// Returns the handler of the newest session of any server that announced these instances, if calls may use it.
    pub(crate) async fn find_shared(
        &self,
        template: &'static str,
        instances: &[&str],
        caller: &Caller,
    ) -> Option<Arc<Handler>> {
        let shared = self.shared.as_ref().filter(|_| self.session_options.lookup == SessionLookup::Any)?;
        let instance = self.instance_digest(template, instances.first()?);
        let id = shared.store.find(&instance).await.ok()??;
        let session = self.open_shared(shared, &id, caller).await.ok()??;
        session.announced(template, instances).then(|| session.handler.clone())
    }

    async fn open_shared(
        &self,
        shared: &SharedSessions,
        id: &SessionId,
        caller: &Caller,
    ) -> Result<Option<Arc<Session>>, CallError> {
        let loaded = shared.store.load(id).await.map_err(|error| away(id, &error))?;
        let Some(request) = loaded else { return Ok(None) };
        let (made, adapter, config, types) = self.check_new(request.clone(), caller.connection).await?;
        if made != *id {
            tracing::warn!(session = ?id, "a shared session is not what its id stands for; do all servers have the same --session-key-file and adapters?");
            return Ok(None);
        }
        let handler = self.handlers.open_in_call(&adapter, config, &types, caller.connection).await?;
        let session = Self::new_session(made, handler, &types).with_request(Some(Arc::new(request)));
        let handler = session.handler.clone();
        self.counts.loaded.fetch_add(1, Relaxed);
        // At a limit the call is served all the same.
        let adopted = self.sessions.adopt(session, self.session_options.limits);
        self.note_evicted(shared);
        let stored = adopted.ok().and_then(|()| self.sessions.claims(id));
        Ok(Some(
            stored.map_or_else(|| Arc::new(Self::new_session(made, handler, &types)), |(session, _)| session),
        ))
    }

    /// Exchanges changes with the store that servers share: sends claims that it lacks, and ends sessions that were closed on other servers.
    pub async fn synchronize_sessions(&self) {
        let Some(shared) = &self.shared else { return };
        self.note_evicted(shared);
        let ids = self.sessions.ids();
        shared.known.lock().await.retain(|id, _| ids.contains(id));
        for batch in ids.into_iter().collect::<Vec<_>>().chunks(BATCH) {
            let mut exchange = Exchange { shared, known: shared.known.lock().await };
            let states = match shared.store.states(batch).await {
                Ok(states) => states,
                Err(error) => return tracing::debug!(%error, "sessions are not shared now"),
            };
            for (id, state) in batch.iter().zip(states) {
                let is_changed = shared.changes.lock().contains_key(id);
                let stored = exchange.known.get(id).copied();
                let is_current = stored.is_some_and(|stored| {
                    state == SharedState::Open(stored.epoch)
                        && stored.touched.elapsed() < shared.life / STEPS_TO_EXPIRE
                });
                if state == SharedState::Closed && !is_changed {
                    self.sessions.end(id);
                    exchange.known.remove(id);
                } else if (is_changed || !is_current) && !self.send(&mut exchange, id).await {
                    return;
                }
            }
        }
        let others: Vec<SessionId> = shared.changes.lock().keys().copied().collect();
        for id in others {
            let mut exchange = Exchange { shared, known: shared.known.lock().await };
            if !self.send(&mut exchange, &id).await {
                return;
            }
        }
    }

    /// Sends the changes of a session that the store does not know. Returns whether it answered; without, it is sent later.
    async fn send(&self, exchange: &mut Exchange<'_>, id: &SessionId) -> bool {
        let sent = self.try_send(exchange, id).await;
        if let Err(error) = &sent {
            tracing::debug!(%error, session = ?id, "claims on a session are shared later");
        }
        sent.is_ok()
    }

    async fn try_send(&self, exchange: &mut Exchange<'_>, id: &SessionId) -> Result<(), SessionStoreError> {
        let shared = exchange.shared;
        let changes = shared.changes.lock().get(id).cloned().unwrap_or_default();
        if let Some((session, claims)) = self.sessions.claims(id)
            && let Some(request) = &session.request
        {
            let all = claims.iter().map(|(claimant, count)| (self.owner(claimant), *count));
            let new = changes.iter().map(|(owner, change)| (*owner, change.added));
            let digests = session.instances.iter();
            let digests = digests.map(|instance| self.instance_digest(instance.template, &instance.name));
            let claim = SharedClaim {
                id,
                request,
                instances: &digests.collect::<Vec<_>>(),
                life: self.remaining_life(shared, &session),
                epoch: exchange.known.get(id).map_or(0, |stored| stored.epoch),
                new: &new.filter(|(_, added)| *added > 0).collect::<Vec<_>>(),
                all: &all.collect::<Vec<_>>(),
            };
            let epoch = shared.store.claim(claim).await?;
            exchange.known.insert(*id, Stored { epoch, touched: Instant::now() });
        }
        for (owner, change) in changes {
            // The store knows the added claims now, or this server does not have the session any more.
            shared.change(*id, owner, |left| left.added -= change.added.min(left.added));
            if change.released > 0 {
                let released = shared.store.release(id, owner, change.released).await;
                shared.settle(id, owner, released.map(drop), |left| left.released -= change.released)?;
            }
            if change.abandoned > 0 {
                let abandoned = shared.store.abandon(id, owner, change.abandoned).await;
                shared.settle(id, owner, abandoned, |left| left.abandoned -= change.abandoned)?;
            }
        }
        shared.forget_sent(id);
        Ok(())
    }

    fn remaining_life(&self, shared: &SharedSessions, session: &Session) -> Duration {
        let age = self.sessions.age(session).min(STEPS_TO_EXPIRE);
        shared.life / STEPS_TO_EXPIRE * (STEPS_TO_EXPIRE + 1 - age)
    }

    fn note_evicted(&self, shared: &SharedSessions) {
        for LostClaims { id, claimant, count } in self.sessions.take_evicted() {
            shared.change(id, self.owner(&claimant), |change| change.released += count);
        }
    }

    fn owner(&self, claimant: &Claimant) -> ClaimOwner {
        let digest = |kind: &str, name: &str| {
            ClaimOwner::Client(self.session_options.key.id([&b"owner"[..], kind.as_bytes(), name.as_bytes()]))
        };
        match claimant {
            Claimant::Peer(peer) => digest("peer", peer),
            Claimant::Address(Some(address)) => digest("address", &address.to_canonical().to_string()),
            Claimant::Address(None) => digest("address", ""),
            Claimant::Gone => ClaimOwner::Nobody,
        }
    }

    fn instance_digest(&self, template: &str, instance: &str) -> SessionId {
        self.session_options.key.id([&b"instance"[..], template.as_bytes(), instance.as_bytes()])
    }
}

impl SharedSessions {
    /// Notes that a change was sent. A release without an answer is not sent again: it could remove the claim of another.
    fn settle(
        &self,
        id: &SessionId,
        owner: ClaimOwner,
        answer: Result<(), SessionStoreError>,
        sent: impl FnOnce(&mut Change),
    ) -> Result<(), SessionStoreError> {
        if !matches!(answer, Err(SessionStoreError::NotSent(_))) {
            self.change(*id, owner, sent);
        }
        answer
    }

    fn forget_sent(&self, id: &SessionId) {
        let mut changes = self.changes.lock();
        let Some(of_session) = changes.get_mut(id) else { return };
        of_session.retain(|_, change| change.added + change.released + change.abandoned > 0);
        if of_session.is_empty() {
            changes.remove(id);
        }
    }
}

fn away(id: &SessionId, error: &SessionStoreError) -> CallError {
    CallError::StoreAway { id: id.to_string(), reason: error.to_string() }
}
