use std::{collections::BTreeSet, sync::Arc};

use imbl::{OrdMap, OrdSet};

use super::{
    CompiledConfig, Former,
    instances::{InstanceSpec, Instances},
};
use mixer_adapter_config::{ConfigSet, Entry, Kind, ResourceName, ValidationError, lint, names_quota};

/// The quotas of a configuration, and the rules that name them.
#[derive(Clone, Debug, Default)]
pub(super) struct Quotas {
    names: OrdSet<ResourceName>,
    rules: OrdMap<ResourceName, Arc<Entry>>,
}

impl Quotas {
    /// Finds the quotas. Only resources that differ from the former configuration are read.
    pub(super) fn find(set: &ConfigSet, instances: &Instances, former: Option<&Former<'_>>) -> Self {
        let none = CompiledConfig::default();
        let before = former.map_or(&none, |former| former.compiled);
        let Self { mut names, mut rules } = before.quotas.clone();
        for name in instances.changed_since(&before.instances) {
            if instances.get(name).is_some_and(InstanceSpec::is_quota) {
                names.insert(name.clone());
            } else {
                names.remove(name);
            }
        }
        // Other changes may change which instance a reference means.
        let keeps_references = |name: &&ResourceName| matches!(name.kind(), Kind::Rule | Kind::Handler);
        let again = match former.filter(|former| former.changed.iter().all(keeps_references)) {
            Some(former) => former.changed.clone(),
            None => {
                rules.clear();
                set.of_role(Kind::Rule).map(|rule| rule.name()).collect()
            }
        };
        let quotas: BTreeSet<_> = names.iter().collect();
        for name in again {
            match set.get(name).filter(|rule| names_quota(set, rule, &quotas)) {
                Some(rule) => drop(rules.insert(name.clone(), rule.clone())),
                None => drop(rules.remove(name)),
            }
        }
        Self { names, rules }
    }

    /// Returns the known traps of a set with these quotas.
    pub(super) fn lint(&self, set: &ConfigSet) -> Vec<ValidationError> {
        lint(set, &self.names.iter().collect(), self.rules.values())
    }
}
