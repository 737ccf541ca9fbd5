use std::sync::Arc;

use imbl::OrdMap;

use super::rule_spec::RuleSpec;
use crate::snapshot::RulePlace;

/// The places of rules, and the attributes that they use. The next snapshot updates it by the rules that changed.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleIndex {
    /// By full name.
    pub(super) places: OrdMap<Arc<str>, Arc<RulePlace>>,
    /// The number of uses of each attribute, by slot.
    uses: Vec<usize>,
}

impl RuleIndex {
    pub(super) fn add(&mut self, rule: &RuleSpec) {
        self.places.insert(rule.full_name.clone(), rule.place.clone());
        for slot in rule.slots().map(|slot| slot as usize) {
            if self.uses.len() <= slot {
                self.uses.resize(slot + 1, 0);
            }
            self.uses[slot] += 1;
        }
    }

    /// Removes a rule that was added.
    pub(super) fn remove(&mut self, rule: &RuleSpec) {
        self.places.remove(&rule.full_name);
        rule.slots().for_each(|slot| self.uses[slot as usize] -= 1);
    }

    /// Iterates over the slots of the attributes that the rules read or set.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.uses).filter(|(_, uses)| **uses > 0).map(|(slot, _)| slot)
    }
}
