//! xDS, the protocol of Envoy, as it carries the configuration of a mesh: whole sets of resources of a type, or their changes
//! (docs/behaviour/xds.md).

mod rest_path;
pub mod sink;
pub mod source;
