use std::sync::Arc;

use super::{
    collection::{Collection, Outcome},
    nack::NackError,
};
use crate::stream::raw_resource::RawResource;

/// The state of a collection.
#[derive(Clone, Copy, Debug)]
pub struct CollectionView<'a>(pub(super) &'a Collection);

impl<'a> CollectionView<'a> {
    /// Returns its name.
    pub fn name(&self) -> &'a Arc<str> {
        &self.0.name
    }

    /// Returns whether readiness waits for it.
    pub fn required(&self) -> bool {
        self.0.required
    }

    /// Returns its resources in use, in the order of names.
    pub fn resources(&self) -> impl ExactSizeIterator<Item = &'a Arc<RawResource>> + use<'a> {
        self.0.live.resources()
    }

    /// Returns the source's version of the state in use.
    pub fn version(&self) -> &'a str {
        self.0.live.version()
    }

    /// Returns the version that was acknowledged and waits for other configuration.
    pub fn pending(&self) -> Option<&'a str> {
        matches!(self.0.outcome, Some(Outcome::Pending)).then(|| self.0.offered.version())
    }

    /// Returns whether a push of it was accepted since the start.
    pub fn synced(&self) -> bool {
        self.0.synced
    }

    /// Returns whether the source refused to serve it.
    pub fn unsupported(&self) -> bool {
        self.0.unsupported.is_some()
    }

    /// Returns the version that was refused last and the reason, unless one was accepted since.
    pub fn refused(&self) -> Option<(&'a str, &'a NackError)> {
        self.0.refused.as_ref().map(|refused| (refused.version.as_str(), &refused.nack))
    }
}
