use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use siphasher::sip128::SipHasher24;

use crate::{
    References,
    attribute::{AttributeValue, Bag, Vocabulary},
};

/// A set of references: the attributes, and the keys of maps, that answers depend on. With the values of a request it is a cache
/// key.
#[derive(Debug)]
pub(super) struct Signature {
    parts: Parts,
    /// The names of the parts in alphabetical order: `request.path`, `request.headers[x-user]`.
    pub(super) names: Arc<[Box<str>]>,
    /// Number of answers that were found by it, halved whenever it could have been replaced.
    pub(super) hits: AtomicU64,
}

/// Slots, each with the key of a map unless the whole value counts; sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Parts(Vec<(u32, Option<Box<str>>)>);

/// Maximum number of parts of a signature. Answers that depend on more are not cached.
const MAX_PARTS: usize = 256;

/// Maximum size of the keys of maps in a signature in bytes. Answers that depend on longer keys are not cached: a rule can look up
/// a key that is a value of the request.
const MAX_NAMES: usize = 8 << 10;

/// Maximum size of the values of a key in bytes. Answers that depend on larger values are not cached.
const MAX_VALUES: usize = 64 << 10;

/// A cache key: a hash with a secret of this process. Callers do not know the secret, so they cannot search for two requests with
/// equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key(u128);

static HASHER: LazyLock<SipHasher24> = LazyLock::new(|| {
    let [first, second] = [(); 2].map(|()| RandomState::new().hash_one(0));
    SipHasher24::new_with_keys(first, second)
});

impl Key {
    pub(super) fn of(content: &[u8]) -> Self {
        Self(HASHER.hash(content).as_u128())
    }

    /// The first 64 of its bits, which are distributed evenly.
    pub(super) fn bits(self) -> u64 {
        self.0 as u64
    }
}

impl Signature {
    fn new(parts: Parts, vocabulary: &Vocabulary) -> Self {
        let named = parts.0.iter().map(|(slot, key)| (vocabulary.at(*slot).map_or("", |at| at.name), key));
        let mut names: Vec<Box<str>> = named
            .map(|(name, key)| key.as_ref().map_or(name.into(), |key| format!("{name}[{key}]").into()))
            .collect();
        names.sort_unstable();
        Self { names: names.into(), parts, hits: AtomicU64::new(0) }
    }

    /// The approximate size in bytes.
    fn size(&self) -> usize {
        size_of::<Self>() + self.parts.size() + names_size(&self.names)
    }

    /// Computes the key of a request: this signature with the request's values, without the slots in `generated`. `None` if the values
    /// are too large.
    pub(super) fn key(&self, bag: &Bag, generated: &[u32]) -> Option<Key> {
        self.parts.key(bag, generated)
    }
}

/// The approximate size of names in bytes.
pub(super) fn names_size(names: &[Box<str>]) -> usize {
    size_of_val(names) + names.iter().map(|name| name.len()).sum::<usize>()
}

/// The signatures of the answers to requests of one namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Signatures {
    pub(super) list: Vec<Arc<Signature>>,
    /// All parts of all signatures.
    union: Parts,
}

/// Maximum number of signatures of a namespace, which bounds the work of a lookup.
const MAX_SIGNATURES: usize = 16;

/// Maximum size of the signatures of a namespace in bytes.
const MAX_SIGNATURE_BYTES: usize = 64 << 10;

impl Signatures {
    /// Returns the signature of references; `None` if it is not among these.
    pub(super) fn find(&self, references: &References, vocabulary: &Vocabulary) -> Option<Arc<Signature>> {
        let parts = Parts::of(references, vocabulary);
        self.list.iter().find(|known| known.parts == parts).cloned()
    }

    /// Adds the signature of references; if there are too many, it replaces the signatures with the fewest hits. Returns all signatures
    /// and the new one; `None` if it has too many or too long parts.
    pub(super) fn with(
        &self,
        references: &References,
        vocabulary: &Vocabulary,
    ) -> Option<(Self, Arc<Signature>)> {
        let parts = Parts::of(references, vocabulary);
        let names: usize = parts.0.iter().filter_map(|(_, key)| key.as_ref()).map(|key| key.len()).sum();
        if parts.0.len() > MAX_PARTS || names > MAX_NAMES {
            return None;
        }
        let added = Arc::new(Signature::new(parts, vocabulary));
        let mut list = self.list.clone();
        let mut room = MAX_SIGNATURE_BYTES.saturating_sub(list.iter().map(|known| known.size()).sum());
        while list.len() == MAX_SIGNATURES || room < added.size() {
            let fewest = list.iter().enumerate().min_by_key(|(_, known)| known.hits.load(Relaxed));
            let index = fewest.map(|(index, _)| index)?;
            room += list.swap_remove(index).size();
            for known in &list {
                known.hits.store(known.hits.load(Relaxed) / 2, Relaxed);
            }
        }
        list.push(added.clone());
        let mut union = Parts(list.iter().flat_map(|known| known.parts.0.iter().cloned()).collect());
        union.normalize();
        Some((Self { list, union }, added))
    }

    /// Computes a key that two requests share only if they have equal keys by each of these signatures. `None` without
    /// signatures, and if the values are too large.
    pub(super) fn common_key(&self, bag: &Bag) -> Option<Key> {
        if self.list.is_empty() {
            return None;
        }
        self.union.key(bag, &[])
    }
}

impl Parts {
    fn of(references: &References, vocabulary: &Vocabulary) -> Self {
        let listed = references.list(vocabulary).into_iter();
        let mut parts: Vec<_> = listed
            .filter_map(|reference| {
                Some((vocabulary.find(reference.name)?.slot, reference.key.map(Box::from)))
            })
            .collect();
        // Clients of the Mixer API do not learn of maps that were read as a whole; here they are part of the key.
        parts.extend(references.whole_maps().map(|slot| (slot, None)));
        // A generated attribute was absent from the request, and the answer holds only for requests that do not bring it either.
        parts.extend(references.generated.iter().map(|slot| (*slot, None)));
        let mut parts = Self(parts);
        parts.normalize();
        parts
    }

    /// The size of its references in bytes.
    fn size(&self) -> usize {
        let keys: usize = self.0.iter().filter_map(|(_, key)| key.as_deref()).map(str::len).sum();
        size_of_val(&*self.0) + keys
    }

    fn normalize(&mut self) {
        self.0.sort_unstable();
        self.0.dedup();
    }

    fn key(&self, bag: &Bag, generated: &[u32]) -> Option<Key> {
        let mut content = Vec::with_capacity(256);
        let mut size: usize = 0;
        for (slot, key) in &self.0 {
            content.extend_from_slice(&slot.to_le_bytes());
            write_option(key.as_deref().map(str::as_bytes), &mut content);
            let value = bag.at(*slot).filter(|_| !generated.contains(slot));
            content.push(u8::from(value.is_some()));
            match (value, key) {
                (Some(AttributeValue::StringMap(map)), Some(key)) => {
                    let value = map.get(key).map(|value| value.as_bytes());
                    size = size.saturating_add(value.map_or(0, <[u8]>::len));
                    (size <= MAX_VALUES).then(|| write_option(value, &mut content))?;
                }
                (Some(value), _) => {
                    size = size.saturating_add(value.size());
                    (size <= MAX_VALUES).then(|| write_value(value, &mut content))?;
                }
                (None, _) => {}
            }
        }
        Some(Key::of(&content))
    }
}

fn write_option(bytes: Option<&[u8]>, content: &mut Vec<u8>) {
    content.push(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        write(bytes, content);
    }
}

fn write(bytes: &[u8], content: &mut Vec<u8>) {
    content.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    content.extend_from_slice(bytes);
}

/// Encodes a value; encodings of different kinds are distinct.
fn write_value(value: &AttributeValue, content: &mut Vec<u8>) {
    content.push(match value {
        AttributeValue::String(_) => 0,
        AttributeValue::Int64(_) => 1,
        AttributeValue::Double(_) => 2,
        AttributeValue::Bool(_) => 3,
        AttributeValue::Timestamp(_) => 4,
        AttributeValue::Duration(_) => 5,
        AttributeValue::Bytes(_) => 6,
        AttributeValue::StringMap(_) => 7,
    });
    match value {
        AttributeValue::String(text) => write(text.as_bytes(), content),
        AttributeValue::Int64(number) | AttributeValue::Duration(number) => {
            content.extend_from_slice(&number.to_le_bytes());
        }
        AttributeValue::Double(number) => content.extend_from_slice(&number.to_bits().to_le_bytes()),
        AttributeValue::Bool(value) => content.push(u8::from(*value)),
        AttributeValue::Timestamp(time) => {
            content.extend_from_slice(&time.seconds.to_le_bytes());
            content.extend_from_slice(&time.nanos.to_le_bytes());
        }
        AttributeValue::Bytes(bytes) => write(bytes, content),
        AttributeValue::StringMap(map) => {
            content.extend_from_slice(&(map.len() as u64).to_le_bytes());
            for (key, value) in map.iter() {
                write(key.as_bytes(), content);
                write(value.as_bytes(), content);
            }
        }
    }
}
