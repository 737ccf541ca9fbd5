//! The sink's state machine.

mod answers;
mod cache;
mod pace;
mod pushes;
mod requests;
mod work;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use mixer_adapter_streams::{
    proto::istio::mcp::v1alpha1::{Metadata, RequestResources, Resources},
    stream::{
        RawChange,
        sink::{
            Closed, Mode, NackError, Output, ProposalId, ResourceError, SinkDecision, SinkMachine,
            SinkOptions, StreamId,
        },
    },
};
use tonic::{Code, Status};

use crate::mcp::messages::*;

const STREAM: StreamId = 1;

/// A sink without sockets: what it sends and asks piles up here.
struct Sink {
    machine: SinkMachine,
    now: Instant,
    sent: Vec<RequestResources>,
    changes: Vec<RawChange>,
    /// The last proposal of each collection.
    proposals: BTreeMap<String, ProposalId>,
    ended: Vec<(StreamId, Status)>,
    accepted: usize,
}

impl Sink {
    fn of(collections: &[&str]) -> Self {
        Self::with(collections, |_| {})
    }

    fn with(collections: &[&str], options: impl FnOnce(&mut SinkOptions)) -> Self {
        let mut all = SinkOptions::new("sink", collections.iter().copied());
        options(&mut all);
        Self {
            machine: SinkMachine::new(all),
            now: Instant::now(),
            sent: vec![],
            changes: vec![],
            proposals: BTreeMap::new(),
            ended: vec![],
            accepted: 0,
        }
    }

    /// One that has opened a stream and asked for everything.
    fn open(mut self) -> Self {
        self.reopen(STREAM);
        self
    }

    fn reopen(&mut self, id: StreamId) -> Vec<RequestResources> {
        self.machine.opened(id, self.now);
        self.run();
        std::mem::take(&mut self.sent)
    }

    fn run(&mut self) {
        while let Some(output) = self.machine.poll(self.now) {
            match output {
                Output::Send(_, request) => self.sent.push(request),
                Output::Decide(id, change) => {
                    self.proposals.insert(change.collection.to_string(), id);
                    self.changes.push(change);
                }
                Output::End(id, status) => self.ended.push((id, status)),
                Output::Accepted { .. } => self.accepted += 1,
            }
        }
    }

    fn receive(&mut self, push: Resources) {
        self.machine.received(STREAM, push, self.now);
        self.run();
    }

    fn decide(&mut self, collection: &str, verdict: Result<(), NackError>) {
        self.settle(collection, verdict.map_or_else(SinkDecision::Refused, |()| SinkDecision::Live));
    }

    fn settle(&mut self, collection: &str, decision: SinkDecision) {
        self.machine.decided(collection, self.proposals[collection], decision, self.now);
        self.run();
    }

    /// A push that the application accepts if it is asked; returns the one answer to it.
    fn accept(&mut self, push: Resources) -> RequestResources {
        let collection = push.collection.clone();
        let asked = self.changes.len();
        self.receive(push);
        if self.changes.len() > asked {
            self.decide(&collection, Ok(()));
        }
        self.answer()
    }

    fn answer(&mut self) -> RequestResources {
        assert_eq!(self.sent.len(), 1, "{:?}", self.sent);
        self.sent.remove(0)
    }

    fn held(&self, collection: &str) -> Vec<String> {
        let view = self.machine.collection(collection).unwrap();
        view.resources().map(|r| format!("{}@{}", r.name, r.version)).collect()
    }

    fn sleep(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.run();
    }

    fn close(&mut self, status: Status) -> Closed {
        self.machine.closed(STREAM, Some(&status), self.now)
    }
}

fn full(mode: &mut SinkOptions) {
    mode.mode = Mode::Full;
}

fn error(request: &RequestResources) -> (i32, &str) {
    let error = request.error_detail.as_ref().unwrap();
    (error.code, &error.message)
}

fn of_change(change: &RawChange) -> (bool, Vec<String>, Vec<String>) {
    let changed = change.resources.iter().map(|r| format!("{}@{}", r.name, r.version)).collect();
    (change.full, changed, change.removed.clone())
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn whole(reason: &str) -> NackError {
    NackError::whole(reason)
}

fn fault(resource: &str, reason: &str) -> NackError {
    NackError { reasons: vec![ResourceError { resource: resource.to_owned(), text: reason.to_owned() }] }
}
