//! Offers that are not in use.

use std::collections::HashSet;

use crate::{
    name::ResourceName,
    offer::{Decider, Decision, Update},
    validation_error::ValidationError,
};

/// The difference between offered and active configuration.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) source: usize,
    pub(crate) update: Update,
    pub(crate) deciders: Vec<Decider>,
    /// The last decision; `None` before the first.
    pub(crate) decision: Option<Decision>,
    /// The faults of the last refusal.
    pub(crate) faults: Vec<ValidationError>,
    /// The number of applied updates at the time when it was refused alone; `None` before that.
    pub(crate) refused_after: Option<u64>,
    /// Whether it is the skipped part of an update that is in use.
    pub(crate) skipped: bool,
}

pub(crate) fn join(candidates: &[Candidate], indices: &[usize]) -> Update {
    Update::join(indices.iter().map(|index| &candidates[*index].update))
}

/// Removes candidates that are in use now.
pub(crate) fn accept(candidates: &mut Vec<Candidate>, indices: &[usize]) {
    let mut index = 0;
    candidates.retain_mut(|candidate| {
        let accepted = indices.contains(&index);
        index += 1;
        if accepted {
            candidate.decide(Decision::Live);
        }
        !accepted
    });
}

impl Candidate {
    /// Sends a decision that differs from the last one.
    pub(crate) fn decide(&mut self, decision: Decision) {
        if self.decision.as_ref() != Some(&decision) {
            for decider in &self.deciders {
                decider.send_replace(Some(decision.clone()));
            }
            self.decision = Some(decision);
        }
    }

    /// Refuses it for its own faults.
    pub(crate) fn refuse(&mut self) {
        if !self.skipped {
            self.decide(Decision::Refused(self.faults.clone()));
        }
    }

    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.decision, Some(Decision::Refused(_)))
    }

    /// Whether faults of a configuration with this candidate are its own.
    pub(crate) fn is_at_fault(&self, faults: &[ValidationError]) -> bool {
        let named = named(faults);
        faults.iter().any(|fault| fault.is_error() && self.update.faults.contains(fault))
            || self.resources().any(|name| named.contains(name))
    }

    /// Returns the resources of all errors; `None` if some errors are not about a resource.
    pub(crate) fn faulty_resources(&self, faults: &[ValidationError]) -> Option<HashSet<ResourceName>> {
        let own: HashSet<&ResourceName> = self.resources().collect();
        let errors = faults.iter().filter(|fault| fault.is_error());
        errors.map(|fault| fault.resource.clone().filter(|name| own.contains(name))).collect()
    }

    /// Returns the errors that are about this candidate.
    pub(crate) fn own_faults(&self, faults: &[ValidationError]) -> Vec<ValidationError> {
        let own: HashSet<&ResourceName> = self.resources().collect();
        faults
            .iter()
            .filter(|fault| {
                fault.is_error()
                    && (self.update.faults.contains(fault)
                        || fault.resource.as_ref().is_some_and(|name| own.contains(name)))
            })
            .cloned()
            .collect()
    }

    /// Returns its resources that errors name.
    pub(crate) fn named_resources(&self, faults: &[ValidationError]) -> HashSet<ResourceName> {
        let named = named(faults);
        self.resources().filter(|name| named.contains(name)).cloned().collect()
    }

    /// Reduces it to these resources: the others are in use.
    pub(crate) fn skip(&mut self, skipped: &HashSet<ResourceName>) {
        let (_, rest) = self.update.split(skipped);
        if self.decision != Some(Decision::Live) {
            let names: Vec<String> = skipped.iter().map(ToString::to_string).collect();
            tracing::warn!(source = &*rest.source, resources = names.join(", "), "bad resources skipped");
        }
        self.decide(Decision::Live);
        self.update = rest;
        self.skipped = true;
    }

    /// The names of new and changed resources.
    fn resources(&self) -> impl Iterator<Item = &ResourceName> {
        self.update
            .changes
            .iter()
            .flat_map(|change| change.content.resources())
            .map(|resource| &resource.name)
    }
}

/// The resources that errors name.
fn named(faults: &[ValidationError]) -> HashSet<&ResourceName> {
    faults.iter().filter(|fault| fault.is_error()).filter_map(|fault| fault.resource.as_ref()).collect()
}
