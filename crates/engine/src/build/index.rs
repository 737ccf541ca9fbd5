use std::collections::BTreeMap;

use crate::expression::Language;
use mixer_adapter_config::{ConfigSet, Kind, ResolveError, Resource, ResourceName, Spec, ValidationError};

/// The valid resources of a kind by namespace and name, which is the order in which rules are evaluated. Invalid ones
/// are faults.
pub(super) fn of_kind<'c>(
    set: &'c ConfigSet,
    kind: Kind,
    faults: &mut Vec<ValidationError>,
) -> Vec<(&'c Resource, &'c Spec)> {
    let mut understood = Vec::new();
    for entry in set.of_role(kind) {
        match &entry.spec {
            Ok(spec) => understood.push((&*entry.resource, &**spec)),
            Err(found) => {
                let new: Vec<_> = found.iter().filter(|fault| !faults.contains(fault)).cloned().collect();
                faults.extend(new);
            }
        }
    }
    understood
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
