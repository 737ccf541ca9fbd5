//! The first configuration of a server, before which it answers nothing.
//!
//! It contains all offers as a whole: without a faulty rule, requests that the rule denies would be allowed. Only
//! faulty offers of collections that are not required are missing, and faulty resources of sources that may skip them.

use std::collections::{BTreeMap, HashSet};

use crate::{
    candidate::Candidate,
    name::ResourceName,
    offer::{Decision, Update},
    validation_error::ValidationError,
};

/// The parts of the candidates that the first configuration does not have.
pub(crate) struct FirstConfiguration {
    /// The skipped resources of each candidate.
    skipped: Vec<HashSet<ResourceName>>,
    /// The candidates without any part in it, with their faults.
    missing: BTreeMap<usize, Vec<ValidationError>>,
}

impl FirstConfiguration {
    pub(crate) fn new(candidates: usize) -> Self {
        Self { skipped: vec![HashSet::new(); candidates], missing: BTreeMap::new() }
    }

    /// Returns the update to apply.
    pub(crate) fn update(&self, candidates: &[Candidate]) -> Update {
        let included = (0..candidates.len()).filter(|index| !self.missing.contains_key(index));
        let parts: Vec<Update> =
            included.map(|index| candidates[index].update.split(&self.skipped[index]).0).collect();
        Update::join(&parts)
    }

    /// Removes faulty candidates that may be missing. Returns whether it removed any and others remain.
    pub(crate) fn leave_out(
        &mut self,
        candidates: &[Candidate],
        faults: &[ValidationError],
        may_miss: impl Fn(&Candidate) -> bool,
        may_skip: impl Fn(&Candidate) -> bool,
    ) -> bool {
        let mut changed = false;
        for (index, candidate) in candidates.iter().enumerate() {
            if self.missing.contains_key(&index) || !candidate.is_at_fault(faults) {
                continue;
            }
            if may_skip(candidate) {
                let before = self.skipped[index].len();
                self.skipped[index].extend(candidate.named_resources(faults));
                changed |= self.skipped[index].len() > before;
            } else if may_miss(candidate) {
                changed |= self.missing.insert(index, candidate.own_faults(faults)).is_none();
            }
        }
        changed && self.missing.len() < candidates.len()
    }

    /// Adds the faults of optional collections, which may be the cause of the others.
    pub(crate) fn all_faults(self, faults: Vec<ValidationError>) -> Vec<ValidationError> {
        self.missing.into_values().flatten().chain(faults).collect()
    }

    /// Removes the candidates that are in use now. Those with skipped resources keep these.
    pub(crate) fn accept(self, candidates: &mut Vec<Candidate>) {
        let mut index = 0;
        candidates.retain_mut(|candidate| {
            let (skipped, is_missing) = (&self.skipped[index], self.missing.contains_key(&index));
            index += 1;
            if is_missing {
                return true;
            }
            if skipped.is_empty() {
                candidate.decide(Decision::Live);
                return false;
            }
            candidate.skip(skipped);
            true
        });
    }
}

/// Refuses the candidates that the faults are about, or all if that is unknown; the others are pending. Returns the number of those
/// that had no decision before.
pub(crate) fn refuse(candidates: &mut [Candidate], faults: &[ValidationError]) -> u64 {
    let is_known = candidates.iter().any(|candidate| candidate.is_at_fault(faults));
    let mut newly_refused = 0;
    for candidate in candidates {
        candidate.faults = if is_known { candidate.own_faults(faults) } else { faults.to_vec() };
        if candidate.faults.is_empty() {
            candidate.decide(Decision::Pending);
        } else {
            newly_refused += u64::from(candidate.decision.is_none());
            candidate.refuse();
        }
    }
    newly_refused
}
