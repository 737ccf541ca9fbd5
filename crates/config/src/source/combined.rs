use std::{collections::BTreeSet, future::Future, pin::Pin, sync::Arc};

use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::{Answer, Change, Content, Source, Update, Watched};
use crate::{CollectionFilter, Fault};

/// Several sources as one, each with collections of its own.
///
/// The first updates of all sources are offered as one: rules mean nothing before handlers are there, which may come from elsewhere.
/// Later each update is passed on as it comes. One that is refused is offered again when another source's update is put to use.
#[derive(Debug)]
pub struct Combined {
    parts: Vec<Part>,
}

/// One of several sources.
pub struct Part {
    /// The source.
    pub source: Box<dyn Source>,
    /// The collections that are taken from it; what it says of others is left out.
    pub filter: CollectionFilter,
    /// Whether the first configuration waits for it.
    pub required: bool,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("source", &self.source.name()).field("filter", &self.filter).finish()
    }
}

impl Combined {
    /// The sources of these parts. No two filters should include the same collection.
    pub fn new(parts: Vec<Part>) -> Self {
        Self { parts }
    }

    async fn follow(self, updates: mpsc::Sender<Update>) {
        // Each source has at most one update under way, and waits for the answer.
        let (arrivals, mut arriving) = mpsc::channel(self.parts.len().max(1));
        let mut desk = Desk::default();
        let mut running = Vec::new();
        for (index, Part { source, filter, required }) in self.parts.into_iter().enumerate() {
            if required {
                desk.awaited.insert(index);
            }
            desk.seats.push(Seat { name: source.name(), watched: source.watched(), refused: false });
            running.push(run(index, source, filter, arrivals.clone()));
        }
        drop(arrivals);
        let serve = async {
            while let Some(arrived) = arriving.recv().await {
                desk.take(arrived);
                while let Ok(more) = arriving.try_recv() {
                    desk.take(more);
                }
                if desk.awaited.is_empty() && desk.offer(&updates).await.is_none() {
                    return;
                }
            }
        };
        tokio::select! {
            _ = join_all(running) => {}
            () = serve => {}
            () = updates.closed() => {}
        }
    }
}

impl Source for Combined {
    fn name(&self) -> String {
        let names: Vec<String> = self.parts.iter().map(|part| part.source.name()).collect();
        names.join(", ")
    }

    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        self.parts.iter().flat_map(|part| part.source.watched()).collect()
    }

    fn run(self: Box<Self>, updates: mpsc::Sender<Update>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.follow(updates))
    }
}

/// Runs one source, and passes on what it says of its own collections.
async fn run(
    index: usize,
    source: Box<dyn Source>,
    filter: CollectionFilter,
    arrivals: mpsc::Sender<(usize, Update)>,
) {
    let (updates, mut received) = mpsc::channel::<Update>(1);
    let mut told = BTreeSet::new();
    let pass_on = async {
        while let Some(mut update) = received.recv().await {
            update.changes.retain(|change| {
                let own = filter.takes(&change.collection);
                if !own && brings_something(change) && told.insert(change.collection.clone()) {
                    tracing::warn!(
                        source = %update.source,
                        collection = %change.collection,
                        "what this source has of the collection is left out: the collection comes from another source, or is not asked for"
                    );
                }
                own
            });
            if arrivals.send((index, update)).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(source.run(updates), pass_on);
}

fn brings_something(change: &Change) -> bool {
    match &change.content {
        Content::Full(resources) => !resources.is_empty(),
        Content::Partial { added, .. } => !added.is_empty(),
    }
}

/// Where updates wait, and what is known of those who brought them.
#[derive(Default)]
struct Desk {
    seats: Vec<Seat>,
    /// The sources that nothing has come from yet, and without which there is no first configuration.
    awaited: BTreeSet<usize>,
    waiting: Vec<(usize, Update)>,
}

struct Seat {
    name: String,
    watched: Vec<Arc<dyn Watched>>,
    /// Whether the last update was refused.
    refused: bool,
}

impl Desk {
    fn take(&mut self, (index, update): (usize, Update)) {
        if self.awaited.remove(&index) && !self.awaited.is_empty() {
            let missing: Vec<&str> = self.awaited.iter().map(|index| &*self.seats[*index].name).collect();
            tracing::info!(source = %update.source, waiting_for = missing.join(", "), "the first configuration of one source is there");
        }
        self.waiting.push((index, update));
    }

    /// Offers all that waits, and passes the answers on. What is refused together is tried one by one, for as long as that
    /// leads anywhere. `None` if nobody takes updates any more.
    async fn offer(&mut self, updates: &mpsc::Sender<Update>) -> Option<()> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut applied = Vec::new();
        if waiting.len() > 1 {
            let all = Offer::of(waiting.iter().map(|(_, update)| update));
            if all.send(updates).await? == Answer::Applied {
                applied.append(&mut waiting);
            }
        }
        let mut refused: Vec<(usize, Update, Vec<Fault>)> = Vec::new();
        while !waiting.is_empty() {
            let before = applied.len();
            let alone = waiting.len() == 1;
            for (index, mut update) in waiting.drain(..) {
                // What is alone is not tried again, so that nothing needs to be kept of it.
                let offer = if alone { Offer::from(&mut update) } else { Offer::of([&update]) };
                match offer.send(updates).await? {
                    Answer::Applied => applied.push((index, update)),
                    Answer::Rejected(faults) => refused.push((index, update, faults)),
                }
            }
            if applied.len() > before {
                waiting.extend(refused.drain(..).map(|(index, update, _)| (index, update)));
            }
        }
        let changed = !applied.is_empty();
        for (index, update) in applied {
            self.seats[index].refused = false;
            update.responder.ack();
        }
        // What is refused in this round was tried after all that was applied in it.
        for seat in self.seats.iter().filter(|seat| seat.refused && changed) {
            for watched in &seat.watched {
                watched.reconsider().await;
            }
        }
        for (index, update, faults) in refused {
            self.seats[index].refused = true;
            update.responder.reject(faults);
        }
        Some(())
    }
}

/// What is offered as one.
struct Offer {
    source: Arc<str>,
    changes: Vec<Change>,
    faults: Vec<Fault>,
}

impl Offer {
    fn of<'a>(updates: impl IntoIterator<Item = &'a Update>) -> Self {
        let (mut names, mut changes, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for update in updates {
            names.push(&*update.source);
            changes.extend(update.changes.iter().cloned());
            faults.extend(update.faults.iter().cloned());
        }
        Self { source: names.join(", ").into(), changes, faults }
    }

    /// `None` if nobody takes updates any more.
    async fn send(self, updates: &mpsc::Sender<Update>) -> Option<Answer> {
        let (update, answer) = Update::new(self.source, self.changes, self.faults);
        updates.send(update).await.ok()?;
        answer.await.ok()
    }
}

impl From<&mut Update> for Offer {
    /// Takes it out of the update, which is left with its responder.
    fn from(update: &mut Update) -> Self {
        let source = update.source.clone();
        Self {
            source,
            changes: std::mem::take(&mut update.changes),
            faults: std::mem::take(&mut update.faults),
        }
    }
}

#[cfg(test)]
mod tests;
