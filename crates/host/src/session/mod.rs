//! Sessions: reference-counted claims on handlers, made by CreateSession, in memory and in a store that servers share.

mod id;
mod lifecycle;
mod shared;
mod store;

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use prost::Message as _;

pub use id::{SessionId, SessionKey, SessionKeyError};
pub use lifecycle::NewSession;
pub(crate) use shared::SharedSessions;
pub use store::MemoryStore;

use crate::handler::{BoxFuture, Caller, Handler};
use mixer_adapter_core::{adapter::InferredTypes, framework::settings};

settings! {
    /// Options of sessions.
    #[derive(Clone, Debug)]
    #[non_exhaustive]
    pub struct SessionOptions {
        /// The key of session ids.
        key: SessionKey = SessionKey::random(),
        /// The sessions that calls without id and configuration can find.
        lookup: SessionLookup = SessionLookup::Own,
        /// Limits on all sessions.
        limits: SessionLimits = SessionLimits::default(),
    }
}

settings! {
    /// Limits on all sessions of a process.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct SessionLimits {
        /// The maximum number of sessions.
        sessions: usize = 100_000,
        /// The maximum memory of their handlers, announced instances and claims in bytes, as estimated from their configurations
        /// ([`Adapter::BYTES_PER_CONFIG_BYTE`](mixer_adapter_core::Adapter::BYTES_PER_CONFIG_BYTE)).
        bytes: usize = 64 << 20,
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
    /// The request that created it, if a store shares it.
    request: Option<Arc<NewSession>>,
    /// The step of the store's clock at the last use.
    used: AtomicU32,
}

/// An instance that a session's calls will carry.
#[derive(Debug)]
struct AnnouncedInstance {
    /// Its full name.
    name: Arc<str>,
    template: &'static str,
}

impl Session {
    /// Creates a session without claims. Other servers make it from `request`, too.
    fn new(
        id: SessionId,
        handler: Arc<Handler>,
        types: &InferredTypes,
        request: Option<Arc<NewSession>>,
    ) -> Self {
        let instances = types.iter().map(|inferred| AnnouncedInstance {
            name: inferred.instance.as_str().into(),
            template: inferred.template,
        });
        Self { id, handler, instances: instances.collect(), request, used: AtomicU32::new(0) }
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
        let request = self.request.as_ref().map_or(0, |request| request.encoded_len());
        SESSION_BYTES + self.handler.bytes() + names + request
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

/// The outcome of the release of a claim.
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

/// The number of steps of the store's clock without use after which a session expires.
pub const STEPS_TO_EXPIRE: u32 = 10;

/// Sessions that several servers share, such as in Redis. Each server opens its handlers for them.
///
/// The store has the request that created a session, and how many claims each owner has. It gives each session a number when it is
/// stored, the epoch. A server that finds another epoch than before knows that the store had lost the session, and adds all of its claims.
pub trait SessionStore: Send + Sync {
    /// Stores a session if it is not stored, and adds claims: the new ones if the epoch is the given one, otherwise all. A session that
    /// was closed is opened again, in the same epoch, if there are claims to add. Returns the epoch. The session lives at least as long
    /// as given.
    fn claim<'a>(&'a self, claim: SharedClaim<'a>) -> BoxFuture<'a, Result<u64, SessionStoreError>>;

    /// Removes claims of an owner, or else abandoned ones, if the session is in the given epoch, or whichever it is in. Without claims
    /// the session is closed.
    fn release<'a>(
        &'a self,
        id: &'a SessionId,
        owner: ClaimOwner,
        count: u32,
        epoch: Option<u64>,
    ) -> BoxFuture<'a, Result<Release, SessionStoreError>>;

    /// Abandons claims of an owner, if the session is in the given epoch.
    fn abandon<'a>(
        &'a self,
        id: &'a SessionId,
        owner: ClaimOwner,
        count: u32,
        epoch: u64,
    ) -> BoxFuture<'a, Result<(), SessionStoreError>>;

    /// Returns the request that created a session; `None` if none with this id is open.
    fn load<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<NewSession>, SessionStoreError>>;

    /// Returns the session that was claimed last of those with an instance, which may be closed.
    fn find<'a>(
        &'a self,
        instance: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<SessionId>, SessionStoreError>>;

    /// Returns the states of sessions.
    fn states<'a>(
        &'a self,
        ids: &'a [SessionId],
    ) -> BoxFuture<'a, Result<Vec<SharedState>, SessionStoreError>>;

    /// Returns whether the store is reached.
    fn is_connected(&self) -> bool;
}

/// Claims that a server has on a session.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SharedClaim<'a> {
    /// The session.
    pub id: &'a SessionId,
    /// The request that created it.
    pub request: &'a NewSession,
    /// Keyed digests of its instances.
    pub instances: &'a [SessionId],
    /// How long it lives without another claim.
    pub life: Duration,
    /// The epoch in which the server has added its claims; 0 if it has not.
    pub epoch: u64,
    /// The claims since then.
    pub new: &'a [(ClaimOwner, u32)],
    /// All claims.
    pub all: &'a [(ClaimOwner, u32)],
}

/// An owner of claims in a store that servers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClaimOwner {
    /// A connection that has ended: any client that knows the id of the session may remove the claim.
    Nobody,
    /// The keyed digest of an authenticated peer or, without authentication, of the IP address of a client: it has another connection
    /// to each server.
    Client(SessionId),
}

impl fmt::Display for ClaimOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(digest) => digest.fmt(f),
            Self::Nobody => f.write_str("abandoned"),
        }
    }
}

/// The state of a session in a store that servers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedState {
    /// It is not stored: it has expired, or the store has lost it.
    Unknown,
    /// It was closed, in this epoch.
    Closed(u64),
    /// It is open, in this epoch.
    Open(u64),
}

/// A store that did not answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SessionStoreError {
    /// It was not asked, or refused before it changed anything.
    #[error("{0}")]
    NotSent(String),
    /// It may have done what it was asked.
    #[error("{0}")]
    Unanswered(String),
}

/// Who made a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claimant {
    /// An authenticated peer.
    Peer(Arc<str>),
    /// A client without authentication; `None` for Unix sockets and calls from within the process.
    Address(Option<IpAddr>),
    /// A client without authentication, whose connection has ended.
    Gone,
}

impl Claimant {
    pub(crate) fn of(caller: &Caller) -> Self {
        caller.peer.clone().map_or(Self::Address(caller.remote.map(|remote| remote.ip())), Self::Peer)
    }
}

/// The claims on a session by who made them.
pub(crate) type ClaimCounts = Vec<(Claimant, u32)>;

/// Claims of a claimant on a session that have ended other than by a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostClaims {
    pub(crate) id: SessionId,
    pub(crate) claimant: Claimant,
    pub(crate) count: u32,
}
