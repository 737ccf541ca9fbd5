//! The standard templates of Mixer, and `kubernetes`.
//!
//! Each is a marker type, such as [`ListEntry`], and a module of its messages, such as [`listentry`]. An adapter names the
//! types in `Adapter::Templates` and implements `Handle` for each. Programs find them in `mixer_adapter::template`.

#![allow(missing_docs, unreachable_pub, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/templates.rs"));
