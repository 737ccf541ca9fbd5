//! What a source offers, and what becomes of it: accepted or refused.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Change, Fault, Kind};

/// The decision on an offer: accepted, or refused for these faults.
pub type Verdict = Result<(), Vec<Fault>>;

/// Changes that are accepted or refused together.
#[derive(Clone, Debug)]
pub struct Update {
    /// The [name](crate::source::Source::name) of the source.
    pub source: Arc<str>,
    /// The changes, of different collections.
    pub changes: Vec<Change>,
    /// What the source has but cannot read. Errors are a reason to refuse the update, unless broken resources may be skipped.
    pub faults: Vec<Fault>,
}

impl Update {
    /// Joins updates into one, of all their sources.
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

    /// The place among other updates: that of its first kind in Mixer's processing order, and after all of these what is not Mixer's.
    pub(crate) fn order(&self) -> (bool, Option<Kind>) {
        let role = self.changes.iter().filter_map(|change| change.collection.role()).min();
        (role.is_none(), role)
    }
}

/// Something that waits for a [`Verdict`]. Dropping it refuses it.
#[derive(Debug)]
pub struct Offer<T = Update> {
    content: T,
    verdict: oneshot::Sender<Verdict>,
}

impl<T> Offer<T> {
    /// Returns an offer, and the verdict on it.
    pub fn new(content: T) -> (Self, impl Future<Output = Verdict> + Send + 'static + use<T>) {
        let (verdict, decided) = oneshot::channel();
        let dropped = |_| Err(vec![Fault::error("this program does not take configuration any more")]);
        (Self { content, verdict }, async move { decided.await.unwrap_or_else(dropped) })
    }

    /// What is offered.
    pub fn content(&self) -> &T {
        &self.content
    }

    /// Offers something else in its place, or refuses it.
    pub(crate) fn try_map<U>(self, map: impl FnOnce(T) -> Result<U, Vec<Fault>>) -> Option<Offer<U>> {
        let Self { content, verdict } = self;
        match map(content) {
            Ok(content) => Some(Offer { content, verdict }),
            Err(faults) => {
                decide(verdict, Err(faults));
                None
            }
        }
    }

    /// Accepts it: it is in use, or will be without fail.
    pub fn accept(self) {
        decide(self.verdict, Ok(()));
    }

    /// Refuses it: what was in use before stays.
    pub fn refuse(self, faults: Vec<Fault>) {
        decide(self.verdict, Err(faults));
    }
}

fn decide(sender: oneshot::Sender<Verdict>, verdict: Verdict) {
    // A source that has ended needs no verdict.
    let _ = sender.send(verdict);
}
