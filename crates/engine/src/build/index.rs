use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use crate::expression::Language;
use mixer_adapter_config::{
    ConfigSet, Entry, Kind, ResolveError, Resource, ResourceName, Spec, ValidationError,
};

/// The compiled resources of a kind by namespace and name: the order in which rules are evaluated. Includes resources that are not usable.
#[derive(Debug)]
pub(super) struct Index<T>(BTreeMap<ResourceName, Arc<Compiled<T>>>);

/// A compiled resource.
#[derive(Debug)]
pub(super) struct Compiled<T> {
    entry: Arc<Entry>,
    /// `None` if it is not usable.
    value: Option<T>,
    faults: Vec<ValidationError>,
}

impl<T> Compiled<T> {
    pub(super) fn has_errors(&self) -> bool {
        self.faults.iter().any(ValidationError::is_error)
    }
}

impl<T> Index<T> {
    /// Reads the resources of a kind, and adds their faults. A resource that is invalid, or that `read` rejects, is a fault. What `former`
    /// returns is not read again.
    pub(super) fn read<'f>(
        set: &ConfigSet,
        kind: Kind,
        faults: &mut Vec<ValidationError>,
        former: impl Fn(&Arc<Entry>) -> Option<&'f Arc<Compiled<T>>>,
        mut read: impl FnMut(&Resource, &Spec, &mut Vec<ValidationError>) -> Result<T, Vec<ValidationError>>,
    ) -> Self
    where
        T: 'f,
    {
        let compiled = set.of_role(kind).map(|entry| {
            let compiled = former(entry).cloned().unwrap_or_else(|| {
                let mut faults = Vec::new();
                let value = match &entry.spec {
                    Ok(spec) => read(&entry.resource, spec, &mut faults),
                    Err(found) => Err(found.clone()),
                };
                let value = value.map_err(|found| faults.extend(found)).ok();
                Arc::new(Compiled { entry: entry.clone(), value, faults })
            });
            for fault in &compiled.faults {
                // Several resources can have the same fault of another one, and faults of specs may be known.
                let is_its_own = entry.spec.is_ok() && fault.resource.as_ref() == Some(entry.name());
                if is_its_own || !faults.contains(fault) {
                    faults.push(fault.clone());
                }
            }
            (entry.name().clone(), compiled)
        });
        Self(compiled.collect())
    }

    /// Returns the result of the same resource.
    pub(super) fn find(&self, entry: &Arc<Entry>) -> Option<&Arc<Compiled<T>>> {
        self.0.get(entry.name()).filter(|compiled| Arc::ptr_eq(&compiled.entry, entry))
    }

    /// Returns whether nothing was compiled again, is new or is gone.
    pub(super) fn is_same(&self, former: &Self) -> bool {
        self.0.len() == former.0.len()
            && self.0.values().zip(former.0.values()).all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// Returns the names of the resources that were compiled again, are new or are gone.
    pub(super) fn changed_since<'i>(&'i self, former: &'i Self) -> HashSet<&'i ResourceName> {
        if self.is_same(former) {
            return HashSet::new();
        }
        let new = self.0.iter().filter(|(name, compiled)| {
            former.0.get(*name).is_none_or(|former| !Arc::ptr_eq(former, compiled))
        });
        let new = new.map(|(name, _)| name);
        let gone = former.0.keys().filter(|name| !self.0.contains_key(name));
        new.chain(gone).collect()
    }

    /// Returns a usable resource.
    pub(super) fn get(&self, name: &ResourceName) -> Option<&T> {
        self.0.get(name)?.value.as_ref()
    }

    /// Iterates over the usable resources.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ResourceName, &T)> {
        self.0.iter().filter_map(|(name, compiled)| Some((name, compiled.value.as_ref()?)))
    }

    /// Resolves a reference to a usable resource of a kind.
    pub(super) fn resolve(
        &self,
        set: &ConfigSet,
        kind: &Kind,
        reference: &str,
        namespace: &str,
    ) -> Result<(&ResourceName, &T), ReferenceError> {
        let name = set.resolve(kind, reference, namespace)?.name();
        let usable = self.0.get_key_value(name).and_then(|(name, found)| Some((name, found.value.as_ref()?)));
        usable.ok_or_else(|| ReferenceError::Faulty(name.clone()))
    }
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// Returns the language of a resource's expressions (docs/behaviour/expressions.md#cel-and-compat).
pub(super) fn language(resource: &Resource) -> Language {
    let annotation = resource.annotations.get("policy.istio.io/lang");
    annotation.map_or(Language::Cexl, |language| Language::from_annotation(language))
}

/// A reference that does not lead to a valid resource.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReferenceError {
    #[error(transparent)]
    Unresolved(#[from] ResolveError),
    #[error("{0} is not usable, for faults of its own")]
    Faulty(ResourceName),
}

impl From<ReferenceError> for Box<str> {
    fn from(error: ReferenceError) -> Self {
        error.to_string().into()
    }
}
