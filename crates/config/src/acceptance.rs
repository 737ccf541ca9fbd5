//! Decides which offers of sources are accepted and which are refused.
//!
//! ```text
//! Source --Offer--> Offers --> Acceptance --Update--> Apply (the engine builds a snapshot)
//!    ^                             |
//!    '-----------Verdict-----------'
//! ```
//!
//! What waits is applied together, because changes of one collection often need those of another. If that is refused, each offer is
//! applied alone, in Mixer's processing order, and again after each one that is accepted. An offer that stays refused is offered
//! again by its source when another source's offer is accepted.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    sync::Arc,
};

use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::{
    Collection, CollectionFilter, Fault, Offer, Update, Verdict,
    source::{Source, SourceHandle},
};

/// Puts configuration to use.
pub trait Apply: Send {
    /// Puts an update to use as a whole, or refuses it and keeps the configuration it has.
    fn apply(&mut self, update: Update) -> impl Future<Output = Verdict> + Send;
}

/// Passes updates on as offers to whoever receives them.
impl Apply for mpsc::Sender<Offer> {
    async fn apply(&mut self, update: Update) -> Verdict {
        let (offer, verdict) = Offer::new(update);
        // If nobody receives it, the offer is dropped, which is a verdict.
        let _ = self.send(offer).await;
        verdict.await
    }
}

/// One of the sources whose configuration is merged.
pub struct MergedSource {
    /// The source.
    pub source: Box<dyn Source>,
    /// The collections that are taken from it.
    pub filter: CollectionFilter,
    /// The collections that the first configuration waits for.
    pub required: BTreeSet<Collection>,
}

impl<S: Source + 'static> From<S> for MergedSource {
    /// Takes all collections from the source, and waits for none.
    fn from(source: S) -> Self {
        Self { source: Box::new(source), filter: CollectionFilter::default(), required: BTreeSet::new() }
    }
}

impl fmt::Debug for MergedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergedSource")
            .field("source", &self.source.name())
            .field("filter", &self.filter)
            .finish()
    }
}

/// Where a source sends its offers.
#[derive(Debug)]
pub struct Offers {
    source: usize,
    filter: CollectionFilter,
    /// The collections whose resources were ignored, and logged.
    ignored: BTreeSet<Collection>,
    batches: mpsc::Sender<(usize, Vec<Offer>)>,
}

impl Offers {
    /// Offers an update and waits for the verdict. Returns `None` if offers are not taken any more.
    pub async fn offer(&mut self, update: Update) -> Option<Verdict> {
        let (offer, verdict) = Offer::new(update);
        self.send(vec![offer]).await?;
        Some(verdict.await)
    }

    /// Sends offers that arrived together; each gets its own verdict. Returns `None` if offers are not taken any more.
    pub async fn send(&mut self, offers: Vec<Offer>) -> Option<()> {
        let filtered = offers.into_iter().filter_map(|offer| offer.try_map(|update| Ok(self.filter(update))));
        let filtered = filtered.collect();
        self.batches.send((self.source, filtered)).await.ok()
    }

    /// Waits until offers are not taken any more.
    pub async fn closed(&self) {
        self.batches.closed().await;
    }

    /// Removes changes of collections that come from other sources.
    fn filter(&mut self, mut update: Update) -> Update {
        update.changes.retain(|change| {
            let included = self.filter.includes(&change.collection);
            if !included
                && !change.content.resources().is_empty()
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

/// Runs sources, and decides on their offers.
#[derive(Debug)]
pub struct Acceptance<A> {
    target: A,
    sources: Vec<SourceState>,
    /// The collections, by the index of their source, that the first configuration still waits for.
    awaited: BTreeSet<(usize, Collection)>,
    /// Offers without a verdict, with the index of their source.
    waiting: Vec<(usize, Offer)>,
}

#[derive(Debug)]
struct SourceState {
    name: String,
    handle: Option<Arc<dyn SourceHandle>>,
    /// The collections whose last change was refused.
    refused: BTreeSet<Collection>,
}

impl<A: Apply> Acceptance<A> {
    /// Applies what is accepted to `target`.
    pub fn new(target: A) -> Self {
        Self { target, sources: Vec::new(), awaited: BTreeSet::new(), waiting: Vec::new() }
    }

    /// Runs these sources until all of them have ended. No two filters should include the same collection.
    pub async fn run(mut self, sources: Vec<MergedSource>) {
        // One place for each source: what they offer at the same time is decided on together.
        let (sender, mut batches) = mpsc::channel(sources.len().max(1));
        let mut running = Vec::new();
        for (index, MergedSource { source, filter, required }) in sources.into_iter().enumerate() {
            self.awaited.extend(required.into_iter().map(|collection| (index, collection)));
            let (name, handle) = (source.name(), source.handle());
            self.sources.push(SourceState { name, handle, refused: BTreeSet::new() });
            let batches = sender.clone();
            running.push(source.run(Offers { source: index, filter, ignored: BTreeSet::new(), batches }));
        }
        drop(sender);
        let decide = async {
            while let Some(batch) = batches.recv().await {
                self.enqueue(batch);
                while let Ok(batch) = batches.try_recv() {
                    self.enqueue(batch);
                }
                if self.awaited.is_empty() {
                    self.decide().await;
                }
            }
        };
        tokio::join!(join_all(running), decide);
    }

    fn enqueue(&mut self, (source, offers): (usize, Vec<Offer>)) {
        let before = self.awaited.len();
        for offer in &offers {
            let changes = &offer.content().changes;
            // An offer without changes reports that the source has nothing that can be read.
            let includes = |collection: &Collection| {
                changes.is_empty() || changes.iter().any(|change| change.collection == *collection)
            };
            self.awaited.retain(|(index, collection)| *index != source || !includes(collection));
        }
        let incomplete: BTreeSet<usize> = self.awaited.iter().map(|(index, _)| *index).collect();
        if self.awaited.len() < before && !incomplete.is_empty() && !incomplete.contains(&source) {
            let names: Vec<&str> = incomplete.iter().map(|index| &*self.sources[*index].name).collect();
            let source = &self.sources[source].name;
            tracing::info!(
                source,
                waiting_for = names.join(", "),
                "received the first configuration of a source"
            );
        }
        self.waiting.extend(offers.into_iter().map(|offer| (source, offer)));
    }

    /// Decides on all offers that wait.
    async fn decide(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|(_, offer)| offer.content().order());
        let mut accepted = BTreeSet::new();
        if waiting.len() > 1 {
            let all = Update::join(waiting.iter().map(|(_, offer)| offer.content()));
            if self.target.apply(all).await.is_ok() {
                for (source, offer) in waiting.drain(..) {
                    accepted.insert(source);
                    self.accept(source, offer);
                }
            }
        }
        let mut queue = VecDeque::from(waiting);
        let mut refused: Vec<(usize, Offer, Vec<Fault>)> = Vec::new();
        while let Some((source, offer)) = queue.pop_front() {
            match self.target.apply(offer.content().clone()).await {
                Ok(()) => {
                    accepted.insert(source);
                    self.accept(source, offer);
                    queue.extend(refused.drain(..).map(|(source, offer, _)| (source, offer)));
                }
                Err(faults) => refused.push((source, offer, faults)),
            }
        }
        self.reoffer(&accepted).await;
        for (source, offer, faults) in refused {
            self.sources[source].refused.extend(collections(&offer));
            offer.refuse(faults);
        }
    }

    fn accept(&mut self, source: usize, offer: Offer) {
        for collection in collections(&offer) {
            self.sources[source].refused.remove(&collection);
        }
        offer.accept();
    }

    /// Asks sources for what was refused before offers of other sources were accepted.
    async fn reoffer(&self, accepted: &BTreeSet<usize>) {
        for (index, state) in self.sources.iter().enumerate() {
            let others = accepted.iter().any(|source| *source != index);
            if let (true, false, Some(handle)) = (others, state.refused.is_empty(), &state.handle) {
                handle.reoffer().await;
            }
        }
    }
}

fn collections(offer: &Offer) -> impl Iterator<Item = Collection> + '_ {
    offer.content().changes.iter().map(|change| change.collection.clone())
}

#[cfg(test)]
mod tests;
