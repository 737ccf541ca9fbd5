//! A change of a collection with encoded resources.

use std::sync::Arc;

use super::raw_resource::RawResource;

/// A change of one collection whose resources are not decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct RawChange {
    /// The collection, such as `istio/policy/v1beta1/rules`.
    pub collection: Arc<str>,
    /// The version of the collection that its source sent.
    pub version: String,
    /// Whether `resources` are the whole collection, so that all others are deleted.
    pub full: bool,
    /// New and changed resources.
    pub resources: Vec<Arc<RawResource>>,
    /// The names of deleted resources.
    pub removed: Vec<String>,
}
