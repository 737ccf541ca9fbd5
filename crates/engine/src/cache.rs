//! The cache of check answers.
//!
//! An answer depends on the attributes that were read for it, its references. There are few distinct sets of references,
//! so a cache key is such a set together with the values of its attributes. Clients of the Mixer API cache answers in the
//! same way (docs/behaviour/mixer-api.md#referenced-attributes).

use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use moka::sync::Cache;
use tokio::time::Instant;

use super::{
    References,
    answer::CheckAnswer,
    attribute::{AttributeValue, Bag},
};
use mixer_adapter_core::framework::digest::Digest;

/// The cached answers of a snapshot.
pub(crate) struct CheckCache {
    signatures: RwLock<Vec<Arc<Signature>>>,
    answers: Cache<Digest, Arc<CachedAnswer>>,
}

/// A set of references: the attributes, and the keys of maps, that answers depend on.
#[derive(Debug, PartialEq, Eq)]
struct Signature(Vec<(u32, Option<Box<str>>)>);

struct CachedAnswer {
    answer: CheckAnswer,
    references: References,
    expires: Instant,
    /// Remaining uses; `None` for an unlimited number.
    uses: Option<AtomicI64>,
}

/// Maximum number of signatures. Answers with further ones are not cached.
const MAX_SIGNATURES: usize = 64;

impl CheckCache {
    /// Creates a cache of at most `capacity` answers.
    pub(crate) fn new(capacity: u64) -> Self {
        Self { signatures: RwLock::default(), answers: Cache::new(capacity) }
    }

    /// Returns the answer for a request with its remaining validity.
    pub(crate) fn get(&self, bag: &Bag) -> Option<(CheckAnswer, References)> {
        let signatures = self.signatures.read().unwrap_or_else(PoisonError::into_inner);
        let cached = signatures.iter().find_map(|signature| self.answers.get(&signature.key(bag)));
        drop(signatures);
        cached?.take(Instant::now())
    }

    /// Caches an answer for its duration of validity.
    pub(crate) fn insert(&self, bag: &Bag, references: &References, answer: &CheckAnswer) {
        let valid = Duration::try_from(answer.valid_duration).unwrap_or_default();
        // The request that is being answered is the first use.
        let uses = i64::from(answer.valid_use_count) - 1;
        if valid.is_zero() || uses == 0 || answer.valid_use_count == 0 {
            return;
        }
        let Some(signature) = self.signature(bag, references) else { return };
        let Some(expires) = Instant::now().checked_add(valid) else { return };
        let cached = CachedAnswer {
            answer: answer.clone(),
            references: references.clone(),
            expires,
            uses: (answer.valid_use_count > 0).then(|| AtomicI64::new(uses)),
        };
        self.answers.insert(signature.key(bag), Arc::new(cached));
    }

    /// Returns the signature of the references; adds it if there are fewer than [`MAX_SIGNATURES`].
    fn signature(&self, bag: &Bag, references: &References) -> Option<Arc<Signature>> {
        let signature = Signature::of(bag, references);
        let find = |known: &Vec<Arc<Signature>>| known.iter().find(|known| ***known == signature).cloned();
        if let Some(known) = find(&self.signatures.read().unwrap_or_else(PoisonError::into_inner)) {
            return Some(known);
        }
        let mut signatures = self.signatures.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = find(&signatures) {
            return Some(known);
        }
        if signatures.len() == MAX_SIGNATURES {
            return None;
        }
        let signature = Arc::new(signature);
        signatures.push(signature.clone());
        Some(signature)
    }
}

impl Signature {
    fn of(bag: &Bag, references: &References) -> Self {
        let vocabulary = bag.vocabulary();
        let mut parts: Vec<(u32, Option<Box<str>>)> = references
            .list(vocabulary)
            .into_iter()
            .filter_map(|reference| {
                Some((vocabulary.find(reference.name)?.slot, reference.key.map(Box::from)))
            })
            .collect();
        // Clients of the Mixer API do not learn of maps that were read as a whole; here they are part of the key.
        parts.extend(references.whole_maps().map(|slot| (slot, None)));
        parts.sort_unstable();
        parts.dedup();
        Self(parts)
    }

    /// Computes the key of a request: this signature with the values of the request.
    fn key(&self, bag: &Bag) -> Digest {
        let mut content = Vec::with_capacity(256);
        for (slot, key) in &self.0 {
            content.extend_from_slice(&slot.to_le_bytes());
            write(key.as_deref().map(str::as_bytes), &mut content);
            match (bag.at(*slot), key) {
                (Some(AttributeValue::StringMap(map)), Some(key)) => {
                    write(map.get(key).map(|value| value.as_bytes()), &mut content);
                }
                (Some(value), _) => write_value(value, &mut content),
                (None, _) => content.push(0),
            }
        }
        Digest::of([content.as_slice()])
    }
}

fn write(bytes: Option<&[u8]>, content: &mut Vec<u8>) {
    content.push(u8::from(bytes.is_some()));
    let bytes = bytes.unwrap_or_default();
    content.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    content.extend_from_slice(bytes);
}

/// Encodes a value; encodings of different kinds are distinct.
fn write_value(value: &AttributeValue, content: &mut Vec<u8>) {
    content.extend_from_slice(value.kind().as_bytes());
    match value {
        AttributeValue::String(text) => write(Some(text.as_bytes()), content),
        AttributeValue::Int64(number) | AttributeValue::Duration(number) => {
            content.extend_from_slice(&number.to_le_bytes());
        }
        AttributeValue::Double(number) => content.extend_from_slice(&number.to_bits().to_le_bytes()),
        AttributeValue::Bool(value) => content.push(u8::from(*value)),
        AttributeValue::Timestamp(time) => {
            content.extend_from_slice(&time.seconds.to_le_bytes());
            content.extend_from_slice(&time.nanos.to_le_bytes());
        }
        AttributeValue::Bytes(bytes) => write(Some(bytes), content),
        AttributeValue::StringMap(map) => {
            content.extend_from_slice(&(map.len() as u64).to_le_bytes());
            for (key, value) in map.iter() {
                write(Some(key.as_bytes()), content);
                write(Some(value.as_bytes()), content);
            }
        }
    }
}

impl CachedAnswer {
    /// Consumes one use; `None` if the answer has expired or has no uses left.
    fn take(&self, now: Instant) -> Option<(CheckAnswer, References)> {
        let left = self.expires.checked_duration_since(now).filter(|left| !left.is_zero())?;
        let mut answer = self.answer.clone();
        if let Some(uses) = &self.uses {
            let before = uses.fetch_sub(1, Relaxed);
            if before <= 0 {
                return None;
            }
            answer.valid_use_count = i32::try_from(before).unwrap_or(i32::MAX);
        }
        answer.valid_duration = prost_types::Duration::try_from(left).unwrap_or_default();
        Some((answer, self.references.clone()))
    }
}

impl std::fmt::Debug for CheckCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CheckCache({} answers)", self.answers.entry_count())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::attribute::{Attributes, StringMap, Vocabulary};
    use mixer_adapter_core::{proto::Status, value::ValueType};

    fn vocabulary() -> Arc<Vocabulary> {
        let mut vocabulary = Vocabulary::new();
        vocabulary.declare("path", ValueType::String).unwrap();
        vocabulary.declare("headers", ValueType::StringMap).unwrap();
        vocabulary.declare("other", ValueType::String).unwrap();
        Arc::new(vocabulary)
    }

    fn answer(seconds: i64, uses: i32) -> CheckAnswer {
        CheckAnswer {
            status: Status::default(),
            valid_duration: prost_types::Duration { seconds, nanos: 0 },
            valid_use_count: uses,
            directive: None,
        }
    }

    /// References of a request whose path and header `x` were read.
    fn references(bag: &Bag) -> References {
        let mut references = References::default();
        let path = bag.vocabulary().find("path").unwrap().slot;
        let headers = bag.vocabulary().find("headers").unwrap().slot;
        Attributes::from(bag).read(path, &mut references.after);
        let read = Attributes::from(bag).read(headers, &mut references.after);
        if let Some(AttributeValue::StringMap(map)) = read {
            let present = map.get("x").is_some();
            references.after.record_lookup(headers, "x", present, || "x".into());
        }
        references
    }

    fn bag(path: &str, headers: &[(&str, &str)], other: &str) -> Bag {
        let mut bag = Bag::new(vocabulary());
        bag.insert("path", path);
        bag.insert("headers", headers.iter().copied().collect::<StringMap>());
        bag.insert("other", other);
        bag
    }

    #[tokio::test(start_paused = true)]
    async fn requests_share_an_answer_if_all_referenced_values_are_equal() {
        let cache = CheckCache::new(100);
        let first = bag("/a", &[("x", "1"), ("y", "1")], "one");
        cache.insert(&first, &references(&first), &answer(5, 100));
        assert!(cache.get(&bag("/a", &[("x", "1"), ("y", "2")], "two")).is_some());
        assert!(cache.get(&bag("/b", &[("x", "1")], "one")).is_none());
        assert!(cache.get(&bag("/a", &[("x", "2")], "one")).is_none());
        assert!(cache.get(&bag("/a", &[], "one")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_share_an_answer_that_read_a_whole_map_only_if_the_maps_are_equal() {
        let cache = CheckCache::new(100);
        let first = bag("/a", &[("x", "1"), ("y", "1")], "");
        let mut references = references(&first);
        let headers = first.vocabulary().find("headers").unwrap().slot;
        Attributes::from(&first).read(headers, &mut references.after);
        cache.insert(&first, &references, &answer(5, 100));
        assert!(cache.get(&first).is_some());
        assert!(cache.get(&bag("/a", &[("x", "1"), ("y", "2")], "")).is_none());
        assert!(cache.get(&bag("/a", &[("x", "1")], "")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_used_until_its_duration_or_its_use_count_is_exhausted() {
        let cache = CheckCache::new(100);
        let request = bag("/a", &[], "");
        cache.insert(&request, &references(&request), &answer(5, 3));
        assert_eq!(cache.get(&request).unwrap().0.valid_use_count, 2);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(cache.get(&request).unwrap().0.valid_duration.seconds, 3);
        assert!(cache.get(&request).is_none(), "the request that was answered is the first of three uses");

        cache.insert(&request, &references(&request), &answer(5, -1));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!((0..10).all(|_| cache.get(&request).is_some()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(cache.get(&request).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_validity_is_not_cached() {
        let cache = CheckCache::new(100);
        let request = bag("/a", &[], "");
        for (seconds, uses) in [(0, -1), (0, 5), (5, 0), (5, 1), (-5, 5)] {
            cache.insert(&request, &references(&request), &answer(seconds, uses));
            assert!(cache.get(&request).is_none(), "{seconds} s, {uses} uses");
        }
    }
}
