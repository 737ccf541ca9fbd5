//! The offers of a source, and the decisions on them.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use tokio::sync::{mpsc, watch};

use crate::{
    change::Change,
    collection::Collection,
    collection_filter::CollectionFilter,
    name::{Kind, ResourceName},
    validation_error::ValidationError,
};

/// The decision on an offer: accepted, or refused for these faults.
pub type Verdict = Result<(), Vec<ValidationError>>;

/// Changes that are accepted or refused together.
#[derive(Clone, Debug)]
pub struct Update {
    /// The [name](crate::source::Source::name) of the source.
    pub source: Arc<str>,
    /// The changes, of different collections.
    pub changes: Vec<Change>,
    /// The faults of resources that the source cannot read. Errors are a reason to refuse the update, unless invalid
    /// resources may be skipped.
    pub faults: Vec<ValidationError>,
}

impl Update {
    /// Joins updates of different collections into one, of all their sources.
    pub(crate) fn join<'a>(updates: impl IntoIterator<Item = &'a Self>) -> Self {
        let (mut names, mut changes, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for update in updates {
            if !names.contains(&&*update.source) {
                names.push(&*update.source);
            }
            changes.extend(update.changes.iter().cloned());
            faults.extend(update.faults.iter().cloned());
        }
        Self { source: names.join(", ").into(), changes, faults }
    }

    /// Adds a later update of the same source, whose faults replace the earlier ones.
    pub(crate) fn then(&mut self, later: Self) {
        for change in later.changes {
            match self.changes.iter_mut().find(|earlier| earlier.collection == change.collection) {
                Some(earlier) => earlier.then(change),
                None => self.changes.push(change),
            }
        }
        self.faults = later.faults;
    }

    /// Separates these new and changed resources from all other changes.
    pub(crate) fn split(&self, names: &HashSet<ResourceName>) -> (Self, Self) {
        let (others, separated) = self.changes.iter().map(|change| change.split(names)).unzip();
        let others = Self { source: self.source.clone(), changes: others, faults: self.faults.clone() };
        (others, Self { source: self.source.clone(), changes: separated, faults: Vec::new() })
    }

    /// Returns whether the update is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.iter().all(Change::is_empty)
    }

    /// Returns whether a later update of the same source supersedes this update: it has changes of the same
    /// collections, or this update only reports faults.
    pub(crate) fn is_replaced_by(&self, later: &Self) -> bool {
        self.changes.is_empty()
            || self
                .changes
                .iter()
                .any(|own| later.changes.iter().any(|change| change.collection == own.collection))
    }

    /// Returns the sort key of the update: its first kind in Mixer's processing order; updates without Mixer's kinds
    /// come last.
    pub(crate) fn order(&self) -> (bool, Option<Kind>) {
        let role = self.changes.iter().filter_map(|change| change.collection.role()).min();
        (role.is_none(), role)
    }
}

/// The decision on an offer. Others may follow the first, until the source replaces the offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is in use.
    Live,
    /// It can be read, and comes into use with other configuration that has not arrived yet.
    Pending,
    /// It is not in use, for these faults, and is tried again with every offer that arrives.
    Refused(Vec<ValidationError>),
    /// It cannot be read, and is dropped.
    Unreadable(Vec<ValidationError>),
}

/// Content that is offered, until it is decided on. Dropping an offer refuses it.
#[derive(Debug)]
pub struct Offer<T = Update> {
    content: T,
    decider: Decider,
}

/// Sends the decisions on an offer.
pub(crate) type Decider = watch::Sender<Option<Decision>>;

/// Receives the decisions on an offer; of several that were not received yet, the last.
#[derive(Debug)]
pub struct Decisions {
    receiver: watch::Receiver<Option<Decision>>,
    decided: bool,
}

impl<T> Offer<T> {
    /// Returns an offer, and the decisions on it.
    pub fn new(content: T) -> (Self, Decisions) {
        let (sender, receiver) = watch::channel(None);
        (Self { content, decider: sender }, Decisions { receiver, decided: false })
    }

    /// Returns the offered content.
    pub fn content(&self) -> &T {
        &self.content
    }

    /// Separates the content from the sender of decisions.
    pub(crate) fn into_parts(self) -> (T, Decider) {
        (self.content, self.decider)
    }

    /// Replaces the offered content by another; refuses the offer if it cannot be read.
    pub fn try_map<U>(self, map: impl FnOnce(T) -> Result<U, Vec<ValidationError>>) -> Option<Offer<U>> {
        let Self { content, decider } = self;
        match map(content) {
            Ok(content) => Some(Offer { content, decider }),
            Err(faults) => {
                decider.send_replace(Some(Decision::Unreadable(faults)));
                None
            }
        }
    }

    /// Accepts it: it is in use, or will certainly be.
    pub fn accept(self) {
        self.decider.send_replace(Some(Decision::Live));
    }

    /// Refuses it: the configuration before remains in use.
    pub fn refuse(self, faults: Vec<ValidationError>) {
        self.decider.send_replace(Some(Decision::Refused(faults)));
    }
}

impl Decisions {
    /// Waits for the next decision. Returns `None` if no other can follow.
    pub async fn next(&mut self) -> Option<Decision> {
        let changed = self.receiver.changed().await;
        let decision = changed.ok().and_then(|()| self.receiver.borrow_and_update().clone());
        if self.decided {
            return decision;
        }
        self.decided = true;
        Some(decision.unwrap_or_else(|| {
            let fault = ValidationError::error("this program does not accept configuration any more");
            Decision::Unreadable(vec![fault])
        }))
    }

    /// Waits for the first decision. An offer that waits for other configuration counts as accepted.
    pub async fn verdict(&mut self) -> Verdict {
        match self.next().await {
            Some(Decision::Refused(faults) | Decision::Unreadable(faults)) => Err(faults),
            Some(Decision::Live | Decision::Pending) | None => Ok(()),
        }
    }
}

/// The receiver of the offers of a source.
#[derive(Debug)]
pub struct Offers {
    source: usize,
    filter: CollectionFilter,
    /// The collections whose resources were ignored and logged.
    ignored: BTreeSet<Collection>,
    batches: mpsc::Sender<(usize, Vec<Offer>)>,
}

impl Offers {
    /// Creates the end of the source with this index.
    pub(crate) fn new(
        source: usize,
        filter: CollectionFilter,
        batches: mpsc::Sender<(usize, Vec<Offer>)>,
    ) -> Self {
        Self { source, filter, ignored: BTreeSet::new(), batches }
    }

    /// Offers an update; returns the decisions on it, or `None` if offers are no longer accepted.
    pub async fn offer(&mut self, update: Update) -> Option<Decisions> {
        let (offer, decisions) = Offer::new(update);
        self.send(vec![offer]).await?;
        Some(decisions)
    }

    /// Sends offers that arrived together; each has its own decisions. Returns `None` if offers are no longer accepted.
    pub async fn send(&mut self, offers: Vec<Offer>) -> Option<()> {
        let filtered = offers.into_iter().filter_map(|offer| offer.try_map(|update| Ok(self.filter(update))));
        let filtered = filtered.collect();
        self.batches.send((self.source, filtered)).await.ok()
    }

    /// Waits until offers are no longer accepted.
    pub async fn closed(&self) {
        self.batches.closed().await;
    }

    /// Removes changes of collections that come from other sources.
    fn filter(&mut self, mut update: Update) -> Update {
        update.changes.retain(|change| {
            let included = self.filter.includes(&change.collection);
            if !included
                && change.content.count() > 0
                && self.ignored.insert(change.collection.clone())
            {
                tracing::warn!(
                    source = %update.source,
                    collection = %change.collection,
                    "ignoring resources of this source: the collection comes from another source, or is not asked for"
                );
            }
            included
        });
        update
    }
}
