use std::sync::Arc;

use super::{
    NackError,
    collection::{Collection, Outcome},
};
use crate::stream::RawResource;

/// What is known of a collection.
#[derive(Clone, Copy, Debug)]
pub struct CollectionView<'a>(pub(super) &'a Collection);

impl<'a> CollectionView<'a> {
    /// Its name.
    pub fn name(&self) -> &'a Arc<str> {
        &self.0.name
    }

    /// Whether the sink is ready only with it.
    pub fn required(&self) -> bool {
        self.0.required
    }

    /// What is in use of it, in the order of names.
    pub fn resources(&self) -> impl ExactSizeIterator<Item = &'a Arc<RawResource>> + use<'a> {
        self.0.live.resources()
    }

    /// The version of what is in use, as the source calls it.
    pub fn version(&self) -> &'a str {
        self.0.live.version()
    }

    /// The version that was acknowledged and waits for other configuration.
    pub fn pending(&self) -> Option<&'a str> {
        matches!(self.0.outcome, Some(Outcome::Pending)).then(|| self.0.offered.version())
    }

    /// Whether a push of it was accepted since the start.
    pub fn synced(&self) -> bool {
        self.0.synced
    }

    /// Whether the source refused to serve it.
    pub fn unsupported(&self) -> bool {
        self.0.unsupported.is_some()
    }

    /// The version that was refused last and why, unless one was accepted since.
    pub fn refused(&self) -> Option<(&'a str, &'a NackError)> {
        self.0.refused.as_ref().map(|refused| (refused.version.as_str(), &refused.nack))
    }
}
