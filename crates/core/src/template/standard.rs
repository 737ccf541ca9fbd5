//! The standard templates and `kubernetes`, one module each.

#![allow(missing_docs, unreachable_pub, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/templates.rs"));
