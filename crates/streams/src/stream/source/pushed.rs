//! Pushes whose resources are encoded once for all sinks.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use bytes::{Bytes, BytesMut};
use mixer_adapter_core::framework::frame::{FRAME_PREFIX, frame};
use prost::{DecodeError, Message, encoding};

use super::entry::Entry;

/// A push: a message, and the encoded fields that it shares with other pushes.
#[derive(Debug)]
pub(crate) struct Pushed<M> {
    pub(crate) message: M,
    pub(crate) shared: Bytes,
}

impl<M> From<M> for Pushed<M> {
    fn from(message: M) -> Self {
        Self { message, shared: Bytes::new() }
    }
}

impl<M: Message> Pushed<M> {
    /// Returns the whole push as one message.
    pub(crate) fn into_message(self) -> Result<M, DecodeError> {
        let Self { mut message, shared } = self;
        message.merge(shared)?;
        Ok(message)
    }

    /// Returns the push as a gRPC frame in two parts. The second part is shared.
    pub(crate) fn into_frame(self) -> [Bytes; 2] {
        let Self { message, shared } = self;
        let own = frame(&message);
        if shared.is_empty() {
            return [own, shared];
        }
        // The length in the prefix covers both parts.
        let length = u32::try_from(own.len() - FRAME_PREFIX + shared.len()).unwrap_or(u32::MAX);
        let mut own = BytesMut::from(own);
        own[1..FRAME_PREFIX].copy_from_slice(&length.to_be_bytes());
        [own.freeze(), shared]
    }
}

/// The encodings of the resources of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As in pushes of MCP.
    Mcp,
    /// As in responses of the state of the world, bare or wrapped with their metadata, with times to live for clients that support them.
    Sotw { bare: bool, ttl: bool },
    /// As in responses of changes, with times to live for clients that support them.
    Delta { bare: bool, ttl: bool },
    /// As in responses in JSON, separated by commas.
    Json { bare: bool },
}

/// A number of bytes for the encoded resources of several snapshots.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<AtomicUsize>);

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Takes a number of bytes; returns whether they were available.
    fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

/// All resources of a snapshot as fields of a push, encoded on first use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Encodings(Arc<Encoded>);

#[derive(Debug, Default)]
struct Encoded {
    /// `None` exceeds the budget.
    encodings: [OnceLock<Option<Bytes>>; 11],
    budget: Option<Budget>,
}

impl Drop for Encoded {
    fn drop(&mut self) {
        if let Some(Budget(left)) = &self.budget {
            let stored = self.encodings.iter().filter_map(|encoding| encoding.get()?.as_ref());
            left.fetch_add(stored.map(Bytes::len).sum(), Ordering::Relaxed);
        }
    }
}

impl Encodings {
    /// Limits the stored encodings by a budget.
    pub(super) fn within(budget: Budget) -> Self {
        Self(Arc::new(Encoded { encodings: Default::default(), budget: Some(budget) }))
    }

    /// Returns the resources as the repeated field of that number, each converted by `message`.
    pub(crate) fn get<'a, M: Message>(
        &self,
        encoding: Encoding,
        field: u32,
        entries: impl Iterator<Item = &'a Entry>,
        message: impl Fn(&Entry) -> M,
    ) -> Bytes {
        self.get_or_encode(encoding, || {
            let mut fields = BytesMut::new();
            entries.for_each(|entry| encoding::message::encode(field, &message(entry), &mut fields));
            fields.freeze()
        })
    }

    /// Returns the resources as `encode` encodes them, which is not called if they are stored.
    pub(crate) fn get_or_encode(&self, encoding: Encoding, encode: impl FnOnce() -> Bytes) -> Bytes {
        let place = match encoding {
            Encoding::Mcp => 0,
            Encoding::Sotw { bare, ttl } => 1 + usize::from(bare) + 8 * usize::from(ttl),
            Encoding::Delta { bare, ttl } => 3 + usize::from(bare) + 2 * usize::from(ttl),
            Encoding::Json { bare } => 7 + usize::from(bare),
        };
        let mut encode = Some(encode);
        let mut encode = || encode.take().map(|encode| encode()).unwrap_or_default();
        let mut encoded = None;
        let stored = self.0.encodings[place].get_or_init(|| {
            let bytes = encode();
            encoded = Some(bytes.clone());
            self.0.budget.as_ref().is_none_or(|budget| budget.take(bytes.len())).then_some(bytes)
        });
        encoded.or_else(|| stored.clone()).unwrap_or_else(encode)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{
        proto::istio::mcp::v1alpha1::Resources,
        stream::{raw_change::RawChange, raw_resource::RawResource, source::snapshot::Snapshot},
    };

    fn snapshot() -> Snapshot {
        let resource = |name: &str| RawResource { name: name.to_owned(), ..RawResource::default() };
        let resources = ["ns/a", "ns/b"].map(|name| resource(name).into()).to_vec();
        let change = RawChange {
            collection: "c/d".into(),
            version: String::new(),
            full: true,
            resources,
            removed: Vec::new(),
        };
        Snapshot::default().after(&change)
    }

    #[test]
    fn a_push_with_shared_resources_is_the_same_on_the_wire() {
        let snapshot = snapshot();
        let message = |entry: &Entry| entry.resource.to_message();
        let shared = || snapshot.encoded(Encoding::Mcp, 3, message);
        let head = Resources { nonce: "7".to_owned(), ..Resources::default() };
        let resources = snapshot.resources().map(RawResource::to_message).collect();
        let whole = Resources { resources, ..head.clone() };
        let push = || Pushed { message: head.clone(), shared: shared() };
        assert_eq!(push().into_message().unwrap(), whole);
        let [own, rest] = push().into_frame();
        let framed = [&own[..], &rest[..]].concat();
        assert_eq!(framed.len(), frame(&whole).len());
        assert_eq!(framed[..FRAME_PREFIX], frame(&whole)[..FRAME_PREFIX]);
        assert_eq!(Resources::decode(&framed[FRAME_PREFIX..]).unwrap(), whole);
    }

    #[test]
    fn resources_are_encoded_once_for_all_sinks_until_they_change() {
        let snapshot = snapshot();
        let encoded = Cell::new(0);
        let encode = |snapshot: &Snapshot| {
            snapshot.encoded(Encoding::Mcp, 3, |entry| {
                encoded.set(encoded.get() + 1);
                entry.resource.to_message()
            })
        };
        let first = encode(&snapshot);
        assert_eq!(encode(&snapshot), first);
        assert_eq!(encoded.get(), 2, "one time for each resource");
        let change = RawChange {
            collection: "c/d".into(),
            version: String::new(),
            full: false,
            resources: Vec::new(),
            removed: vec!["ns/a".to_owned()],
        };
        assert_ne!(encode(&snapshot.after(&change)), first);
        assert_eq!(encode(&snapshot), first);
    }

    #[test]
    fn what_exceeds_the_budget_is_encoded_for_each_push() {
        let budget = Budget::new(10);
        let (first, second) = (Encodings::within(budget.clone()), Encodings::within(budget));
        let encoded = Cell::new(0);
        let encode = |encodings: &Encodings| {
            encodings.get_or_encode(Encoding::Mcp, || {
                encoded.set(encoded.get() + 1);
                Bytes::from_static(b"12345678")
            })
        };
        assert_eq!([encode(&first), encode(&first), encode(&second), encode(&second)], [&b"12345678"[..]; 4]);
        assert_eq!(encoded.get(), 3, "the first is stored");
        drop(first);
        let third = Encodings::within(second.0.budget.clone().unwrap());
        encode(&third);
        encode(&third);
        assert_eq!(encoded.get(), 4, "what is dropped is given back");
    }
}
