//! Sessions: reference-counted claims on handlers, made by CreateSession, and their store.

mod lifecycle;
mod memory;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

pub use lifecycle::NewSession;
pub use memory::MemoryStore;

use crate::handler::Handler;
use mixer_adapter_core::framework::digest::Digest;

/// The id of a session: a digest of adapter, canonical configuration and inferred types. Mixers with the same configuration
/// share one session.
pub type SessionId = Digest;

/// One session.
#[derive(Debug)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The handler it holds open.
    pub handler: Arc<Handler>,
    /// The instances it announced.
    pub instances: Box<[AnnouncedInstance]>,
    /// The step of the store's clock at the last use.
    used: AtomicU32,
}

/// An instance that a session's calls will carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedInstance {
    /// Its full name.
    pub name: Arc<str>,
    /// Its template.
    pub template: &'static str,
}

impl Session {
    /// Creates a session without claims.
    pub fn new(id: SessionId, handler: Arc<Handler>, instances: Box<[AnnouncedInstance]>) -> Self {
        Self { id, handler, instances, used: AtomicU32::new(0) }
    }

    /// Returns whether it announced all these instances for a template.
    fn announced(&self, template: &str, instances: &[&str]) -> bool {
        instances.iter().all(|name| {
            self.instances.iter().any(|announced| *announced.name == **name && announced.template == template)
        })
    }

    fn touch(&self, step: u32) {
        // Most calls find the step unchanged; not writing it keeps the cache line shared among cores.
        if self.used.load(Relaxed) != step {
            self.used.store(step, Relaxed);
        }
    }
}

/// A session as shown on `/sessions`, without its configuration, which may contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SessionSummary {
    /// Its id.
    pub id: String,
    /// Its adapter.
    pub adapter: &'static str,
    /// The number of CreateSession calls without a CloseSession.
    pub claims: u64,
    /// The instances it announced.
    pub instances: Vec<String>,
    /// The time since the last use, in tenths of the time after which it expires.
    pub idle_tenths: u32,
}

/// A store of sessions: [`MemoryStore`] for one process; replicas can share another one.
pub trait SessionStore: Send + Sync {
    /// Adds a claim to an existing session.
    fn acquire(&self, id: &SessionId, connection: u64) -> Option<Arc<Session>>;

    /// Stores a new session with one claim. If an equal session was stored meanwhile, adds a claim to that.
    fn create(&self, session: Session, connection: u64) -> Arc<Session>;

    /// Removes one claim. Without claims the session ends; its handler closes after calls in flight. Returns the number of
    /// claims left, or `None` if there is no such session.
    fn release(&self, id: &SessionId) -> Option<u64>;

    /// Returns the handler of a session and marks the session as used.
    fn handler(&self, id: &SessionId) -> Option<Arc<Handler>>;

    /// Returns the handler of the newest session that announced these instances of a template, preferably of a session
    /// from the same connection: a real Mixer sends no session id, but uses one connection for a session and its calls
    /// (docs/behaviour/sessions.md#finding-the-session-of-a-call).
    fn find(&self, template: &str, instances: &[&str], connection: u64) -> Option<Arc<Handler>>;

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
