use std::sync::Arc;

use imbl::{OrdMap, ordmap::DiffItem};

use crate::expression::Language;
use mixer_adapter_config::{
    ConfigSet, Entry, Kind, ResolveError, Resource, ResourceName, Spec, ValidationError,
};

/// The compiled resources of a kind by namespace and name: the order in which rules are evaluated. Includes resources that are not usable.
#[derive(Debug)]
pub(super) struct Index<T> {
    pub(super) all: OrdMap<ResourceName, Arc<Compiled<T>>>,
    /// Those with faults.
    pub(super) faulty: OrdMap<ResourceName, Arc<Compiled<T>>>,
}

/// A compiled resource. It equals itself only: snapshots share what did not change.
#[derive(Debug)]
pub(super) struct Compiled<T> {
    pub(super) entry: Arc<Entry>,
    /// `None` if it is not usable.
    value: Option<T>,
    faults: Vec<ValidationError>,
}

impl<T> PartialEq for Compiled<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl<T> Compiled<T> {
    pub(super) fn has_errors(&self) -> bool {
        self.faults.iter().any(ValidationError::is_error)
    }
}

impl<T> Index<T> {
    /// Reads the resources of a kind, and adds their faults. A resource that is invalid, or that `read` rejects, is a fault. Of a former
    /// index, only the given names are read again.
    pub(super) fn read(
        set: &ConfigSet,
        kind: Kind,
        faults: &mut Vec<ValidationError>,
        former: Option<(&Self, &[&ResourceName])>,
        mut read: impl FnMut(&Resource, &Spec, &mut Vec<ValidationError>) -> Result<T, Vec<ValidationError>>,
    ) -> Self {
        let mut compile = |entry: &Arc<Entry>| {
            let mut faults = Vec::new();
            let value = match &entry.spec {
                Ok(spec) => read(&entry.resource, spec, &mut faults),
                Err(found) => Err(found.clone()),
            };
            let value = value.map_err(|found| faults.extend(found)).ok();
            Arc::new(Compiled { entry: entry.clone(), value, faults })
        };
        let mut index = Self::default();
        match former {
            None => set.of_role(kind).for_each(|entry| index.insert(compile(entry))),
            Some((former, again)) => {
                (index.all, index.faulty) = (former.all.clone(), former.faulty.clone());
                for name in again {
                    index.remove(name);
                    let entry = set.get(name).filter(|entry| entry.resource.role().as_ref() == Some(&kind));
                    entry.into_iter().for_each(|entry| index.insert(compile(entry)));
                }
            }
        }
        for compiled in index.faulty.values() {
            let Compiled { entry, faults: found, .. } = &**compiled;
            for fault in found {
                // Several resources can have the same fault of another one, and faults of specs may be known.
                let is_its_own = entry.spec.is_ok() && fault.resource.as_ref() == Some(entry.name());
                if is_its_own || !faults.contains(fault) {
                    faults.push(fault.clone());
                }
            }
        }
        index
    }

    fn insert(&mut self, compiled: Arc<Compiled<T>>) {
        let name = compiled.entry.name();
        if !compiled.faults.is_empty() {
            self.faulty.insert(name.clone(), compiled.clone());
        }
        self.all.insert(name.clone(), compiled);
    }

    fn remove(&mut self, name: &ResourceName) {
        self.all.remove(name);
        self.faulty.remove(name);
    }

    /// Returns whether nothing was compiled again, is new or is gone.
    pub(super) fn is_same(&self, former: &Self) -> bool {
        self.changed_since(former).next().is_none()
    }

    /// Returns the names of the resources that were compiled again, are new or are gone.
    pub(super) fn changed_since<'i>(&'i self, former: &'i Self) -> impl Iterator<Item = &'i ResourceName> {
        former.all.diff(&self.all).map(|item| match item {
            DiffItem::Add(name, _) | DiffItem::Update { new: (name, _), .. } | DiffItem::Remove(name, _) => {
                name
            }
        })
    }

    /// Returns a usable resource.
    pub(super) fn get(&self, name: &ResourceName) -> Option<&T> {
        self.all.get(name)?.value.as_ref()
    }

    /// Iterates over the usable resources.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ResourceName, &T)> {
        self.all.iter().filter_map(|(name, compiled)| Some((name, compiled.value.as_ref()?)))
    }

    /// Iterates over the usable resources of a kind in a namespace.
    pub(super) fn of_namespace(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = &T> {
        let first = ResourceName::new("", kind.clone(), namespace);
        let is_in_it = move |name: &ResourceName| *name.kind() == kind && name.namespace() == namespace;
        let all = self.all.range(first..).take_while(move |(name, _)| is_in_it(name));
        all.filter_map(|(_, compiled)| compiled.value.as_ref())
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
        let usable =
            self.all.get_key_value(name).and_then(|(name, found)| Some((name, found.value.as_ref()?)));
        usable.ok_or_else(|| ReferenceError::Faulty(name.clone()))
    }
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self { all: OrdMap::new(), faulty: OrdMap::new() }
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
