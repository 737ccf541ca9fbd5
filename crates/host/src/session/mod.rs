//! Sessions: ref-counted claims on handlers, made by CreateSession, and the store that keeps them.

mod memory;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

pub use memory::MemoryStore;

use crate::handler::Handler;
use mixer_adapter_core::framework::digest::Digest;

/// A session's id: a digest of adapter, canonical configuration and inferred types, so that every Mixer with the same
/// configuration shares one session.
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
    /// The store's tick at its last use.
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
    /// A session that nobody has claimed yet.
    pub fn new(id: SessionId, handler: Arc<Handler>, instances: Box<[AnnouncedInstance]>) -> Self {
        Self { id, handler, instances, used: AtomicU32::new(0) }
    }

    /// Whether it announced all these instances, for that template.
    fn announced(&self, template: &str, instances: &[&str]) -> bool {
        instances.iter().all(|name| {
            self.instances.iter().any(|announced| *announced.name == **name && announced.template == template)
        })
    }

    fn touch(&self, tick: u32) {
        // Most calls find the tick unchanged; not writing it keeps the cache line shared among cores.
        if self.used.load(Relaxed) != tick {
            self.used.store(tick, Relaxed);
        }
    }
}

/// A session as `/sessions` shows it: nothing of its configuration, which may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SessionSummary {
    /// Its id.
    pub id: String,
    /// Its adapter.
    pub adapter: &'static str,
    /// How many CreateSession calls have no CloseSession yet.
    pub claims: u64,
    /// The instances it announced.
    pub instances: Vec<String>,
    /// In tenths of the time after which it expires.
    pub idle_tenths: u32,
}

/// Where sessions are kept. In memory for one process ([`MemoryStore`]); replicas can share one behind this trait.
pub trait SessionStore: Send + Sync {
    /// Claims a session that exists: one more CloseSession is due.
    fn claim(&self, id: &SessionId, connection: u64) -> Option<Arc<Session>>;

    /// Keeps a new session with one claim; where an equal one was kept meanwhile, claims that.
    fn create(&self, session: Session, connection: u64) -> Arc<Session>;

    /// Gives one claim back. The session ends with its last claim, its handler when the calls in flight are done.
    /// Returns how many claims are left, `None` if there is no such session.
    fn close(&self, id: &SessionId) -> Option<u64>;

    /// The handler of a session, which counts as a use of it.
    fn handler(&self, id: &SessionId) -> Option<Arc<Handler>>;

    /// The handler of the newest session that announced these instances of that template, preferring one claimed on the
    /// same connection: a real Mixer sends no session id, but makes a session and its calls on one connection
    /// (docs/behaviour/sessions.md#finding-the-session-of-a-call).
    fn find(&self, template: &str, instances: &[&str], connection: u64) -> Option<Arc<Handler>>;

    /// Ends sessions without use for ten ticks; called once a tick. Returns how many.
    fn tick(&self) -> usize;

    /// Ends all sessions. Returns how many.
    fn clear(&self) -> usize;

    /// How many sessions each adapter has.
    fn counts(&self) -> Vec<(&'static str, usize)>;

    /// Some sessions in order of their ids.
    fn list(&self, at_most: usize) -> Vec<SessionSummary>;
}

/// A session without use for so many ticks of its store expires.
pub const TICKS_TO_EXPIRE: u32 = 10;
