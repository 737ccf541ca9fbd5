//! The cache of check answers.
//!
//! An answer depends on the attributes that were read for it, its references. There are few distinct sets of references,
//! so a cache key is such a set together with the values of its attributes. Clients of the Mixer API cache answers in the
//! same way (docs/behaviour/mixer-api.md#referenced-attributes).

mod cached_answer;
mod cached_checks;
mod counts;
mod flights;
mod policy;
mod signature;
mod store;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use parking_lot::RwLock;

use tokio::time::Instant;

use super::{References, attribute::Bag};
use cached_answer::CachedAnswer;
use flights::Flights;
use signature::{Key, Signatures};
use store::Store;

pub use cached_answer::{AnswerKey, EncodedParts};
pub(crate) use cached_answer::{Cost, Evaluated, Found};
pub(crate) use cached_checks::CacheReason;
pub use cached_checks::{CachedChecks, NamespaceCaching};
pub use counts::{CacheCounts, CacheOutcome};
pub(crate) use flights::{Joined, Leader};
pub(crate) use policy::CachePolicy;

/// The limits of a cache of check answers. The default disables the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheLimits {
    /// Maximum number of answers.
    pub answers: usize,
    /// Maximum size of the answers and their keys in bytes.
    pub bytes: usize,
}

impl CacheLimits {
    /// Creates limits of this number of answers, and of this size in bytes.
    pub const fn new(answers: usize, bytes: usize) -> Self {
        Self { answers, bytes }
    }
}

/// The cached answers of a snapshot.
pub(crate) struct CheckCache {
    namespaces: RwLock<HashMap<Box<str>, Arc<Namespace>>>,
    entries: Store<Entry>,
    flights: Arc<Flights>,
    pub(crate) counts: Arc<CacheCounts>,
}

/// The state of a namespace. Namespaces share the entries of the cache.
#[derive(Debug)]
struct Namespace {
    tenant: usize,
    signatures: RwLock<Arc<Signatures>>,
}

/// Maximum number of namespaces with their own signatures and share. Further namespaces share the last one's.
const MAX_NAMESPACES: usize = 256;

/// The time during which equal requests whose answers are not cached do not wait for one another.
const UNCACHED_VALIDITY: Duration = Duration::from_secs(10);

/// The record of the requests with a key.
#[derive(Clone, Debug)]
enum Entry {
    Answer(Arc<CachedAnswer>),
    /// Their answers are not cached; until this time they do not wait for one another.
    Uncached(Instant),
}

/// A request without an answer in the cache.
#[derive(Debug, Default)]
pub(crate) struct Missed {
    /// The key by which equal requests wait for one another; `None` if it is not known what answers depend on, or if they are not
    /// cached.
    flight: Option<Key>,
    outdated: Vec<Outdated>,
}

/// An answer that has expired or has no uses left, also if it is used because a backend is down.
#[derive(Debug)]
struct Outdated {
    key: Key,
    answer: Arc<CachedAnswer>,
}

impl CheckCache {
    /// Creates a cache; `None` if the limits allow no answer.
    pub(crate) fn new(limits: CacheLimits, counts: Arc<CacheCounts>) -> Option<Self> {
        (limits.answers > 0 && limits.bytes > 0).then(|| Self {
            namespaces: RwLock::default(),
            entries: Store::new(limits.bytes, limits.answers),
            flights: Arc::default(),
            counts,
        })
    }

    /// The number of answers, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.entries.size()
    }

    /// Removes all answers.
    pub(crate) fn clear(&self) {
        self.entries.clear();
    }

    /// Returns the answer for a request of a namespace with its remaining validity.
    pub(crate) fn find(&self, namespace: &str, bag: &Bag) -> Result<Found, Missed> {
        let Some(namespace) = self.known_namespace(namespace) else { return Err(Missed::default()) };
        let signatures = namespace.signatures();
        let now = Instant::now();
        let mut missed = Missed::default();
        let mut is_uncached = false;
        for signature in &signatures.list {
            let Some(key) = signature.key(bag, &[]) else { continue };
            match self.entries.get(&key) {
                Some(Entry::Answer(answer)) => {
                    if !answer.is_stale
                        && let Some(found) = answer.take(now)
                    {
                        signature.hits.fetch_add(1, Relaxed);
                        self.counts.saved(answer.cost);
                        return Ok(found);
                    }
                    missed.outdated.push(Outdated { key, answer });
                }
                Some(Entry::Uncached(until)) => is_uncached |= until > now,
                None => {}
            }
        }
        let newest = missed.newest();
        if let Some(Outdated { answer, .. }) = newest
            && let Some(found) = answer.take(now)
        {
            self.counts.saved(answer.cost);
            return Ok(found);
        }
        // Requests that had the same answer will have the same again.
        missed.flight = match newest {
            Some(newest) => Some(newest.key),
            None if is_uncached => None,
            None => signatures.common_key(bag),
        };
        Err(missed)
    }

    /// Lets a request evaluate its answer, or wait for an equal request that does.
    pub(crate) fn join(&self, missed: &Missed) -> Joined {
        missed.flight.map_or(Joined::Alone, |key| self.flights.join(key))
    }

    /// Caches an answer for its duration of validity, and returns its life and key. If it has no validity although other requests have
    /// waited for it, equal requests do not wait for a while.
    pub(crate) fn insert(
        &self,
        namespace: &str,
        bag: &Bag,
        evaluated: Evaluated<'_>,
        is_awaited: bool,
    ) -> Option<AnswerKey> {
        let namespace = self.namespace(namespace);
        let references = evaluated.references;
        // Needed even if the answer is not cached: requests with different keys must not wait for one another.
        let signature = namespace.signature(bag, references)?;
        let key = signature.key(bag, &references.generated)?;
        let now = Instant::now();
        let Some(cached) = CachedAnswer::new(evaluated, signature.names.clone(), now) else {
            if is_awaited {
                self.store(key, namespace.tenant, Entry::Uncached(now + UNCACHED_VALIDITY));
            }
            return None;
        };
        let answer_key = cached.key(now);
        self.store(key, namespace.tenant, Entry::Answer(Arc::new(cached)));
        Some(answer_key)
    }

    /// Removes the outdated answers of a request that has a newer one.
    pub(crate) fn supersede(&self, missed: &Missed) {
        let entry = Entry::Uncached(Instant::now() + UNCACHED_VALIDITY);
        for outdated in &missed.outdated {
            self.entries.replace(&outdated.key, entry.size(), entry.clone(), |entry| outdated.is_in(entry));
        }
    }

    /// Uses an answer that has expired for a second more, if it may be used while a backend is down.
    pub(crate) fn renew(&self, missed: &Missed) -> Option<Found> {
        let outdated = missed.newest()?;
        let now = Instant::now();
        let renewed = Arc::new(outdated.answer.renewed(now)?);
        let entry = Entry::Answer(renewed.clone());
        if self.entries.replace(&outdated.key, entry.size(), entry, |entry| outdated.is_in(entry)) {
            return renewed.take(now);
        }
        // Another request has renewed it, or has a newer answer.
        match self.entries.get(&outdated.key)? {
            Entry::Answer(answer) => answer.take(now),
            Entry::Uncached(_) => None,
        }
    }

    fn store(&self, key: Key, tenant: usize, entry: Entry) {
        let evicted = self.entries.insert(key, tenant, entry.size(), entry);
        self.counts.evictions.fetch_add(evicted, Relaxed);
    }

    fn known_namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        let namespaces = self.namespaces.read();
        match namespaces.get(name) {
            None if namespaces.len() == MAX_NAMESPACES => namespaces.get(OTHERS).cloned(),
            found => found.cloned(),
        }
    }

    fn namespace(&self, name: &str) -> Arc<Namespace> {
        if let Some(known) = self.known_namespace(name) {
            return known;
        }
        let mut namespaces = self.namespaces.write();
        let name = if namespaces.len() < MAX_NAMESPACES - 1 { name } else { OTHERS };
        let tenant = namespaces.len();
        let namespace = namespaces.entry(name.into());
        namespace.or_insert_with(|| Arc::new(Namespace { tenant, signatures: RwLock::default() })).clone()
    }
}

/// The key of the namespaces after the first [`MAX_NAMESPACES`]. It is not a valid name of a namespace.
pub(crate) const OTHERS: &str = "*";

impl Namespace {
    fn signatures(&self) -> Arc<Signatures> {
        self.signatures.read().clone()
    }

    /// Returns the signature of references; adds it if it is new.
    fn signature(&self, bag: &Bag, references: &References) -> Option<Arc<signature::Signature>> {
        if let Some(known) = self.signatures().find(references, bag.vocabulary()) {
            return Some(known);
        }
        let mut signatures = self.signatures.write();
        if let Some(known) = signatures.find(references, bag.vocabulary()) {
            return Some(known);
        }
        let (more, added) = signatures.with(references, bag.vocabulary())?;
        *signatures = Arc::new(more);
        Some(added)
    }
}

impl Entry {
    /// The approximate size of its references in bytes.
    fn size(&self) -> usize {
        match self {
            Self::Answer(answer) => answer.size(),
            Self::Uncached(_) => 0,
        }
    }
}

impl Missed {
    fn newest(&self) -> Option<&Outdated> {
        self.outdated.iter().max_by_key(|outdated| outdated.answer.created)
    }
}

impl Outdated {
    /// Returns whether an entry still has this answer.
    fn is_in(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Answer(answer) if Arc::ptr_eq(answer, &self.answer))
    }
}

mixer_adapter_core::framework::debug_fields!(CheckCache { counts });

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
