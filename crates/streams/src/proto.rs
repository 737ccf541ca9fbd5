//! Messages and services generated from `proto/`, by package; what they share with adapters is in `mixer_adapter_core::proto`.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::unwrap_used)]

include!(concat!(env!("OUT_DIR"), "/protos.rs"));

/// An encoded `FileDescriptorSet` of these protos and of those they import, for reflection and for configuration by descriptor.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The comments of these protos: a line for each message, field, enum and value, with its full name, a tab and the comment.
pub const COMMENTS: &str = include_str!(concat!(env!("OUT_DIR"), "/comments"));
