//! Sessions that servers share: sends claims to their store, opens sessions of other servers, and notices which ones these have closed.

mod claims;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use self::claims::{Claims, Loss, Stored};
use super::{
    ClaimOwner, Claimant, LostClaims, Release, STEPS_TO_EXPIRE, Session, SessionId, SessionLookup,
    SessionStore, SessionStoreError, SharedClaim, SharedState,
};
use crate::{
    Host,
    handler::{CallError, Caller, Handler},
};
use mixer_adapter_core::framework::log_limit::LogLimit;

/// How long a session without use lives in the store if sessions do not expire, as long as no server has it.
const LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long CreateSession and CloseSession wait for others before they leave their change to the next exchange.
const TURN: Duration = Duration::from_millis(500);
/// The number of sessions whose states are read, or changed, before others have a turn.
const BATCH: usize = 50;
/// How long lists of instances are known to have no session.
const MISSING: Duration = Duration::from_secs(1);
/// The maximum number of lists of instances that are known to have none.
const MOST_MISSING: usize = 1000;

/// The store that servers share, and what it does not know yet.
pub(crate) struct SharedSessions {
    store: Arc<dyn SessionStore>,
    /// How long a session without use lives.
    life: Duration,
    /// Held while claims are made and sent, so that they are counted once.
    turn: AsyncMutex<()>,
    claims: Mutex<Claims>,
    /// Digests of lists of instances without a session, and when the store was asked. Another server may have created one since.
    missing: Mutex<HashMap<SessionId, Instant>>,
    log: LogLimit,
}

impl SharedSessions {
    /// Shares sessions through a store; `idle` is how long one without use lives.
    pub(crate) fn new(store: Arc<dyn SessionStore>, idle: Option<Duration>) -> Self {
        Self {
            store,
            life: idle.unwrap_or(LIFE),
            turn: AsyncMutex::default(),
            claims: Mutex::default(),
            missing: Mutex::default(),
            log: LogLimit::new(),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.store.is_connected()
    }

    async fn turn(&self) -> Option<Turn<'_>> {
        tokio::time::timeout(TURN, self.turn.lock()).await.ok()
    }

    fn is_missing(&self, instances: &SessionId) -> bool {
        self.missing.lock().get(instances).is_some_and(|since| since.elapsed() < MISSING)
    }

    fn note_missing(&self, instances: SessionId) {
        let mut missing = self.missing.lock();
        if missing.len() >= MOST_MISSING {
            missing.clear();
        }
        missing.insert(instances, Instant::now());
    }

    /// Sends the losses of a session. A loss that was not sent is sent later. One without an answer is not sent again, because it
    /// could remove the claim of another owner.
    async fn send_losses(&self, id: &SessionId) -> Result<(), SessionStoreError> {
        loop {
            let Some((owner, loss, count, epoch)) = self.claims.lock().take_loss(id) else { return Ok(()) };
            let answer = match loss {
                Loss::Released => self.store.release(id, owner, count, Some(epoch)).await.map(drop),
                Loss::Abandoned => self.store.abandon(id, owner, count, epoch).await,
            };
            if let Err(SessionStoreError::NotSent(_)) = answer {
                self.claims.lock().change(*id, owner, |change| {
                    change.epoch = epoch;
                    change.lost[loss as usize] += count;
                });
            }
            answer?;
        }
    }
}

/// The right to change claims on sessions, which nothing else changes meanwhile.
pub(super) type Turn<'h> = MutexGuard<'h, ()>;

impl Host {
    /// Waits for the right to change claims of shared sessions; `None` if sessions are not shared, or others take too long. A
    /// change without this right may be counted twice, which only delays the end of a session.
    pub(super) async fn turn(&self) -> Option<Turn<'_>> {
        self.shared.as_ref()?.turn().await
    }

    /// Makes a claim of the caller here, and notes that the store does not know it, before anything else can end the session. `make` returns
    /// `None` if it made none.
    pub(super) fn claim<E>(
        &self,
        id: &SessionId,
        caller: &Caller,
        make: impl FnOnce() -> Result<Option<usize>, E>,
    ) -> Result<Option<usize>, E> {
        let Some(shared) = &self.shared else { return make() };
        let owner = self.owner(&Claimant::of(caller));
        let mut claims = shared.claims.lock();
        let made = make()?;
        if made.is_some() {
            claims.add(*id, owner, 1);
        }
        Ok(made)
    }

    /// Adds a claim that was made here to the store. Without a turn, or the store, it is added later.
    pub(super) async fn share_claim(&self, turn: Option<Turn<'_>>, id: &SessionId) {
        let Some(shared) = &self.shared else { return };
        self.note_evicted(shared);
        if turn.is_some() {
            note_delay(id, self.send_claims(shared, id).await);
        }
    }

    /// Removes a claim of the caller from the store. Without the store, claims that were made here are removed.
    pub(super) async fn release_shared(
        &self,
        shared: &SharedSessions,
        id: &SessionId,
        caller: &Caller,
    ) -> Result<Release, CallError> {
        let turn = shared.turn().await;
        let owner = self.owner(&Claimant::of(caller));
        let is_added = !shared.claims.lock().added(id).is_empty();
        if turn.is_some() && is_added {
            note_delay(id, self.send_claims(shared, id).await);
        }
        let answer = match turn {
            Some(_) => shared.store.release(id, owner, 1, None).await,
            None => Err(SessionStoreError::NotSent("other sessions are being shared".to_owned())),
        };
        match answer {
            Ok(Release::Released(left)) => {
                self.release_known(shared, id, caller, owner);
                if left == 0 {
                    self.end_closed(shared, id, None);
                }
                Ok(Release::Released(left))
            }
            // The store has lost it, or does not know it yet.
            Ok(Release::Unknown) => Ok(self.sessions.release(id, caller)),
            Ok(Release::NotClaimed) => Ok(Release::NotClaimed),
            Err(error) => match self.sessions.release(id, caller) {
                released @ Release::Released(_) => {
                    if matches!(error, SessionStoreError::NotSent(_)) {
                        shared.claims.lock().lose(*id, owner, 1, Loss::Released);
                    }
                    Ok(released)
                }
                _ => Err(away(format!("session `{id:?}`"), &error)),
            },
        }
    }

    /// Removes a claim here that the store has removed. If the store knows none of the owner's claims here, it was made on another server.
    fn release_known(&self, shared: &SharedSessions, id: &SessionId, caller: &Caller, owner: ClaimOwner) {
        let claims = shared.claims.lock();
        let unsent = claims.added_by(id, owner);
        if unsent == 0 || self.held_by(id, owner) > unsent {
            self.sessions.release(id, caller);
        }
    }

    /// Ends a session that the store has closed, and returns whether it did. The session continues if it was claimed here meanwhile,
    /// or if the claims here are from an epoch that was not closed.
    fn end_closed(&self, shared: &SharedSessions, id: &SessionId, epoch: Option<u64>) -> bool {
        let mut claims = shared.claims.lock();
        let known = claims.known.get(id);
        let is_closed = known.is_some_and(|stored| epoch.is_none_or(|epoch| epoch == stored.epoch))
            || self.sessions.claims(id).is_none_or(|(_, held)| held.is_empty());
        let ends = is_closed && claims.added(id).is_empty();
        if ends {
            self.sessions.end(id);
            claims.forget(id);
        }
        ends
    }

    fn held_by(&self, id: &SessionId, owner: ClaimOwner) -> u32 {
        let held = self.sessions.claims(id).map(|(_, held)| held).unwrap_or_default();
        held.iter().filter(|(claimant, _)| self.owner(claimant) == owner).map(|(_, count)| count).sum()
    }

    /// Abandons the claims of a connection that has ended. Sessions created on it are no longer found by its calls.
    pub fn end_connection(&self, connection: u64) {
        let abandoned = self.sessions.end_connection(connection);
        let Some(shared) = &self.shared else { return };
        for LostClaims { id, claimant, count } in abandoned {
            shared.claims.lock().lose(id, self.owner(&claimant), count, Loss::Abandoned);
        }
    }

    /// Returns the handler of a session that another server has created, and that the caller knows the id of.
    ///
    /// # Errors
    /// The store does not answer or has another session with this id, or the session cannot be opened here.
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
    ///
    /// # Errors
    /// The store does not answer or has another session with the id that it found, or the session cannot be opened here.
    pub(crate) async fn find_shared(
        &self,
        template: &'static str,
        instances: &[&str],
        caller: &Caller,
    ) -> Result<Option<Arc<Handler>>, CallError> {
        let may_find = self.session_options.lookup == SessionLookup::Any;
        let Some(shared) = self.shared.as_ref().filter(|_| may_find) else { return Ok(None) };
        let Some(instance) = instances.first() else { return Ok(None) };
        let all = self.instance_digest(template, instances);
        if shared.is_missing(&all) {
            return Ok(None);
        }
        let found = shared.store.find(&self.instance_digest(template, &[instance])).await;
        let found = found.map_err(|error| away(format!("a session with instance `{instance}`"), &error))?;
        let session = match found {
            Some(id) => self.open_shared(shared, &id, caller).await?,
            None => None,
        };
        let session = session.filter(|session| session.announced(template, instances));
        if session.is_none() {
            shared.note_missing(all);
        }
        Ok(session.map(|session| session.handler.clone()))
    }

    async fn open_shared(
        &self,
        shared: &SharedSessions,
        id: &SessionId,
        caller: &Caller,
    ) -> Result<Option<Arc<Session>>, CallError> {
        let loaded =
            shared.store.load(id).await.map_err(|error| away(format!("session `{id:?}`"), &error))?;
        let Some(request) = loaded else { return Ok(None) };
        let (made, adapter, config, types) = self.check_new(request.clone(), caller.connection).await?;
        if made != *id {
            if let Some(suppressed) = shared.log.admit() {
                tracing::warn!(session = ?id, suppressed, "a shared session is not what its id stands for; do all servers have the same --session-key-file and adapters?");
            }
            return Err(CallError::UnknownSession { id: format!("{id:?}") });
        }
        let handler = self.handlers.open_in_call(&adapter, config.clone(), &types, caller.connection).await?;
        let session = Session::new(made, handler, &types, Some(Arc::new(request)));
        let handler = session.handler.clone();
        self.counts.loaded.fetch_add(1, Relaxed);
        match self.sessions.adopt(session, self.session_options.limits) {
            Ok(evicted) => self.count_evicted(evicted, caller),
            // At a limit the call is served all the same; what its handler counts stays for the next one.
            Err(_) => self.handlers.cache(&handler, &config),
        }
        self.note_evicted(shared);
        let stored = self.sessions.claims(id);
        Ok(Some(
            stored
                .map_or_else(|| Arc::new(Session::new(made, handler, &types, None)), |(session, _)| session),
        ))
    }

    /// Exchanges changes with the store that servers share: sends claims that it lacks, and ends sessions that were closed on other servers.
    pub async fn synchronize_sessions(&self) {
        let Some(shared) = &self.shared else { return };
        if let Err(error) = self.try_synchronize(shared).await {
            tracing::debug!(%error, "sessions are shared later");
        }
    }

    async fn try_synchronize(&self, shared: &SharedSessions) -> Result<(), SessionStoreError> {
        let turn = shared.turn.lock().await;
        let ids = self.sessions.ids();
        // After the ids: the epochs of sessions that were evicted before are known yet.
        self.note_evicted(shared);
        shared.claims.lock().known.retain(|id, _| ids.contains(id));
        drop(turn);
        for batch in ids.into_iter().collect::<Vec<_>>().chunks(BATCH) {
            let _turn = shared.turn.lock().await;
            for (id, state) in batch.iter().zip(shared.store.states(batch).await?) {
                if let SharedState::Closed(epoch) = state
                    && self.end_closed(shared, id, Some(epoch))
                {
                    continue;
                }
                let (is_changed, stored) = {
                    let claims = shared.claims.lock();
                    (claims.of(id).next().is_some(), claims.known.get(id).copied())
                };
                let is_current = stored.is_some_and(|stored| {
                    state == SharedState::Open(stored.epoch)
                        && stored.touched.elapsed() < shared.life / STEPS_TO_EXPIRE
                });
                if is_changed || !is_current {
                    self.send_claims(shared, id).await?;
                    shared.send_losses(id).await?;
                }
            }
        }
        let mut others: Vec<SessionId> = shared.claims.lock().changes.keys().map(|(id, _)| *id).collect();
        others.dedup();
        for id in others {
            let _turn = shared.turn.lock().await;
            self.send_claims(shared, &id).await?;
            shared.send_losses(&id).await?;
        }
        Ok(())
    }

    /// Sends the claims on a session that the store does not know. Without an answer, they are sent later.
    async fn send_claims(&self, shared: &SharedSessions, id: &SessionId) -> Result<(), SessionStoreError> {
        let (epoch, new) = {
            let claims = shared.claims.lock();
            (claims.epoch(id), claims.added(id))
        };
        if let Some((session, claims)) = self.sessions.claims(id)
            && let Some(request) = &session.request
        {
            let all = claims.iter().map(|(claimant, count)| (self.owner(claimant), *count));
            let digests = session.instances.iter();
            let digests = digests.map(|instance| self.instance_digest(instance.template, &[&*instance.name]));
            let claim = SharedClaim {
                id,
                request,
                instances: &digests.collect::<Vec<_>>(),
                life: self.remaining_life(shared, &session),
                epoch,
                new: &new,
                all: &all.collect::<Vec<_>>(),
            };
            let epoch = shared.store.claim(claim).await?;
            shared.claims.lock().known.insert(*id, Stored { epoch, touched: Instant::now() });
        }
        // The store knows them now, or this server does not have the session any more.
        let mut claims = shared.claims.lock();
        for (owner, count) in new {
            claims.change(*id, owner, |change| change.added = change.added.saturating_sub(count));
        }
        Ok(())
    }

    fn remaining_life(&self, shared: &SharedSessions, session: &Session) -> Duration {
        let age = self.sessions.age(session).min(STEPS_TO_EXPIRE);
        shared.life / STEPS_TO_EXPIRE * (STEPS_TO_EXPIRE + 1 - age)
    }

    fn note_evicted(&self, shared: &SharedSessions) {
        for LostClaims { id, claimant, count } in self.sessions.take_evicted() {
            shared.claims.lock().lose(id, self.owner(&claimant), count, Loss::Released);
        }
    }

    fn owner(&self, claimant: &Claimant) -> ClaimOwner {
        let (kind, name) = match claimant {
            Claimant::Peer(peer) => ("peer", peer.to_string()),
            Claimant::Address(Some(address)) => ("address", address.to_canonical().to_string()),
            Claimant::Address(None) => ("address", String::new()),
            Claimant::Gone => return ClaimOwner::Nobody,
        };
        ClaimOwner::Client(self.session_options.key.id([&b"owner"[..], kind.as_bytes(), name.as_bytes()]))
    }

    fn instance_digest(&self, template: &str, instances: &[&str]) -> SessionId {
        let names = instances.iter().map(|instance| instance.as_bytes());
        self.session_options.key.id([&b"instance"[..], template.as_bytes()].into_iter().chain(names))
    }
}

fn note_delay(id: &SessionId, sent: Result<(), SessionStoreError>) {
    if let Err(error) = sent {
        tracing::debug!(%error, session = ?id, "claims on a session are shared later");
    }
}

fn away(session: String, error: &SessionStoreError) -> CallError {
    CallError::StoreAway { session, reason: error.to_string() }
}
