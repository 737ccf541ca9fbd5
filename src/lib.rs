#![doc = include_str!("../docs/overview.md")]

mod answer;
mod build_info;
pub mod cli;
mod log_output;
#[cfg(feature = "otlp")]
mod otlp;
mod printable;
pub mod service;
pub mod testing;

pub use mixer_adapter_core::{
    Adapter, AdapterError, Check, Code, Grant, Handle, LimitState, QuotaRequest, adapter, declare_template,
    include_proto, metrics, proto, retention, template, value,
};
pub use {anyhow, prost, prost_types, tonic};
