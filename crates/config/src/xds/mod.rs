//! xDS, the protocol of Envoy, as it carries the configuration of a mesh: whole sets of resources of a type, or their changes
//! (docs/behaviour/xds.md).

pub mod sink;
mod type_url;

pub mod source;

pub use type_url::{collection_of, type_urls_of};
