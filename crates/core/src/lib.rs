//! What an adapter is made of.
//!
//! Start with [`Adapter`]: the trait an author implements, with one [`Handle`] for each template it serves. The templates are in
//! [`template`], the values that instances hold in [`value`], the messages shared with Mixer in [`proto`]. Programs and tests
//! are made with the crate `mixer-adapter`, which re-exports this one.

// Generated code names this crate, here as in the crates of authors.
extern crate self as mixer_adapter_core;

pub mod adapter;
pub mod digest;
pub mod frame;
pub mod json;
pub mod metrics;
pub mod optional_fields;
pub mod proto;
pub mod status;
pub mod suggest;
pub mod template;
pub mod value;

pub use adapter::{Adapter, AdapterError, Check, Code, Grant, Handle, QuotaArgs};
pub use {anyhow, prost, prost_types};

/// Includes what `mixer_adapter_build` generated for a package: `mixer_adapter_core::include_proto!("adapter.denier.config");`
#[macro_export]
macro_rules! include_proto {
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}
