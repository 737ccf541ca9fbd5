//! Processes a push: its proposal to the application, and its answer.

use std::{sync::Arc, time::Instant};

use tonic::{Code, Status};

use super::{
    Mode,
    collection::{Origin, Proposal, ProposalId, RefusedPush, SinkCollection, SinkDecision, Waiting},
    held::Difference,
    machine::{Output, SinkMachine},
    nack::NackError,
    push::Push,
    request::{nack_request, request},
    stream::{Base, StreamId},
};
use crate::proto::istio::mcp::v1alpha1::RequestResources;

impl SinkMachine {
    /// Processes the queued pushes, up to the first that the application has to decide on.
    pub(super) fn process(&mut self, name: &Arc<str>, now: Instant) {
        while let Some(waiting) = self.collections.get_mut(name).and_then(SinkCollection::next) {
            self.process_push(name, waiting, now);
        }
    }

    fn process_push(&mut self, name: &Arc<str>, Waiting { stream, push, replaced }: Waiting, now: Instant) {
        let mut push = Push::read(push);
        let nonces: Vec<String> = replaced.into_iter().chain([push.nonce.clone()]).collect();
        let version = push.version.clone();
        if !push.faults.is_empty() {
            let nack = NackError { reasons: std::mem::take(&mut push.faults) };
            if !self.options.skip_bad_resources {
                return self.refuse(name, stream, nonces, RefusedPush { version, nack }, false, now);
            }
            self.log_skipped(name, &version, &nack);
        }
        let Some(collection) = self.collections.get(name) else { return };
        let Some(difference) = self.difference(collection, stream, push) else {
            let text = "the push is incremental, but not based on what the sink has";
            // With increments only, this is not a fault of the peer: the previous one was refused.
            if self.options.mode != Mode::Delta {
                let refused = RefusedPush { version, nack: NackError::whole(text) };
                self.refuse(name, stream, nonces, refused, false, now);
            }
            // The next stream begins with the whole state; on this one it would be sent only with a new version.
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.end(Status::failed_precondition(format!("{name}: {text}")));
            }
            return;
        };
        let outcome = collection.outcome.clone().filter(|_| difference.is_empty());
        let proposal = Proposal { origin: Origin::Push { stream, nonces }, version, difference };
        match outcome {
            Some(outcome) => self.settle(name, proposal, outcome, now),
            None => self.propose(name, proposal),
        }
    }

    /// Compares a push with the offered state; `None` if the push is based on an unknown state.
    fn difference(&self, collection: &SinkCollection, stream: StreamId, push: Push) -> Option<Difference> {
        let offered = &collection.offered;
        if !push.incremental {
            return Some(offered.compare(push));
        }
        match self.streams.get(&stream)?.base(&collection.name) {
            Base::Nothing => offered.is_empty().then(|| offered.compare(push)),
            Base::State(base) if base.generation() == offered.generation() => Some(offered.compare(push)),
            // A push of this stream was refused, or another stream has pushed the collection.
            Base::State(base) => {
                let mut state = base.clone();
                state.apply(base.compare(push), String::new());
                Some(offered.difference_to(&state))
            }
            Base::Unsure => None,
        }
    }

    pub(super) fn propose(&mut self, name: &Arc<str>, proposal: Proposal) {
        if let Some(collection) = self.collections.get_mut(name) {
            let (id, change) = collection.propose(proposal);
            self.outputs.push_back(Output::Decide(id, change));
        }
    }

    /// Handles a decision of the application on a proposal, the first or a later one.
    pub fn decided(&mut self, collection: &str, id: ProposalId, decision: SinkDecision, now: Instant) {
        let Some(collection) = self.collections.get_mut(collection) else { return };
        let name = collection.name.clone();
        let Some((_, proposal)) = collection.deciding.take_if(|(deciding, _)| *deciding == id) else {
            if collection.kept == id && !matches!(decision, SinkDecision::Unreadable(_)) {
                collection.settle(decision);
                self.output_accepted(&name, true);
            }
            return;
        };
        if let SinkDecision::Unreadable(nack) = decision {
            if let Origin::Push { stream, nonces } = proposal.origin {
                let refused = RefusedPush { version: proposal.version, nack };
                self.refuse(&name, stream, nonces, refused, false, now);
            }
        } else {
            collection.kept = id;
            self.settle(&name, proposal, decision, now);
        }
        self.process(&name, now);
    }

    /// Records the outcome of a change, and answers its pushes.
    fn settle(&mut self, name: &Arc<str>, proposal: Proposal, outcome: SinkDecision, now: Instant) {
        let Proposal { origin, version, difference } = proposal;
        let Some(collection) = self.collections.get_mut(name) else { return };
        let changed = !difference.is_empty();
        let before = collection.offered.generation();
        // An empty collection is news, too: a cache has to store it.
        let news = changed || collection.outcome.is_none();
        collection.offered.apply(difference, version.clone());
        if let SinkDecision::Refused(nack) = outcome.clone() {
            if let Origin::Push { stream, nonces } = origin {
                self.refuse(name, stream, nonces, RefusedPush { version, nack }, changed, now);
            }
            if let Some(collection) = self.collections.get_mut(name) {
                collection.settle(outcome);
            }
            return;
        }
        collection.settle(outcome);
        collection.synced |= matches!(origin, Origin::Push { .. });
        let base = Base::State(collection.offered.clone());
        self.output_accepted(name, news);
        let Origin::Push { stream, nonces } = origin else {
            // Expired resources do not return with the next change.
            for stream in self.streams.values_mut() {
                if matches!(stream.base(name), Base::State(held) if held.generation() == before) {
                    stream.set_base(name, base.clone());
                }
            }
            return;
        };
        // With several sources, increments of one are not based on the pushes of another.
        let incremental = self.options.mode != Mode::Full && self.streams.len() == 1;
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        stream.good = true;
        stream.set_base(name, base);
        for nonce in nonces {
            let ack = RequestResources { response_nonce: nonce, incremental, ..request(&self.node, name) };
            stream.answer(name, ack, changed, now);
        }
    }

    fn output_accepted(&mut self, name: &Arc<str>, news: bool) {
        let outcome = self.collections.get(name).and_then(|collection| collection.outcome.as_ref());
        if matches!(outcome, Some(SinkDecision::Live)) {
            self.outputs.push_back(Output::Accepted { collection: name.clone(), news });
        }
    }

    /// Refuses pushes. A refusal with a new reason or of other content is answered at once.
    fn refuse(
        &mut self,
        name: &Arc<str>,
        stream: StreamId,
        nonces: Vec<String>,
        refused: RefusedPush,
        changed: bool,
        now: Instant,
    ) {
        let Some(collection) = self.collections.get_mut(name) else { return };
        let text = format!("{name}: {}", refused.nack);
        let before = collection.refused.as_ref();
        let changed = changed || before.is_none_or(|before| before.nack != refused.nack);
        // Logged once, not on every retry.
        if before != Some(&refused) {
            tracing::warn!(version = refused.version, "push rejected: {text}");
            collection.refused = Some(refused);
        }
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        if self.options.mode == Mode::Delta {
            stream.set_base(name, Base::Unsure);
        }
        for nonce in nonces {
            // Without `incremental`: the next push has to be complete.
            let refusal = nack_request(request(&self.node, name), nonce, Code::InvalidArgument, &text);
            stream.answer(name, refusal, changed, now);
        }
    }

    /// Logs skipped resources once, not for every push that contains them.
    fn log_skipped(&mut self, name: &Arc<str>, version: &str, nack: &NackError) {
        let Some(collection) = self.collections.get_mut(name) else { return };
        if collection.skipped.as_ref() != Some(nack) {
            tracing::warn!(collection = &**name, version, %nack, "bad resources skipped");
            collection.skipped = Some(nack.clone());
        }
    }
}
