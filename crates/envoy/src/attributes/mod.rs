//! Attributes of requests, from the messages of Envoy (docs/envoy/attributes.md).
//!
//! An attribute is set only if Envoy sent a value: expressions rely on its absence. Attributes that the configuration does not
//! declare are dropped.

mod builder;
mod check;
mod descriptor;
mod flags;
mod host;
mod log;
mod metadata;
mod node;
mod peer;
mod principal;
mod request;
mod target;
#[cfg(test)]
mod tests;

pub use host::{HostPattern, HostPatternError};

pub(crate) use builder::AttributeError;
pub(crate) use check::check_attributes;
pub(crate) use descriptor::descriptor_attributes;
pub(crate) use host::NamespaceMap;
pub(crate) use log::{http_attributes, tcp_attributes};
pub(crate) use node::{ConnectionCount, LogSender, Node};
pub(crate) use request::is_grpc;
