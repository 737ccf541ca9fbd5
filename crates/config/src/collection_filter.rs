use std::collections::BTreeSet;

use crate::collection::Collection;

/// Which collections are taken from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CollectionFilter {
    /// These.
    Only(BTreeSet<Collection>),
    /// All but these, which come from other sources.
    AllBut(BTreeSet<Collection>),
}

impl Default for CollectionFilter {
    /// Includes every collection.
    fn default() -> Self {
        Self::AllBut(BTreeSet::new())
    }
}

impl CollectionFilter {
    /// Returns whether that collection is taken.
    pub fn includes(&self, collection: &Collection) -> bool {
        match self {
            Self::Only(own) => own.contains(collection),
            Self::AllBut(others) => !others.contains(collection),
        }
    }

    /// Returns the collections to request from a server: the named ones, or Mixer's collections without another source.
    pub fn collections(&self) -> Vec<Collection> {
        match self {
            Self::Only(own) => own.iter().cloned().collect(),
            Self::AllBut(_) => Collection::mixer().filter(|collection| self.includes(collection)).collect(),
        }
    }
}
