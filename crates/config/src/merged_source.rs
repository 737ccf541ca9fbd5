//! The sources whose configuration is merged.

use std::collections::BTreeSet;

use crate::{collection::Collection, collection_filter::CollectionFilter, source::Source};

/// A source whose configuration is merged with other sources.
pub struct MergedSource {
    /// The source.
    pub source: Box<dyn Source>,
    /// The collections that are taken from it.
    pub filter: CollectionFilter,
    /// The collections that the first configuration waits for.
    pub required: BTreeSet<Collection>,
    /// Whether an update is applied without its faulty resources.
    pub skip_bad_resources: bool,
}

impl<S: Source + 'static> From<S> for MergedSource {
    /// Takes all collections from the source, and waits for none.
    fn from(source: S) -> Self {
        Self {
            source: Box::new(source),
            filter: CollectionFilter::default(),
            required: BTreeSet::new(),
            skip_bad_resources: false,
        }
    }
}

mixer_adapter_core::framework::debug_fields!(MergedSource { filter, required, skip_bad_resources });
