//! The sources whose configuration is merged, and where they send what they offer.

use std::{collections::BTreeSet, fmt};

use tokio::sync::mpsc;

use super::{Collection, CollectionFilter, Offer, Update, offer::Decisions, source::Source};

/// One of the sources whose configuration is merged.
pub struct MergedSource {
    /// The source.
    pub source: Box<dyn Source>,
    /// The collections that are taken from it.
    pub filter: CollectionFilter,
    /// The collections that the first configuration waits for.
    pub required: BTreeSet<Collection>,
    /// Whether an update comes into use without those of its resources that are faulty.
    pub skip_bad_resources: bool,
}

impl<S: Source + 'static> From<S> for MergedSource {
    /// Takes all collections from the source, and waits for none.
    fn from(source: S) -> Self {
        Self {
            source: Box::new(source),
            filter: CollectionFilter::default(),
            required: BTreeSet::new(),
            skip_bad_resources: false,
        }
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
    /// Creates the end of the source with this index.
    pub(crate) fn new(
        source: usize,
        filter: CollectionFilter,
        batches: mpsc::Sender<(usize, Vec<Offer>)>,
    ) -> Self {
        Self { source, filter, ignored: BTreeSet::new(), batches }
    }

    /// Offers an update; returns the decisions on it, or `None` if offers are not accepted any more.
    pub async fn offer(&mut self, update: Update) -> Option<Decisions> {
        let (offer, decisions) = Offer::new(update);
        self.send(vec![offer]).await?;
        Some(decisions)
    }

    /// Sends offers that arrived together; each gets its own decisions. Returns `None` if offers are not accepted any more.
    pub async fn send(&mut self, offers: Vec<Offer>) -> Option<()> {
        let filtered = offers.into_iter().filter_map(|offer| offer.try_map(|update| Ok(self.filter(update))));
        let filtered = filtered.collect();
        self.batches.send((self.source, filtered)).await.ok()
    }

    /// Waits until offers are not accepted any more.
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
