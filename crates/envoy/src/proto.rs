//! Messages and services generated from `proto/`, by package: the fields of Envoy's messages that are read or written here.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::unwrap_used)]

use std::sync::LazyLock;

use mixer_adapter_core::framework::lossy_text;
use prost::{DecodeError, Message, bytes::Bytes};
use prost_reflect::DescriptorPool;

use envoy::service::auth::v3::attribute_context::http_request::HeadersEntry;

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

impl<K: Into<Bytes>, V: Into<Bytes>> From<(K, V)> for HeadersEntry {
    fn from((key, value): (K, V)) -> Self {
        Self { key: key.into(), value: value.into() }
    }
}
