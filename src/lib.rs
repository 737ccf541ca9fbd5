#![doc = include_str!("../docs/overview.md")]

// Generated code names `::mixer_adapter`, here as in the crates of authors.
extern crate self as mixer_adapter;

pub mod adapter;
pub mod cli;
pub mod config;
pub mod handler;
pub mod host;
pub mod metrics;
pub mod mixer;
mod nearest;
pub mod proto;
pub mod service;
pub mod session;
pub mod template;
pub mod testing;
pub mod tls;
pub mod value;

pub use adapter::{Adapter, AdapterError, Check, Code, Grant, Handle, QuotaArgs};
pub use {anyhow, prost, prost_types, tonic};

/// Includes what `mixer_adapter_build` generated for a package: `mixer_adapter::include_proto!("adapter.denier.config");`
#[macro_export]
macro_rules! include_proto {
    ($package:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $package, ".rs"));
    };
}
