//! Attributes of requests, from the messages of Envoy (docs/envoy.md#attributes).
//!
//! An attribute is set only if Envoy sent a value: expressions rely on its absence. Attributes that the configuration does not
//! declare are dropped.

mod builder;
mod check;
mod host;
mod metadata;
mod principal;
mod target;
#[cfg(test)]
mod tests;

pub use host::{HostPattern, HostPatternError};

#[cfg(test)]
use builder::AttributeError;
pub(crate) use check::{check_attributes, is_grpc};
pub(crate) use host::NamespaceMap;
