//! Answers of checks, kept for requests that do not differ in anything the answer depends on.
//!
//! An answer depends on the attributes that were read for it, its references. Requests that are answered alike mostly
//! read the same attributes, so there are few sets of them; each set with the values it had is a key. Clients of the
//! Mixer API keep answers in the same way (docs/behaviour/mixer-api.md#referenced-attributes).

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
    attribute::{AttributeValue, Bag},
    dispatch::CheckAnswer,
};
use mixer_adapter_core::framework::digest::Digest;

/// Answers of one snapshot.
pub(crate) struct CheckCache {
    signatures: RwLock<Vec<Arc<Signature>>>,
    answers: Cache<Digest, Arc<Kept>>,
}

/// A set of references: which attributes, and keys of maps, answers like one that was given depend on.
#[derive(Debug, PartialEq, Eq)]
struct Signature(Vec<(u32, Option<Box<str>>)>);

struct Kept {
    answer: CheckAnswer,
    references: References,
    expires: Instant,
    /// How many requests it may still serve; `None` as many as come.
    uses: Option<AtomicI64>,
}

/// How many sets of references are told apart. What comes beyond them is not kept.
const SIGNATURES: usize = 64;

impl CheckCache {
    /// Keeps so many answers.
    pub(crate) fn new(answers: u64) -> Self {
        Self { signatures: RwLock::default(), answers: Cache::new(answers) }
    }

    /// The answer for a request with these attributes, with what is left of its validity.
    pub(crate) fn find(&self, bag: &Bag) -> Option<(CheckAnswer, References)> {
        let signatures = self.signatures.read().unwrap_or_else(PoisonError::into_inner);
        let kept = signatures.iter().find_map(|signature| self.answers.get(&signature.key(bag)));
        drop(signatures);
        kept?.take(Instant::now())
    }

    /// Keeps an answer for as long as it says.
    pub(crate) fn keep(&self, bag: &Bag, references: &References, answer: &CheckAnswer) {
        let valid = Duration::try_from(answer.valid_duration).unwrap_or_default();
        // This request is the first use.
        let uses = i64::from(answer.valid_use_count) - 1;
        if valid.is_zero() || uses == 0 || answer.valid_use_count == 0 {
            return;
        }
        let Some(signature) = self.signature(bag, references) else { return };
        let Some(expires) = Instant::now().checked_add(valid) else { return };
        let kept = Kept {
            answer: answer.clone(),
            references: references.clone(),
            expires,
            uses: (answer.valid_use_count > 0).then(|| AtomicI64::new(uses)),
        };
        self.answers.insert(signature.key(bag), Arc::new(kept));
    }

    /// The set of these references, noted if it is new and there is room for it.
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
        if signatures.len() == SIGNATURES {
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
        parts.sort_unstable();
        Self(parts)
    }

    /// The key of a request: this set, with the values that the request has.
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

/// Values of different kinds never read alike.
fn write_value(value: &AttributeValue, content: &mut Vec<u8>) {
    content.extend_from_slice(value.kind().as_bytes());
    match value {
        AttributeValue::String(text) => write(Some(text.as_bytes()), content),
        AttributeValue::Int64(number) | AttributeValue::Duration(number) => {
            content.extend_from_slice(&number.to_le_bytes());
        }
        AttributeValue::Double(number) => content.extend_from_slice(&number.to_bits().to_le_bytes()),
        AttributeValue::Bool(truth) => content.push(u8::from(*truth)),
        AttributeValue::Timestamp(instant) => {
            content.extend_from_slice(&instant.seconds.to_le_bytes());
            content.extend_from_slice(&instant.nanos.to_le_bytes());
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

impl Kept {
    /// Uses it once, if it still holds.
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

    /// A request that was answered after its path and the header `x` were read.
    fn answered(bag: &Bag) -> References {
        let mut references = References::default();
        let path = bag.vocabulary().find("path").unwrap().slot;
        let headers = bag.vocabulary().find("headers").unwrap().slot;
        Attributes::from(bag).read(path, &mut references.after);
        let read = Attributes::from(bag).read(headers, &mut references.after);
        if let Some(AttributeValue::StringMap(map)) = read {
            let present = map.get("x").is_some();
            references.after.record_key(headers, "x", present, || "x".into());
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
    async fn only_what_was_read_tells_requests_apart() {
        let cache = CheckCache::new(100);
        let first = bag("/a", &[("x", "1"), ("y", "1")], "one");
        cache.keep(&first, &answered(&first), &answer(5, 100));
        assert!(cache.find(&bag("/a", &[("x", "1"), ("y", "2")], "two")).is_some());
        assert!(cache.find(&bag("/b", &[("x", "1")], "one")).is_none());
        assert!(cache.find(&bag("/a", &[("x", "2")], "one")).is_none());
        assert!(cache.find(&bag("/a", &[], "one")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_for_its_time_and_its_uses_and_no_longer() {
        let cache = CheckCache::new(100);
        let request = bag("/a", &[], "");
        cache.keep(&request, &answered(&request), &answer(5, 3));
        assert_eq!(cache.find(&request).unwrap().0.valid_use_count, 2);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(cache.find(&request).unwrap().0.valid_duration.seconds, 3);
        assert!(cache.find(&request).is_none(), "the request that was answered and two more are three uses");

        cache.keep(&request, &answered(&request), &answer(5, -1));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!((0..10).all(|_| cache.find(&request).is_some()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(cache.find(&request).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_to_be_kept_is_not_kept() {
        let cache = CheckCache::new(100);
        let request = bag("/a", &[], "");
        for unkept in [answer(0, -1), answer(0, 5), answer(5, 0), answer(5, 1), answer(-5, 5)] {
            cache.keep(&request, &answered(&request), &unkept);
            assert!(cache.find(&request).is_none(), "{unkept:?}");
        }
    }
}
