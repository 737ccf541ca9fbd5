//! xDS, the protocol of Envoy, as it carries the configuration of a mesh: whole sets of resources of a type, or their changes
//! (docs/behaviour/xds.md).

pub mod sink;
pub mod source;
