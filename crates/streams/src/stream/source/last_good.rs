//! The last valid resources of files.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    sync::Arc,
};

use crate::stream::{name::full_name, raw_change::RawChange};
use mixer_adapter_config::{Change, Collection, Content, Resource, ValidationError};

/// The served resources. The resources of a file stay while it has faults, so that a mistake removes nothing at the
/// sinks.
#[derive(Debug, Default)]
pub(super) struct LastGood {
    served: BTreeMap<Collection, Served>,
}

#[derive(Debug, Default)]
struct Served {
    resources: Vec<Arc<Resource>>,
    /// The number of resources, at the end, that are no longer in the configuration.
    stale: usize,
}

impl LastGood {
    /// Applies full changes, whose valid resources are `encoded`, and returns their replacements. These keep missing
    /// resources that came from a file with errors.
    pub(super) fn apply(
        &mut self,
        changes: &[Change],
        encoded: &[RawChange],
        faults: &[ValidationError],
    ) -> Vec<Change> {
        let errors = faults.iter().filter(|fault| fault.is_error());
        let faulty: HashSet<&Path> =
            errors.filter_map(|fault| Some(Path::new(&*fault.origin.as_ref()?.source))).collect();
        let mut read: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (change, encoded) in changes.iter().zip(encoded) {
            if let Content::Full(resources) = &change.content {
                let mut fit: HashSet<&str> =
                    encoded.resources.iter().map(|resource| resource.name.as_str()).collect();
                let resources = resources.iter().filter(|resource| fit.remove(&*full_name(&resource.name)));
                read.insert(change.collection.clone(), resources.cloned().collect());
            }
        }
        if !read.is_empty() {
            // A source may report an empty collection once.
            let stale = self.served.iter().filter(|(_, served)| served.stale > 0);
            for collection in stale.map(|(collection, _)| collection.clone()).collect::<Vec<_>>() {
                read.entry(collection).or_default();
            }
        }
        let mut kept = Vec::new();
        for (collection, mut resources) in read {
            let before = self.served.remove(&collection).unwrap_or_default();
            let known: HashSet<_> = before.resources.iter().map(|resource| resource.name.clone()).collect();
            let names: HashSet<_> = resources.iter().map(|resource| resource.name.clone()).collect();
            let gone = before.resources.into_iter().filter(|resource| !names.contains(&resource.name));
            let stale: Vec<_> = gone.filter(|resource| is_faulty(resource, &faulty)).collect();
            let count = stale.len();
            resources.extend(stale);
            if count > 0 || before.stale > 0 {
                let whole = resources.iter().cloned().collect();
                kept.push(Change::new(collection.clone(), Content::Full(whole)));
            }
            // New resources of a file with an error do not stay when they leave it.
            resources.retain(|resource| !is_faulty(resource, &faulty) || known.contains(&resource.name));
            self.served.insert(collection, Served { resources, stale: count });
        }
        kept
    }

    /// Returns the number of served resources that are no longer in the configuration.
    pub(super) fn stale(&self) -> usize {
        self.served.values().map(|served| served.stale).sum()
    }
}

/// Returns whether the file of a resource is faulty; the path of an error may be a directory.
fn is_faulty(resource: &Resource, faulty: &HashSet<&Path>) -> bool {
    Path::new(&*resource.origin.source).ancestors().any(|path| faulty.contains(path))
}
