use std::{collections::VecDeque, sync::Arc, time::Instant};

use super::{
    NackError, StreamId,
    deadlines::Deadlines,
    held::{Difference, Held},
};
use crate::{proto::istio::mcp::v1alpha1::Resources, stream::RawChange};

/// How many pushes of one stream may wait for the application to decide on the one before. Sources that wait for answers, as
/// they should, have one under way.
const WAITING: usize = 8;

/// What a sink knows of one collection. It outlives streams.
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) name: Arc<str>,
    pub(super) required: bool,
    /// What was offered to the application: what the source has, as far as it could be read. Pushes are compared with it.
    pub(super) offered: Held,
    /// What became of that; `None` before the first decision.
    pub(super) outcome: Option<Outcome>,
    /// What is in use.
    pub(super) live: Held,
    /// Whether a source has pushed it, rather than only the cache.
    pub(super) synced: bool,
    /// What the application decides on.
    pub(super) deciding: Option<Proposal>,
    /// The last proposal.
    proposed: ProposalId,
    /// The last proposal that the application keeps, whatever it decided.
    pub(super) kept: ProposalId,
    waiting: VecDeque<Waiting>,
    /// What was refused last, unless something was accepted since.
    pub(super) refused: Option<Refused>,
    /// The resources skipped last, in a push that was accepted otherwise.
    pub(super) skipped: Option<NackError>,
    /// Since when the source is known not to serve it.
    pub(super) unsupported: Option<Instant>,
    /// When resources are to be removed that are not renewed.
    pub(super) deadlines: Deadlines,
}

/// A push that waits for the application to decide on the one before.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) stream: StreamId,
    pub(super) push: Resources,
    /// The nonces of full pushes that it replaces.
    pub(super) replaced: Vec<String>,
}

/// A change that is offered to the application.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) id: ProposalId,
    pub(super) origin: Origin,
    pub(super) version: String,
    pub(super) difference: Difference,
}

/// Identifies a proposal among those of its collection.
pub type ProposalId = u64;

/// Where a change comes from, and so which pushes are answered.
#[derive(Debug)]
pub(super) enum Origin {
    /// The cache, or the fact that the source does not serve the collection.
    Sink,
    Push {
        stream: StreamId,
        nonces: Vec<String>,
    },
}

/// What became of the state that was offered last.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Live,
    Pending,
    Refused(NackError),
}

/// A push that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) version: String,
    pub(super) nack: NackError,
}

impl Collection {
    pub(super) fn new(name: Arc<str>, required: bool) -> Self {
        Self {
            name,
            required,
            offered: Held::default(),
            outcome: None,
            live: Held::default(),
            synced: false,
            deciding: None,
            proposed: 0,
            kept: 0,
            waiting: VecDeque::new(),
            refused: None,
            skipped: None,
            unsupported: None,
            deadlines: Deadlines::default(),
        }
    }

    /// Appends a push to the queue. A full push replaces earlier ones of the same stream. Returns `false` if too many
    /// wait.
    pub(super) fn enqueue(&mut self, stream: StreamId, push: Resources) -> bool {
        let mut replaced = Vec::new();
        if !push.incremental {
            self.waiting.retain_mut(|other| {
                if other.stream == stream {
                    replaced.append(&mut other.replaced);
                    replaced.push(std::mem::take(&mut other.push.nonce));
                }
                other.stream != stream
            });
            replaced.retain(|nonce| *nonce != push.nonce);
        }
        let waiting = self.waiting.iter().filter(|other| other.stream == stream).count();
        if waiting < WAITING {
            self.waiting.push_back(Waiting { stream, push, replaced });
        }
        waiting < WAITING
    }

    /// Whether the application decides on it, or will.
    pub(super) fn is_busy(&self) -> bool {
        self.deciding.is_some() || !self.waiting.is_empty()
    }

    /// The next push to process, if nothing is being decided.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        if self.deciding.is_some() { None } else { self.waiting.pop_front() }
    }

    /// Offers a change to the application.
    pub(super) fn propose(
        &mut self,
        origin: Origin,
        version: String,
        difference: Difference,
    ) -> (ProposalId, RawChange) {
        let change = RawChange {
            collection: self.name.clone(),
            version: version.clone(),
            full: self.outcome.is_none(),
            resources: difference.changed.clone(),
            removed: difference.removed.clone(),
        };
        self.proposed += 1;
        let id = self.proposed;
        self.deciding = Some(Proposal { id, origin, version, difference });
        (id, change)
    }

    /// Records what became of the state that was offered.
    pub(super) fn settle(&mut self, outcome: Outcome) {
        match &outcome {
            Outcome::Live => {
                self.refused = None;
                self.live = self.offered.clone();
            }
            Outcome::Pending => self.refused = None,
            Outcome::Refused(nack) => {
                let version = self.offered.version().to_owned();
                self.refused = Some(Refused { version, nack: nack.clone() });
            }
        }
        self.outcome = Some(outcome);
    }
}
