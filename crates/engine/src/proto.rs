//! Messages and services generated from `proto/`, by package; messages shared with adapters are in `mixer_adapter_core::proto`.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::unwrap_used)]

include!(concat!(env!("OUT_DIR"), "/protos.rs"));
