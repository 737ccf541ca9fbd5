//! Decides which offers of sources come into use.
//!
//! ```text
//! Source --Offer--> Offers --> Acceptance --Update--> Apply (the engine builds a snapshot)
//!    ^                             |
//!    '----------Decision-----------'
//! ```
//!
//! An offer becomes a candidate, and stays one until it is in use or its source replaces it. Each new offer is decided
//! together with all candidates, because changes of one collection often need changes of another. The order of
//! attempts: all together, without the faulty ones, each alone in Mixer's processing order, all but one.
//!
//! Until every required collection has come, offers that can be read are acknowledged, and nothing is applied. The first configuration
//! is applied as a whole: a faulty offer of one source delays all offers ([`first`](super::first)).

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    candidate::{Candidate, accept, join},
    collection::Collection,
    first::{self, FirstConfiguration},
    holdings::{HeldBack, Holdings, Loss},
    merged_source::MergedSource,
    offer::{Decision, Offer, Offers, Update, Verdict},
    source::{SourceHandle, unix_time},
    validation_error::ValidationError,
};

/// Applies configuration.
pub trait Apply: Send {
    /// Applies an update as a whole, or refuses it and leaves the current configuration in use.
    fn apply(&mut self, update: Update) -> impl Future<Output = Verdict> + Send;

    /// Validates an update without applying it and without regard to other configuration.
    fn check(&self, _update: &Update) -> Verdict {
        Ok(())
    }

    /// Receives the progress after each decision.
    fn report(&mut self, _progress: Progress) {}
}

/// The policy for updates that remove the rules, or all resources, of a source. By default they are applied like any
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossPolicy {
    /// Applies them.
    Allow,
    /// Applies no update after which a source has no resources, although it had some. An update of single collections that removes
    /// all rules of a source is applied after the delay: the other collections may become empty, too.
    Protect {
        /// The time to wait for the other collections.
        delay: Duration,
    },
}

/// The updates and collections that are not in use, with the reasons.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// The collections that the first configuration waits for.
    pub awaited: Vec<AwaitedCollection>,
    /// The updates that are not in use, with their faults: at most one per source.
    pub refused: Vec<RefusedUpdate>,
    /// The number of offers that were refused since the last report.
    pub newly_refused: u64,
    /// The number of sources that have lost all their resources since the last report.
    pub newly_lost: u64,
}

/// A collection that the first configuration waits for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct AwaitedCollection {
    /// The collection.
    pub collection: String,
    /// The name of its source.
    pub source: String,
    /// The time since when it is awaited, in seconds since the Unix epoch.
    pub since: u64,
}

/// An update that is not in use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RefusedUpdate {
    /// The name of its source.
    pub source: Arc<str>,
    /// The faults it was refused for.
    pub faults: Vec<ValidationError>,
}

/// Forwards updates as offers to a receiver.
impl Apply for mpsc::Sender<Offer> {
    async fn apply(&mut self, update: Update) -> Verdict {
        let (offer, mut decisions) = Offer::new(update);
        // Without a receiver the offer is dropped, which refuses it.
        let _ = self.send(offer).await;
        decisions.verdict().await
    }
}

/// Runs sources, and decides on their offers.
#[derive(Debug)]
pub struct Acceptance<A> {
    target: A,
    sources: Vec<SourceState>,
    /// The collections, by the index of their source, that the first configuration still waits for.
    awaited: BTreeSet<(usize, Collection)>,
    /// In seconds since the Unix epoch.
    started: u64,
    /// Offers that are not in use.
    candidates: Vec<Candidate>,
    /// The number of applied updates.
    applied: u64,
    /// Whether every source has delivered its required collections without a fault.
    has_first: bool,
    losses: LossPolicy,
    newly_refused: u64,
    newly_lost: u64,
}

#[derive(Debug)]
struct SourceState {
    name: Arc<str>,
    handle: Option<Arc<dyn SourceHandle>>,
    required: BTreeSet<Collection>,
    skip_bad_resources: bool,
    holdings: Holdings,
}

impl SourceState {
    /// Returns whether the first configuration needs this update.
    fn requires(&self, update: &Update) -> bool {
        !self.required.is_empty()
            && (update.changes.is_empty()
                || update.changes.iter().any(|change| self.required.contains(&change.collection)))
    }

    fn connected_for(&self) -> Option<Duration> {
        self.handle.as_ref().map_or(Some(Duration::MAX), |handle| handle.connected_for())
    }
}

impl<A: Apply> Acceptance<A> {
    /// Creates an acceptance that applies accepted updates to `target`.
    pub fn new(target: A) -> Self {
        Self {
            target,
            sources: Vec::new(),
            awaited: BTreeSet::new(),
            started: unix_time(),
            candidates: Vec::new(),
            applied: 0,
            has_first: false,
            losses: LossPolicy::Allow,
            newly_refused: 0,
            newly_lost: 0,
        }
    }

    /// Sets the policy for updates that remove rules, or all resources, of a source.
    #[must_use]
    pub fn with_losses(self, losses: LossPolicy) -> Self {
        Self { losses, ..self }
    }

    /// Runs these sources until all of them have ended. No two filters should include the same collection.
    pub async fn run(mut self, sources: Vec<MergedSource>) {
        // One place per source, so that simultaneous offers are decided together.
        let (sender, mut batches) = mpsc::channel(sources.len().max(1));
        let mut running = Vec::new();
        for (index, MergedSource { source, filter, required, skip_bad_resources }) in
            sources.into_iter().enumerate()
        {
            self.awaited.extend(required.iter().map(|collection| (index, collection.clone())));
            self.sources.push(SourceState {
                name: source.name().into(),
                handle: source.handle(),
                required,
                skip_bad_resources,
                holdings: Holdings::default(),
            });
            let batches = sender.clone();
            running.push(source.run(Offers::new(index, filter, batches)));
        }
        drop(sender);
        self.report();
        let decide = async {
            loop {
                tokio::select! {
                    batch = batches.recv() => match batch {
                        Some(batch) => self.enqueue(batch),
                        None => break,
                    },
                    () = sleep_until(self.next_release()) => self.release(),
                }
                while let Ok(batch) = batches.try_recv() {
                    self.enqueue(batch);
                }
                if self.awaited.is_empty() {
                    self.decide().await
                } else {
                    self.acknowledge(|_| true)
                }
                self.report();
            }
        };
        tokio::join!(join_all(running), decide);
    }

    /// Makes offers candidates: each adds to earlier candidates of its source, or replaces them.
    fn enqueue(&mut self, (source, offers): (usize, Vec<Offer>)) {
        for offer in offers {
            let (update, decider) = offer.into_parts();
            self.arrived(source, &update);
            self.track_losses(source, &update);
            let mut deciders = vec![decider];
            let earlier: Vec<Candidate> = self
                .candidates
                .extract_if(.., |earlier| earlier.source == source && earlier.update.is_replaced_by(&update))
                .collect();
            let mut combined =
                Update { source: update.source.clone(), changes: Vec::new(), faults: Vec::new() };
            for earlier in earlier {
                combined.then(earlier.update);
                // Only the newest offer of a source receives later decisions.
                if earlier.decision.is_none() {
                    deciders.extend(earlier.deciders);
                }
            }
            combined.then(update);
            let (decision, faults) = (None, Vec::new());
            self.candidates.push(Candidate {
                source,
                update: combined,
                deciders,
                decision,
                faults,
                refused_after: None,
                skipped: false,
            });
        }
    }

    fn arrived(&mut self, source: usize, update: &Update) {
        let before = self.awaited.len();
        // An update without changes reports that the source has nothing that can be read.
        self.awaited.retain(|(index, collection)| {
            let is_included = update.changes.is_empty()
                || update.changes.iter().any(|change| change.collection == *collection);
            *index != source || !is_included
        });
        let incomplete: BTreeSet<usize> = self.awaited.iter().map(|(index, _)| *index).collect();
        if self.awaited.len() < before && !incomplete.is_empty() && !incomplete.contains(&source) {
            let names: Vec<&str> = incomplete.iter().map(|index| &*self.sources[*index].name).collect();
            let source = &*self.sources[source].name;
            tracing::info!(
                source,
                waiting_for = names.join(", "),
                "received the first configuration of a source"
            );
        }
    }

    /// Tracks the resources of a source, and holds its updates back if it lost its rules or everything.
    fn track_losses(&mut self, source: usize, update: &Update) {
        let SourceState { name, holdings, .. } = &mut self.sources[source];
        let loss = holdings.update(update);
        let LossPolicy::Protect { delay } = self.losses else { return };
        match loss {
            Some(Loss::Everything) if holdings.held_back != Some(HeldBack::Lost) => {
                self.newly_lost += 1;
                holdings.held_back = Some(HeldBack::Lost);
            }
            Some(Loss::Rules { whole: true }) => {
                tracing::warn!(source = &**name, "all rules of this source are removed");
            }
            Some(Loss::Rules { whole: false }) => {
                tracing::warn!(
                    source = &**name,
                    ?delay,
                    "all rules of this source are removed; waiting whether everything is"
                );
                holdings.held_back = Some(HeldBack::Until(Instant::now() + delay));
            }
            Some(Loss::Everything) | None => {}
        }
    }

    /// Returns the time at which the next source is released.
    fn next_release(&self) -> Option<Instant> {
        let held_back = self.sources.iter().filter_map(|source| source.holdings.held_back);
        let until = held_back.filter_map(|held_back| match held_back {
            HeldBack::Until(until) => Some(until),
            HeldBack::Lost => None,
        });
        until.min()
    }

    /// Releases sources whose delay has expired. It runs while a source is connected, without a break: before it could
    /// not send the rules.
    fn release(&mut self) {
        let LossPolicy::Protect { delay } = self.losses else { return };
        let now = Instant::now();
        for source in &mut self.sources {
            if !matches!(source.holdings.held_back, Some(HeldBack::Until(until)) if until <= now) {
                continue;
            }
            let left = delay.saturating_sub(source.connected_for().unwrap_or_default());
            if left.is_zero() {
                tracing::warn!(source = &*source.name, "applying the removal of all rules of this source");
                source.holdings.held_back = None;
            } else {
                source.holdings.held_back = Some(HeldBack::Until(now + left));
            }
        }
    }

    /// Answers new offers of these sources without applying them.
    fn acknowledge(&mut self, is_affected: impl Fn(&SourceState) -> bool) {
        for candidate in &mut self.candidates {
            let source = &self.sources[candidate.source];
            if !is_affected(source) {
                continue;
            }
            let is_new = candidate.decision.is_none();
            let verdict = match source.holdings.held_back {
                Some(HeldBack::Lost) => Err(vec![lost(&candidate.update.source, self.applied > 0)]),
                _ if is_new => self.target.check(&candidate.update),
                _ => continue,
            };
            match verdict {
                Err(faults)
                    if !source.skip_bad_resources || candidate.faulty_resources(&faults).is_none() =>
                {
                    self.newly_refused += u64::from(is_new);
                    candidate.faults = faults;
                    candidate.refuse();
                }
                _ => candidate.decide(Decision::Pending),
            }
        }
    }

    /// Decides on all candidates.
    async fn decide(&mut self) {
        self.acknowledge(|source| source.holdings.held_back.is_some());
        let sources = &self.sources;
        let mut candidates: Vec<Candidate> = self
            .candidates
            .extract_if(.., |candidate| sources[candidate.source].holdings.held_back.is_none())
            .collect();
        candidates.sort_by_key(|candidate| candidate.update.order());
        for candidate in &mut candidates {
            candidate.refused_after = None;
        }
        if self.has_first || self.apply_first(&mut candidates).await {
            while self.apply_together(&mut candidates).await
                || self.apply_alone(&mut candidates).await
                || self.apply_all_but_one(&mut candidates).await
            {}
            for candidate in &mut candidates {
                self.newly_refused += u64::from(candidate.decision.is_none());
                candidate.refuse();
            }
        }
        self.candidates.append(&mut candidates);
    }

    /// Applies the first configuration. Returns whether it is in use; else the offers at fault are refused, and the others pending.
    async fn apply_first(&mut self, candidates: &mut Vec<Candidate>) -> bool {
        let is_missing =
            |source: &SourceState| source.holdings.held_back.is_some() && !source.required.is_empty();
        if self.sources.iter().any(is_missing) {
            candidates.iter_mut().for_each(|candidate| candidate.decide(Decision::Pending));
            return false;
        }
        let mut first = FirstConfiguration::new(candidates.len());
        while let Err(faults) = self.apply(first.update(candidates)).await {
            let may_miss =
                |candidate: &Candidate| !self.sources[candidate.source].requires(&candidate.update);
            let left_out = first.leave_out(candidates, &faults, may_miss, |candidate| {
                self.sources[candidate.source].skip_bad_resources
            });
            if !left_out {
                self.newly_refused += first::refuse(candidates, &first.all_faults(faults));
                return false;
            }
        }
        self.has_first = true;
        first.accept(candidates);
        true
    }

    /// Applies all candidates together, or without the faulty ones. Returns whether some were accepted.
    async fn apply_together(&mut self, candidates: &mut Vec<Candidate>) -> bool {
        let mut together: Vec<usize> =
            (0..candidates.len()).filter(|index| !candidates[*index].update.changes.is_empty()).collect();
        while together.len() > 1 {
            match self.apply(join(candidates, &together)).await {
                Ok(()) => {
                    accept(candidates, &together);
                    return true;
                }
                Err(faults) => {
                    let before = together.len();
                    together.retain(|index| !candidates[*index].is_at_fault(&faults));
                    if together.len() == before {
                        return false;
                    }
                }
            }
        }
        false
    }

    /// Applies each candidate alone. Returns whether some were accepted.
    async fn apply_alone(&mut self, candidates: &mut Vec<Candidate>) -> bool {
        let mut accepted = Vec::new();
        let mut some = false;
        for (index, candidate) in candidates.iter_mut().enumerate() {
            if candidate.refused_after == Some(self.applied) {
                continue;
            }
            match self.apply(candidate.update.clone()).await {
                Ok(()) => accepted.push(index),
                Err(faults) => {
                    candidate.faults = faults;
                    candidate.refused_after = Some(self.applied);
                    some |=
                        self.sources[candidate.source].skip_bad_resources && self.apply_good(candidate).await;
                }
            }
        }
        accept(candidates, &accepted);
        some || !accepted.is_empty()
    }

    /// Applies a candidate without its faulty resources, which remain in it. Returns whether anything was accepted.
    async fn apply_good(&mut self, candidate: &mut Candidate) -> bool {
        let mut bad = HashSet::new();
        let mut faults = candidate.faults.clone();
        while let Some(named) = candidate.faulty_resources(&faults).filter(|named| !named.is_subset(&bad)) {
            bad.extend(named);
            let (good, _) = candidate.update.split(&bad);
            let changes = !good.is_empty();
            if changes && let Err(others) = self.apply(good).await {
                faults = others;
                continue;
            }
            candidate.skip(&bad);
            return changes;
        }
        false
    }

    /// Applies all candidates but one: a candidate may cause faults that do not name it. Returns whether some were
    /// accepted.
    async fn apply_all_but_one(&mut self, candidates: &mut Vec<Candidate>) -> bool {
        let all: Vec<usize> =
            (0..candidates.len()).filter(|index| !candidates[*index].update.changes.is_empty()).collect();
        if all.len() < 3 {
            return false;
        }
        for index in &all {
            let others: Vec<usize> = all.iter().copied().filter(|other| other != index).collect();
            if self.apply(join(candidates, &others)).await.is_ok() {
                accept(candidates, &others);
                return true;
            }
        }
        false
    }

    async fn apply(&mut self, update: Update) -> Verdict {
        self.target.apply(update).await?;
        self.applied += 1;
        Ok(())
    }

    fn report(&mut self) {
        let awaited = self.awaited.iter().map(|(index, collection)| AwaitedCollection {
            collection: collection.to_string(),
            source: self.sources[*index].name.to_string(),
            since: self.started,
        });
        let mut refused: Vec<RefusedUpdate> = Vec::new();
        for Candidate { update, faults, .. } in self.candidates.iter().filter(|known| known.is_refused()) {
            match refused.iter_mut().find(|known| known.source == update.source) {
                Some(known) => known.faults.extend_from_slice(faults),
                None => refused.push(RefusedUpdate { source: update.source.clone(), faults: faults.clone() }),
            }
        }
        self.target.report(Progress {
            awaited: awaited.collect(),
            refused,
            newly_refused: std::mem::take(&mut self.newly_refused),
            newly_lost: std::mem::take(&mut self.newly_lost),
        });
    }
}

/// The fault of updates of a source that has lost all its resources.
fn lost(source: &str, is_configured: bool) -> ValidationError {
    let remains = if is_configured { "; the last good configuration remains in use" } else { "" };
    ValidationError::error(format!(
        "{source} has no resources any more{remains} (--allow-empty applies such an update)"
    ))
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
