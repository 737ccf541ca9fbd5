use std::{collections::VecDeque, sync::Arc, time::Instant};

use super::{
    expiry::Expiry,
    held::{Difference, Held},
    nack::NackError,
    stream::StreamId,
};
use crate::{
    proto::istio::mcp::v1alpha1::Resources,
    stream::{raw_change::RawChange, raw_resource::RawResource},
};
use mixer_adapter_config::Decision;

/// The number of pushes of one stream that may wait for the application's decision on an earlier one. Correct sources
/// wait for answers, and have one unanswered push.
const WAITING: usize = 8;

/// The state of one collection. It outlives streams.
#[derive(Debug, Default)]
pub struct SinkCollection {
    pub(super) name: Arc<str>,
    pub(super) required: bool,
    /// The state that was offered to the application: the valid part of the source's state. Pushes are compared with
    /// it.
    pub(super) offered: Held,
    /// The decision on it, which is not [`Unreadable`](SinkDecision::Unreadable); `None` before the first.
    pub(super) outcome: Option<SinkDecision>,
    /// The state in use.
    pub(super) live: Held,
    /// Whether a source has pushed it, rather than only the cache.
    pub(super) synced: bool,
    /// The proposal that the application decides on.
    pub(super) deciding: Option<(ProposalId, Proposal)>,
    /// The last proposal.
    proposed: ProposalId,
    /// The last proposal that the application stores, whatever it decided.
    pub(super) kept: ProposalId,
    waiting: VecDeque<Waiting>,
    /// The last refused push, unless one was accepted since.
    pub(super) refused: Option<RefusedPush>,
    /// The resources skipped last, in a push that was accepted otherwise.
    pub(super) skipped: Option<NackError>,
    /// The time since which the source is known not to serve it.
    pub(super) unsupported: Option<Instant>,
    /// The expiry of resources that are not renewed.
    pub(super) expiry: Expiry,
}

/// A push that waits for the application's decision on an earlier one.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) stream: StreamId,
    pub(super) push: Resources,
    /// The nonces of full pushes that it replaces.
    pub(super) replaced: Vec<String>,
}

/// A change that the application decides on.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) origin: Origin,
    pub(super) version: String,
    pub(super) difference: Difference,
}

/// Identifies a proposal within its collection.
pub type ProposalId = u64;

/// The origin of a change, by which pushes are answered.
#[derive(Debug)]
pub(super) enum Origin {
    /// The cache, or the fact that the source does not serve the collection.
    Sink,
    Push {
        stream: StreamId,
        nonces: Vec<String>,
    },
}

/// A decision of the application on a proposal.
#[derive(Clone, Debug)]
pub enum SinkDecision {
    /// It is in use.
    Live,
    /// It is stored, and comes into use with other configuration.
    Pending,
    /// It is stored but not in use, for these reasons; the application retries it.
    Refused(NackError),
    /// It cannot be read, and is dropped.
    Unreadable(NackError),
}

impl SinkDecision {
    /// Translates a decision on a change of the collection.
    pub(super) fn new(collection: &str, decision: Decision) -> Self {
        match decision {
            Decision::Live => Self::Live,
            Decision::Pending => Self::Pending,
            Decision::Refused(faults) => Self::Refused(NackError::new(collection, &faults)),
            Decision::Unreadable(faults) => Self::Unreadable(NackError::new(collection, &faults)),
        }
    }
}

/// A push that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedPush {
    pub(super) version: String,
    pub(super) nack: NackError,
}

impl SinkCollection {
    pub(super) fn new(name: Arc<str>, required: bool) -> Self {
        Self { name, required, ..Self::default() }
    }

    /// Appends a push to the queue. A full push replaces earlier pushes of the same stream. Returns `false` if the
    /// queue is full.
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

    /// Returns whether the application is deciding on it, or has to.
    pub(super) fn is_busy(&self) -> bool {
        self.deciding.is_some() || !self.waiting.is_empty()
    }

    /// Returns the next push to process, if no decision is pending.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        if self.deciding.is_some() { None } else { self.waiting.pop_front() }
    }

    /// Offers a change to the application.
    pub(super) fn propose(&mut self, proposal: Proposal) -> (ProposalId, RawChange) {
        let change = RawChange {
            collection: self.name.clone(),
            version: proposal.version.clone(),
            full: self.outcome.is_none(),
            resources: proposal.difference.changed.clone(),
            removed: proposal.difference.removed.clone(),
        };
        self.proposed += 1;
        self.deciding = Some((self.proposed, proposal));
        (self.proposed, change)
    }

    /// Records the outcome of the offered state.
    pub(super) fn settle(&mut self, outcome: SinkDecision) {
        match &outcome {
            SinkDecision::Live => {
                self.refused = None;
                self.live = self.offered.clone();
            }
            SinkDecision::Pending => self.refused = None,
            SinkDecision::Refused(nack) | SinkDecision::Unreadable(nack) => {
                let version = self.offered.version().to_owned();
                self.refused = Some(RefusedPush { version, nack: nack.clone() });
            }
        }
        self.outcome = Some(outcome);
    }
}

impl SinkCollection {
    /// Returns its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns whether readiness waits for it.
    pub fn required(&self) -> bool {
        self.required
    }

    /// Returns its resources in use, in the order of names.
    pub fn resources(&self) -> impl ExactSizeIterator<Item = &Arc<RawResource>> {
        self.live.resources()
    }

    /// Returns the source's version of the state in use.
    pub fn version(&self) -> &str {
        self.live.version()
    }

    /// Returns the version that was acknowledged and waits for other configuration.
    pub fn pending(&self) -> Option<&str> {
        matches!(self.outcome, Some(SinkDecision::Pending)).then(|| self.offered.version())
    }

    /// Returns whether a push of it was accepted since the start.
    pub fn synced(&self) -> bool {
        self.synced
    }

    /// Returns whether the source refused to serve it.
    pub fn unsupported(&self) -> bool {
        self.unsupported.is_some()
    }

    /// Returns the version that was refused last and the reason, unless one was accepted since.
    pub fn refused(&self) -> Option<(&str, &NackError)> {
        self.refused.as_ref().map(|refused| (refused.version.as_str(), &refused.nack))
    }
}
