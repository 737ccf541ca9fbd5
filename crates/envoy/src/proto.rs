//! Messages and services generated from `proto/`, by package: the fields of Envoy's messages that are read or written here.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::unwrap_used)]

include!(concat!(env!("OUT_DIR"), "/protos.rs"));
