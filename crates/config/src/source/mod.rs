//! Where configuration comes from: one model for files, MCP and xDS.
//!
//! A [`Source`] sends [`Update`]s down a channel. An update holds changes that belong together, each of one collection, and is answered
//! as a whole: acknowledged once what it brought is in use, or rejected with the reasons, upon which the receiver keeps what it
//! has. A source sends one update and waits for the answer, so what changes meanwhile is sent once, in its newest state.

mod combined;
mod files;
mod settings;
mod shown;
mod status;
mod watch;

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc};

use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};

pub use combined::{Combined, Part};
pub use files::read;
pub use settings::{SourceSettings, Wanted};
pub use status::{CollectionStatus, Journal, Message, Refusal, SourceStatus, Watched, unix_time};
pub use watch::FileSource;

use super::{Collection, Fault, Resource, ResourceName};

/// Something that has configuration and says when it changes.
pub trait Source: Send {
    /// What it is, for people: `fs:///etc/mixer`.
    fn name(&self) -> String;

    /// What can be seen of it once it runs, and of those it is made of.
    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        Vec::new()
    }

    /// Sends updates, the whole state first, until nobody receives them any more. Never ends because of a fault: a source
    /// that has nothing to read says so in an update, and goes on looking.
    fn run(self: Box<Self>, updates: mpsc::Sender<Update>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Changes that belong together.
#[derive(Debug)]
pub struct Update {
    /// The [name](Source::name) of the source.
    pub source: Arc<str>,
    /// The changes, of different collections.
    pub changes: Vec<Change>,
    /// What the source has but cannot be read; errors among them are a reason to reject the update, unless what is broken
    /// may be left out.
    pub faults: Vec<Fault>,
    /// Takes the answer.
    pub responder: Responder,
}

impl Update {
    /// An update, and where its answer will arrive: an error there means that the receiver is gone.
    pub fn new(
        source: Arc<str>,
        changes: Vec<Change>,
        faults: Vec<Fault>,
    ) -> (Self, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        (Self { source, changes, faults, responder: Responder(answer) }, answered)
    }
}

/// A change of one collection.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The collection.
    pub collection: Collection,
    /// What the source calls the collection's state after the change; the same state has the same version.
    pub version: String,
    /// What changed.
    pub content: Content,
}

/// What changed in a collection.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// This is all there is now; none deletes everything.
    Full(Vec<Resource>),
    /// Some came or changed, some went; to remove what is not there is fine.
    Partial {
        /// Those that are new or different.
        added: Vec<Resource>,
        /// Those that are gone.
        removed: Vec<ResourceName>,
    },
}

impl Change {
    /// A change whose version is a digest of what it brings.
    pub fn new(collection: Collection, content: Content) -> Self {
        let version = match &content {
            Content::Full(resources) | Content::Partial { added: resources, .. } => version(resources),
        };
        Self { collection, version, content }
    }

    /// Full changes of the collections these resources belong to, and of Mixer's own also where they have none.
    pub fn full_sets(resources: Vec<Resource>) -> Vec<Self> {
        let mut sets: BTreeMap<Collection, Vec<Resource>> =
            Collection::mixer().map(|collection| (collection, Vec::new())).collect();
        for resource in resources {
            sets.entry(resource.collection.clone()).or_default().push(resource);
        }
        sets.into_iter()
            .map(|(collection, resources)| Self::new(collection, Content::Full(resources)))
            .collect()
    }
}

/// A digest of what resources say, in their order.
fn version(resources: &[Resource]) -> String {
    let mut digest = Sha256::new();
    for resource in resources {
        let content = (&resource.labels, &resource.annotations, &resource.spec);
        digest.update(resource.name.to_string());
        // Writing to a digest cannot fail.
        let _ = serde_json::to_writer(&mut digest, &content);
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// What a receiver says to an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is in use.
    Applied,
    /// It is not used, for these reasons.
    Rejected(Vec<Fault>),
}

/// Answers an update, once.
#[derive(Debug)]
pub struct Responder(oneshot::Sender<Answer>);

impl Responder {
    /// The update is in use.
    pub fn ack(self) {
        // A source that is gone needs no answer.
        let _ = self.0.send(Answer::Applied);
    }

    /// The update is not used.
    pub fn reject(self, faults: Vec<Fault>) {
        let _ = self.0.send(Answer::Rejected(faults));
    }
}
