//! The cache of check answers.
//!
//! An answer depends on the attributes that were read for it, its references. There are few distinct sets of references,
//! so a cache key is such a set together with the values of its attributes. Clients of the Mixer API cache answers in the
//! same way (docs/behaviour/mixer-api.md#referenced-attributes).

mod counts;
mod flights;
mod policy;
mod signature;
mod store;

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use mixer_adapter_core::framework::digest::Digest;
use tokio::time::Instant;

use super::{References, answer::CheckAnswer, attribute::Bag};
use flights::Flights;
use signature::Signatures;
use store::Store;

pub use counts::{CacheCounts, CacheOutcome};
pub(crate) use flights::Joined;
pub(crate) use policy::CachePolicy;

/// The limits of a cache of check answers. The default disables the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheLimits {
    /// Maximum number of answers.
    pub answers: usize,
    /// Maximum size of the answers and their keys in bytes.
    pub bytes: usize,
}

/// The cached answers of a snapshot.
pub(crate) struct CheckCache {
    namespaces: RwLock<HashMap<Box<str>, Arc<Namespace>>>,
    answers: Store<CachedAnswer>,
    flights: Arc<Flights>,
    counts: Arc<CacheCounts>,
}

/// The requests of one namespace, which share the cache with those of others.
#[derive(Debug)]
struct Namespace {
    tenant: usize,
    signatures: RwLock<Arc<Signatures>>,
}

/// Maximum number of namespaces with signatures and a share of their own. Further ones share those of the last.
const MAX_NAMESPACES: usize = 256;

/// The validity of an answer that has expired and is used because a backend is down: the interval of attempts to evaluate it
/// again.
const STALE_VALIDITY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
struct CachedAnswer {
    answer: CheckAnswer,
    references: References,
    names: Arc<[Box<str>]>,
    expires: Instant,
    /// The end of the time in which it may be used if a backend is down; `None` if it may not.
    stale_until: Option<Instant>,
    /// Whether it had expired, and is used because a backend was down.
    is_stale: bool,
    /// Remaining uses; `None` for an unlimited number.
    uses: Option<Arc<AtomicI64>>,
    cost: Cost,
}

/// What the evaluation of an answer has cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Number of calls of adapters.
    pub(crate) calls: u32,
    pub(crate) took: Duration,
}

/// An answer that holds for a request.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) answer: CheckAnswer,
    pub(crate) references: References,
    pub(crate) key: AnswerKey,
    pub(crate) is_stale: bool,
}

/// The life of an answer, and the names of what its key in the cache is made of.
#[derive(Clone, Debug)]
pub struct AnswerKey {
    /// Remaining time of validity.
    pub valid_for: Duration,
    /// Attributes, such as `request.path`, and keys of maps, such as `request.headers[x-user]`.
    pub names: Arc<[Box<str>]>,
}

/// A request without an answer in the cache.
#[derive(Debug, Default)]
pub(crate) struct Missed {
    /// The key by which equal requests wait for one another; `None` if nothing is known of what answers depend on.
    flight: Option<Digest>,
    expired: Option<Expired>,
}

/// An answer that has expired.
#[derive(Debug)]
pub(crate) struct Expired {
    key: Digest,
    tenant: usize,
    cached: Arc<CachedAnswer>,
}

impl CheckCache {
    /// Creates a cache; `None` if the limits allow no answer.
    pub(crate) fn new(limits: CacheLimits, counts: Arc<CacheCounts>) -> Option<Self> {
        (limits.answers > 0 && limits.bytes > 0).then(|| Self {
            namespaces: RwLock::default(),
            answers: Store::new(limits.bytes, limits.answers),
            flights: Arc::default(),
            counts,
        })
    }

    pub(crate) fn counts(&self) -> &CacheCounts {
        &self.counts
    }

    /// The number of answers, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.answers.size()
    }

    /// Removes all answers.
    pub(crate) fn clear(&self) {
        self.answers.clear();
    }

    /// Returns the answer for a request of a namespace with its remaining validity.
    pub(crate) fn find(&self, namespace: &str, bag: &Bag) -> Result<Found, Missed> {
        let Some(namespace) = self.known_namespace(namespace) else { return Err(Missed::default()) };
        let signatures = namespace.signatures();
        let now = Instant::now();
        let mut expired = None;
        for signature in signatures.iter() {
            let Some(key) = signature.key(bag, &[]) else { continue };
            let Some(cached) = self.answers.get(&key) else { continue };
            if let Some(found) = cached.take(now) {
                signature.count_hit();
                self.counts.saved(cached.cost.calls, cached.cost.took);
                return Ok(found);
            }
            expired.get_or_insert(Expired { key, tenant: namespace.tenant, cached });
        }
        // Requests that had the same answer will have the same again.
        let flight = match &expired {
            Some(expired) => Some(expired.key),
            None => signatures.common_key(bag),
        };
        Err(Missed { flight, expired })
    }

    /// Lets a request evaluate its answer, or wait for an equal request that does.
    pub(crate) fn join(&self, missed: &Missed) -> Joined {
        missed.flight.map_or(Joined::Alone, |key| self.flights.join(key))
    }

    /// Caches an answer for its duration of validity, if it has one. Returns its life and its key.
    pub(crate) fn insert(
        &self,
        namespace: &str,
        bag: &Bag,
        references: &References,
        answer: &CheckAnswer,
        stale_if_error: Duration,
        cost: Cost,
    ) -> Option<AnswerKey> {
        let valid_for = Duration::try_from(answer.valid_duration).unwrap_or_default();
        // The request that is being answered is the first use.
        let uses = i64::from(answer.valid_use_count) - 1;
        if valid_for.is_zero() || uses == 0 || answer.valid_use_count == 0 {
            return None;
        }
        let expires = Instant::now().checked_add(valid_for)?;
        let stale_until = match stale_if_error {
            Duration::ZERO => None,
            time => expires.checked_add(time),
        };
        let namespace = self.namespace(namespace);
        let signature = namespace.signature(bag, references)?;
        let key = signature.key(bag, &references.generated)?;
        let names = signature.names().clone();
        let cached = CachedAnswer {
            answer: answer.clone(),
            references: references.clone(),
            names: names.clone(),
            expires,
            stale_until,
            is_stale: false,
            uses: (answer.valid_use_count > 0).then(|| Arc::new(AtomicI64::new(uses))),
            cost,
        };
        self.store(key, namespace.tenant, cached);
        Some(AnswerKey { valid_for, names })
    }

    /// Uses an answer that has expired for [`STALE_VALIDITY`] more, if it may be used while a backend is down.
    pub(crate) fn renew(&self, missed: Missed) -> Option<Found> {
        let Expired { key, tenant, cached } = missed.expired?;
        let now = Instant::now();
        let renewed = CachedAnswer {
            expires: cached.stale_until?.min(now.checked_add(STALE_VALIDITY)?),
            is_stale: true,
            uses: None,
            ..(*cached).clone()
        };
        let found = renewed.take(now)?;
        self.store(key, tenant, renewed);
        Some(found)
    }

    fn store(&self, key: Digest, tenant: usize, cached: CachedAnswer) {
        let evicted = self.answers.insert(key, tenant, cached.size(), Arc::new(cached));
        self.counts.evictions.fetch_add(evicted, Relaxed);
    }

    fn known_namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        let namespaces = self.namespaces.read().unwrap_or_else(PoisonError::into_inner);
        match namespaces.get(name) {
            None if namespaces.len() == MAX_NAMESPACES => namespaces.get(OTHERS).cloned(),
            found => found.cloned(),
        }
    }

    fn namespace(&self, name: &str) -> Arc<Namespace> {
        if let Some(known) = self.known_namespace(name) {
            return known;
        }
        let mut namespaces = self.namespaces.write().unwrap_or_else(PoisonError::into_inner);
        let name = if namespaces.len() < MAX_NAMESPACES - 1 { name } else { OTHERS };
        let tenant = namespaces.len();
        let added = || Arc::new(Namespace { tenant, signatures: RwLock::default() });
        namespaces.entry(name.into()).or_insert_with(added).clone()
    }
}

/// The key of the namespaces after the first [`MAX_NAMESPACES`]. It is not a valid name of a namespace.
const OTHERS: &str = "*";

impl Namespace {
    fn signatures(&self) -> Arc<Signatures> {
        self.signatures.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the signature of references; adds it if it is new.
    fn signature(&self, bag: &Bag, references: &References) -> Option<Arc<signature::Signature>> {
        if let Some(known) = self.signatures().find(references, bag.vocabulary()) {
            return Some(known);
        }
        let mut signatures = self.signatures.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = signatures.find(references, bag.vocabulary()) {
            return Some(known);
        }
        let (more, added) = signatures.with(references, bag.vocabulary())?;
        *signatures = Arc::new(more);
        Some(added)
    }
}

impl CachedAnswer {
    /// Consumes one use; `None` if the answer has expired or has no uses left.
    fn take(&self, now: Instant) -> Option<Found> {
        let valid_for = self.expires.checked_duration_since(now).filter(|left| !left.is_zero())?;
        let mut answer = self.answer.clone();
        if let Some(uses) = &self.uses {
            let before = uses.fetch_sub(1, Relaxed);
            if before <= 0 {
                return None;
            }
            answer.valid_use_count = i32::try_from(before).unwrap_or(i32::MAX);
        }
        answer.valid_duration = prost_types::Duration::try_from(valid_for).unwrap_or_default();
        Some(Found {
            answer,
            references: self.references.clone(),
            key: AnswerKey { valid_for, names: self.names.clone() },
            is_stale: self.is_stale,
        })
    }

    /// The approximate size in bytes.
    fn size(&self) -> usize {
        size_of::<Self>() + self.answer.size() + self.references.size()
    }
}

impl std::fmt::Debug for CheckCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CheckCache({} answers)", self.size().0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
