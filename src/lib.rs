#![doc = include_str!("../docs/overview.md")]

mod answer;
mod build_info;
pub mod cli;
mod log_output;
mod otlp;
mod printable;
mod random;
pub mod service;
pub mod testing;

pub use mixer_adapter_core::{
    Adapter, AdapterError, Call, Check, Code, Context, DirectHttpResponse, Grant, Handle, LimitState,
    QuotaRequest, adapter, declare_template, http, include_proto, log, metrics, proto, retention, value,
};
/// Templates: the schemas of the instances that adapters receive, each with its answer and gRPC method.
///
/// The standard ones are here: for each a marker type, such as [`ListEntry`](template::ListEntry), and a module of its
/// messages, such as [`listentry`](template::listentry).
pub mod template {
    pub use mixer_adapter_core::template::*;
    pub use mixer_adapter_templates::*;
}

pub use {anyhow, prost, prost_types, tonic};
