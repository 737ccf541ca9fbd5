//! Sessions: reference-counted claims on handlers, made by CreateSession, and their store.

mod id;
mod lifecycle;
mod store;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

pub use id::{SessionId, SessionKey, SessionKeyError};
pub use lifecycle::NewSession;
pub use store::MemoryStore;

use crate::handler::{Caller, Handler};
use mixer_adapter_core::framework::setters;

/// Options of sessions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionOptions {
    /// The key of session ids.
    pub key: SessionKey,
    /// The sessions that calls without id and configuration can find.
    pub lookup: SessionLookup,
    /// Limits on all sessions.
    pub limits: SessionLimits,
}

/// Limits on all sessions of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionLimits {
    /// The maximum number of sessions.
    pub sessions: usize,
    /// The maximum memory of their handlers, announced instances and claims in bytes, as estimated from their configurations
    /// ([`Adapter::BYTES_PER_CONFIG_BYTE`](mixer_adapter_core::Adapter::BYTES_PER_CONFIG_BYTE)).
    pub bytes: usize,
}

setters!(SessionLimits { sessions: usize, bytes: usize });

impl Default for SessionLimits {
    fn default() -> Self {
        Self { sessions: 100_000, bytes: 64 << 20 }
    }
}

/// The limit that a new session exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionLimitError {
    /// [`SessionLimits::sessions`].
    Sessions,
    /// [`SessionLimits::bytes`].
    Bytes,
}

impl Default for SessionOptions {
    /// A random key; calls find only sessions of their connection.
    fn default() -> Self {
        Self { key: SessionKey::random(), lookup: SessionLookup::Own, limits: SessionLimits::default() }
    }
}

setters!(SessionOptions { key: SessionKey, lookup: SessionLookup, limits: SessionLimits });

/// The sessions that a call with neither a session id nor a configuration can find by its instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionLookup {
    /// Sessions created on the connection of the call, by the same peer.
    #[default]
    Own,
    /// These, or else the newest session of any connection.
    Any,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The handler it holds open.
    pub handler: Arc<Handler>,
    /// The instances it announced, sorted by name.
    instances: Box<[AnnouncedInstance]>,
    /// The step of the store's clock at the last use.
    used: AtomicU32,
}

/// An instance that a session's calls will carry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnnouncedInstance {
    /// Its full name.
    pub name: Arc<str>,
    /// Its template.
    pub template: &'static str,
}

impl Session {
    /// Creates a session without claims.
    pub fn new(id: SessionId, handler: Arc<Handler>, mut instances: Box<[AnnouncedInstance]>) -> Self {
        instances.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Self { id, handler, instances, used: AtomicU32::new(0) }
    }

    /// Returns whether it announced all these instances for a template.
    fn announced(&self, template: &str, instances: &[&str]) -> bool {
        instances.iter().all(|name| {
            let index = self.instances.binary_search_by(|announced| (*announced.name).cmp(name));
            index.is_ok_and(|index| self.instances[index].template == template)
        })
    }

    /// Returns an estimate of the memory it takes, in bytes.
    fn bytes(&self) -> usize {
        let names: usize = self.instances.iter().map(|instance| instance.name.len() + INSTANCE_BYTES).sum();
        SESSION_BYTES + self.handler.bytes() + names
    }

    fn touch(&self, step: u32) {
        // Most calls find the step unchanged; not writing it keeps the cache line shared among cores.
        if self.used.load(Relaxed) != step {
            self.used.store(step, Relaxed);
        }
    }
}

/// Estimates of the memory of a session and of the index entries of an instance, in bytes.
const SESSION_BYTES: usize = 256;
const INSTANCE_BYTES: usize = 128;

/// A session as shown on `/sessions`: without its configuration, which may contain secrets, and without the whole id, which
/// gives access to it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct SessionSummary {
    /// The first eight digits of its id.
    pub id: String,
    /// Its adapter.
    pub adapter: &'static str,
    /// The number of CreateSession calls without a CloseSession.
    pub claims: u64,
    /// The number of these whose connection has ended.
    pub abandoned: u64,
    /// The instances it announced.
    pub instances: Vec<String>,
    /// The time since the last use, in tenths of the time after which it expires.
    pub idle_tenths: u32,
}

/// The outcome of [`SessionStore::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// A claim was removed; the number of claims left. Without claims the session has ended.
    Released(u64),
    /// The session has no claim that the caller may remove.
    NotClaimed,
    /// No session has this id.
    Unknown,
}

/// A store of sessions: [`MemoryStore`] for one process; replicas can share another one.
///
/// A claim belongs to the authenticated peer that made it or, without authentication, to its connection. When the connection
/// has ended, a claim of a peer without authentication is abandoned: any client that knows the id may remove it.
pub trait SessionStore: Send + Sync {
    /// Adds a claim of the caller to an existing session, and returns how many sessions ended for it, as in
    /// [`create`](Self::create). Returns `None` if the session does not exist.
    ///
    /// # Errors
    /// The limit that the claim exceeds.
    fn acquire(
        &self,
        id: &SessionId,
        caller: &Caller,
        limits: SessionLimits,
    ) -> Result<Option<usize>, SessionLimitError>;

    /// Stores a new session with one claim, or adds a claim to an equal session that was stored meanwhile. Returns how many sessions
    /// ended for it. At a limit, the connection with the most sessions loses its newest claims. All sessions whose connections
    /// have ended count for one owner.
    ///
    /// # Errors
    /// The limit that the session exceeds, if no connection holds more than its own would. Normally no other session ends then.
    fn create(
        &self,
        session: Session,
        caller: &Caller,
        limits: SessionLimits,
    ) -> Result<usize, SessionLimitError>;

    /// Returns whether the number of sessions lets the caller create one more.
    fn admits(&self, caller: &Caller, limits: SessionLimits) -> bool;

    /// Removes one claim of the caller, or else an abandoned one. Without claims the session ends; its handler closes after
    /// calls in flight.
    fn release(&self, id: &SessionId, caller: &Caller) -> Release;

    /// Abandons the claims of a connection that has ended, and forgets the sessions created on it. The connection 0, which
    /// stands for callers in the process, does not end.
    fn end_connection(&self, connection: u64);

    /// Returns the handler of a session and marks the session as used.
    fn handler(&self, id: &SessionId) -> Option<Arc<Handler>>;

    /// Returns the handler of the newest session that announced these instances of a template: a real Mixer sends no session
    /// id, but uses one connection for a session and its calls
    /// (docs/behaviour/sessions.md#finding-the-session-of-a-call).
    fn find(
        &self,
        template: &str,
        instances: &[&str],
        connection: u64,
        peer: Option<&str>,
        lookup: SessionLookup,
    ) -> Option<Arc<Handler>>;

    /// Advances the clock by one step, ends sessions that were not used for [`STEPS_TO_EXPIRE`] steps, and returns how many.
    fn expire_idle(&self) -> usize;

    /// Ends all sessions and returns how many.
    fn clear(&self) -> usize;

    /// Returns the number of sessions by adapter.
    fn counts(&self) -> Vec<(&'static str, usize)>;

    /// Returns the first `limit` sessions in the order of their ids.
    fn list(&self, limit: usize) -> Vec<SessionSummary>;
}

/// The number of steps of the store's clock without use after which a session expires.
pub const STEPS_TO_EXPIRE: u32 = 10;
