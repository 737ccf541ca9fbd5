use std::{collections::VecDeque, sync::Arc, time::Instant};

use super::{
    Nack, StreamId,
    held::{Difference, Held},
};
use crate::{mcp::Change, proto::istio::mcp::v1alpha1::Resources};

/// How many pushes of one stream may wait for the application to decide on the one before. Sources that wait for answers, as
/// they should, have one under way.
const WAITING: usize = 8;

/// What a sink knows of one collection. It outlives streams.
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) name: Arc<str>,
    pub(super) required: bool,
    pub(super) held: Held,
    /// Whether the application accepted it ever; it may be empty all the same.
    pub(super) accepted: bool,
    /// Whether that was on a stream, rather than from the cache.
    pub(super) synced: bool,
    /// What the application is asked about.
    pub(super) deciding: Option<Proposal>,
    waiting: VecDeque<(StreamId, Resources)>,
    /// What was refused last, unless something was accepted since.
    pub(super) refused: Option<Refused>,
    /// The resources skipped last, in a push that was accepted otherwise.
    pub(super) skipped: Option<Nack>,
    /// Set if it was the application that refused that, or resources that were skipped: the [context](Proposal::context) it did so
    /// in. In another it might not.
    pub(super) refused_in: Option<u64>,
    /// Since when the source is known not to serve it.
    pub(super) unsupported: Option<Instant>,
}

/// A change the application is asked about.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) origin: Origin,
    pub(super) version: String,
    pub(super) incremental: bool,
    pub(super) difference: Difference,
    /// How many changes, of all collections, had been accepted when the application was first asked.
    pub(super) context: u64,
    /// Whether resources that the application refused were removed from it.
    pub(super) skipped: bool,
}

/// Where a change comes from, and so whom to answer.
#[derive(Debug)]
pub(super) enum Origin {
    Cache,
    Push { stream: StreamId, nonce: String },
}

/// A push that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) version: String,
    pub(super) nack: Nack,
}

impl Collection {
    pub(super) fn new(name: Arc<str>, required: bool) -> Self {
        Self {
            name,
            required,
            held: Held::default(),
            accepted: false,
            synced: false,
            deciding: None,
            waiting: VecDeque::new(),
            refused: None,
            skipped: None,
            refused_in: None,
            unsupported: None,
        }
    }

    /// Appends a push to the queue. A full push replaces earlier ones of the same stream. Returns `false` if too many
    /// wait.
    pub(super) fn enqueue(&mut self, stream: StreamId, push: Resources) -> bool {
        if !push.incremental {
            self.waiting.retain(|(other, _)| *other != stream);
        }
        let waiting = self.waiting.iter().filter(|(other, _)| *other == stream).count();
        if waiting < WAITING {
            self.waiting.push_back((stream, push));
        }
        waiting < WAITING
    }

    /// The next push to look at, if nothing is being decided.
    pub(super) fn next(&mut self) -> Option<(StreamId, Resources)> {
        if self.deciding.is_some() { None } else { self.waiting.pop_front() }
    }

    /// Asks the application about a change.
    pub(super) fn propose(&mut self, proposal: Proposal) -> Change {
        let change = Change {
            collection: self.name.clone(),
            version: proposal.version.clone(),
            full: !self.accepted,
            resources: proposal.difference.changed.clone(),
            removed: proposal.difference.removed.clone(),
        };
        self.deciding = Some(proposal);
        change
    }

    /// The application accepted a change.
    pub(super) fn accept(&mut self, proposal: Proposal) {
        self.accepted = true;
        self.synced |= matches!(proposal.origin, Origin::Push { .. });
        self.refused = None;
        // An increment says nothing of what was refused before.
        if proposal.skipped || !proposal.incremental {
            self.refused_in = proposal.skipped.then_some(proposal.context);
        }
        self.held.apply(proposal.difference, proposal.version);
    }
}
