//! What a sink makes of a push: whom it asks, and what it answers.

use std::{sync::Arc, time::Instant};

use tonic::{Code, Status};

use super::{
    Machine, Mode, Nack, Output, StreamId,
    collection::{Collection, Origin, Proposal, Refused},
    push::Push,
    request::{nack_request, request},
    stream::Base,
};
use crate::proto::istio::mcp::v1alpha1::RequestResources;

impl Machine {
    /// Looks at the pushes that wait, up to the first that the application has to decide on.
    pub(super) fn process(&mut self, name: &Arc<str>, now: Instant) {
        while let Some((id, push)) = self.collections.get_mut(name).and_then(Collection::next) {
            self.process_push(name, id, Push::read(push), now);
        }
    }

    fn process_push(&mut self, name: &Arc<str>, id: StreamId, mut push: Push, now: Instant) {
        let origin = Origin::Push { stream: id, nonce: push.nonce.clone() };
        let version = push.version.clone();
        if !push.faults.is_empty() {
            let nack = Nack { reasons: std::mem::take(&mut push.faults) };
            if !self.options.skip_bad_resources {
                return self.refuse(name, origin, version, nack, now);
            }
            self.log_skipped(name, &version, &nack);
        }
        let Some(collection) = self.collections.get(name) else { return };
        if push.incremental && !self.is_based(collection, id) {
            let text = "the push is incremental, but not based on what the sink has";
            // Where there are only increments it is nobody's fault: the one before was refused.
            if self.options.mode != Mode::Delta {
                self.refuse(name, origin, version, Nack::whole(text), now);
            }
            // The next stream begins with the whole state; on this one it would come only when the version moves.
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.end(Status::failed_precondition(format!("{name}: {text}")));
            }
            return;
        }
        let proposal = Proposal {
            origin,
            version,
            incremental: push.incremental,
            difference: collection.held.compare(push),
            context: self.context,
            skipped: false,
        };
        if collection.accepted && proposal.difference.is_empty() {
            self.accept(name, proposal, now);
        } else {
            self.propose(name, proposal);
        }
    }

    /// Whether increments on a stream start from what is held.
    fn is_based(&self, collection: &Collection, id: StreamId) -> bool {
        let base = self.streams.get(&id).map_or(Base::Unsure, |stream| stream.base(&collection.name));
        match base {
            Base::Nothing => collection.held.is_empty(),
            Base::Generation(generation) => collection.held.generation() == generation,
            Base::Unsure => false,
        }
    }

    pub(super) fn propose(&mut self, name: &Arc<str>, proposal: Proposal) {
        if let Some(collection) = self.collections.get_mut(name) {
            let change = collection.propose(proposal);
            self.outputs.push_back(Output::Decide(change));
        }
    }

    pub(super) fn accept(&mut self, name: &Arc<str>, proposal: Proposal, now: Instant) {
        let Some(collection) = self.collections.get_mut(name) else { return };
        let changed = !proposal.difference.is_empty();
        // That a collection is empty is news, too: a cache has to know.
        let news = changed || !collection.accepted;
        let answer = match &proposal.origin {
            Origin::Push { stream, nonce } => Some((*stream, nonce.clone())),
            Origin::Cache => None,
        };
        // What it changed itself is not another context.
        let alone = proposal.context == self.context;
        collection.accept(proposal);
        self.context += u64::from(changed);
        collection.refused_in = collection.refused_in.map(|before| if alone { self.context } else { before });
        self.outputs.push_back(Output::Accepted { collection: name.clone(), news });
        let generation = collection.held.generation();
        // With several sources, increments of one are not based on what another pushed.
        let incremental = self.options.mode != Mode::Full && self.streams.len() == 1;
        let stream = answer.and_then(|(id, nonce)| Some((self.streams.get_mut(&id)?, nonce)));
        let Some((stream, nonce)) = stream else { return };
        stream.mark_accepted();
        stream.set_base(name, Base::Generation(generation));
        let ack = RequestResources { response_nonce: nonce, incremental, ..request(&self.node, name) };
        if changed { stream.enqueue_request(name, ack, now) } else { stream.enqueue_idle(name, ack, now) }
    }

    /// Something changed of what the application decides by, elsewhere.
    pub fn reconsider(&mut self, now: Instant) {
        self.context += 1;
        self.request_refused(now);
    }

    /// Asks again for what the application refused before something else changed: now it may think otherwise, as when a rule came
    /// before its handler. The source would not send it again by itself.
    pub(super) fn request_refused(&mut self, now: Instant) {
        let context = self.context;
        let refused =
            |c: &&mut Collection| c.deciding.is_none() && c.refused_in.is_some_and(|before| before < context);
        for collection in self.collections.values_mut().filter(refused) {
            collection.refused_in = None;
            for stream in self.streams.values_mut() {
                if self.options.mode == Mode::Delta {
                    stream.end(Status::aborted(format!(
                        "{} was refused before other configuration came, and is asked for again",
                        collection.name
                    )));
                    continue;
                }
                // Should a push be under way, this will be taken for an acknowledgement of it.
                stream.set_base(&collection.name, Base::Unsure);
                stream.enqueue_idle(&collection.name, request(&self.node, &collection.name), now);
            }
        }
    }

    pub(super) fn refuse(
        &mut self,
        name: &Arc<str>,
        origin: Origin,
        version: String,
        nack: Nack,
        now: Instant,
    ) {
        let Some(collection) = self.collections.get_mut(name) else { return };
        let text = format!("{name}: {nack}");
        let refused = Some(Refused { version, nack });
        // Logged once, not on every retry.
        if collection.refused != refused {
            tracing::warn!(
                version = refused.as_ref().map(|r| &*r.version),
                "configuration is refused: {text}"
            );
            collection.refused = refused;
        }
        if let Origin::Push { stream, nonce } = origin
            && let Some(stream) = self.streams.get_mut(&stream)
        {
            if self.options.mode == Mode::Delta {
                stream.set_base(name, Base::Unsure);
            }
            // Without `incremental`: what comes next is to be whole.
            let refusal = nack_request(request(&self.node, name), nonce, Code::InvalidArgument, text);
            stream.enqueue_idle(name, refusal, now);
        }
    }

    /// Takes what was refused out of a change, if bad resources are skipped and all that was refused are such.
    pub(super) fn skip_bad(&mut self, name: &Arc<str>, proposal: &mut Proposal, nack: &Nack) -> bool {
        let skip = self.options.skip_bad_resources
            && !nack.reasons.is_empty()
            && nack.reasons.iter().all(|reason| proposal.difference.names(&reason.resource));
        if skip {
            self.log_skipped(name, &proposal.version, nack);
            proposal.skipped = true;
            proposal.difference.skip(|name| nack.reasons.iter().any(|reason| reason.resource == name));
        }
        skip
    }

    /// Logs skipped resources once, not with every push that contains them.
    fn log_skipped(&mut self, name: &Arc<str>, version: &str, nack: &Nack) {
        let Some(collection) = self.collections.get_mut(name) else { return };
        if collection.skipped.as_ref() != Some(nack) {
            tracing::warn!(collection = &**name, version, %nack, "bad resources skipped");
            collection.skipped = Some(nack.clone());
        }
    }
}
