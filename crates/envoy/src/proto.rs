//! Messages and services generated from `proto/`, by package: the fields of Envoy's messages that are read or written here.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::unwrap_used)]

use std::sync::LazyLock;

use mixer_adapter_core::framework::lossy_text;
use prost::{DecodeError, Message, bytes::Bytes, encoding};
use prost_reflect::DescriptorPool;

include!(concat!(env!("OUT_DIR"), "/protos.rs"));

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(&include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"))[..])
        .unwrap_or_default()
});

/// Decodes a message of that full name, whose text need not be UTF-8.
///
/// # Errors
/// The message cannot be decoded.
pub(crate) fn decode<M: Message + Default>(name: &str, encoded: impl Into<Bytes>) -> Result<M, DecodeError> {
    lossy_text::decode(encoded.into(), || POOL.get_message_by_name(name))
}

/// Encodes an entry of the headers of a checked request.
pub fn header_entry(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Bytes {
    let mut entry = Vec::new();
    encoding::bytes::encode(1, &name.into(), &mut entry);
    encoding::bytes::encode(2, &value.into(), &mut entry);
    entry.into()
}
