use std::collections::BTreeMap;

use crate::expression::Language;
use mixer_adapter_config::{ConfigSet, Kind, ResolveError, Resource, ResourceName, Spec, ValidationError};

/// Reads the valid resources of a kind. A resource that is invalid, or that `read` rejects, is a fault.
pub(super) fn read_all<'c, T>(
    set: &'c ConfigSet,
    kind: Kind,
    faults: &mut Vec<ValidationError>,
    mut read: impl FnMut(&'c Resource, &'c Spec, &mut Vec<ValidationError>) -> Result<T, Vec<ValidationError>>,
) -> BTreeMap<ResourceName, T> {
    let mut valid = BTreeMap::new();
    for (resource, spec) in of_kind(set, kind, faults) {
        match read(resource, spec, faults) {
            Ok(value) => drop(valid.insert(resource.name.clone(), value)),
            Err(found) => faults.extend(found),
        }
    }
    valid
}

/// The valid resources of a kind by namespace and name, which is the order in which rules are evaluated. Invalid resources are
/// faults.
pub(super) fn of_kind<'c>(
    set: &'c ConfigSet,
    kind: Kind,
    faults: &mut Vec<ValidationError>,
) -> Vec<(&'c Resource, &'c Spec)> {
    let mut valid = Vec::new();
    for entry in set.of_role(kind) {
        match &entry.spec {
            Ok(spec) => valid.push((&*entry.resource, &**spec)),
            Err(found) => {
                let new: Vec<_> = found.iter().filter(|fault| !faults.contains(fault)).cloned().collect();
                faults.extend(new);
            }
        }
    }
    valid
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

/// Resolves a reference to a valid resource of a kind.
pub(super) fn resolve<'t, T>(
    set: &ConfigSet,
    kind: &Kind,
    reference: &str,
    namespace: &str,
    usable: &'t BTreeMap<ResourceName, T>,
) -> Result<(&'t ResourceName, &'t T), ReferenceError> {
    let entry = set.resolve(kind, reference, namespace)?;
    usable.get_key_value(entry.name()).ok_or_else(|| ReferenceError::Faulty(entry.name().clone()))
}
