//! A sink and one dialect of xDS, without sockets: what it sends and asks piles up.

use std::time::{Duration, Instant};

use mixer_adapter_streams::proto::envoy::config::core::v3::Node;
use mixer_adapter_streams::{
    stream::{
        RawChange,
        sink::{
            Dialect, Mode, NackError, Output, ProposalId, ResourceError, SinkDecision, SinkMachine,
            SinkOptions,
        },
    },
    xds::sink::{Versions, node},
};
use tonic::Status;

use super::messages::Shape;

pub(crate) fn somebody() -> Node {
    node("pod", "ns", Vec::new())
}

pub(crate) struct Client<D: Dialect> {
    pub(crate) machine: SinkMachine,
    pub(crate) now: Instant,
    pub(crate) ended: Vec<Status>,
    new: fn(Node, Versions) -> D,
    versions: Versions,
    dialect: D,
    stream: u64,
    sent: Vec<D::Request>,
    asked: Vec<(ProposalId, RawChange)>,
}

impl<D: Dialect> Client<D>
where
    D::Request: Shape,
{
    /// One with a stream.
    pub(crate) fn open(new: fn(Node, Versions) -> D, options: SinkOptions) -> Self {
        let versions = Versions::default();
        let mut client = Self {
            machine: SinkMachine::new(options),
            now: Instant::now(),
            ended: vec![],
            new,
            dialect: new(somebody(), versions.clone()),
            versions,
            stream: 0,
            sent: vec![],
            asked: vec![],
        };
        client.reopen();
        client
    }

    /// The stream is lost, and there is another one.
    pub(crate) fn reopen(&mut self) {
        self.machine.closed(self.stream, None, self.now);
        self.stream += 1;
        self.dialect = (self.new)(somebody(), self.versions.clone());
        self.sent.clear();
        self.machine.opened(self.stream, self.now);
        self.run();
    }

    fn run(&mut self) {
        while let Some(output) = self.machine.poll(self.now) {
            match output {
                Output::Send(_, request) => self.sent.extend(self.dialect.on_request(request)),
                Output::Decide(id, change) => self.asked.push((id, change)),
                Output::End(id, status) => {
                    self.machine.closed(id, None, self.now);
                    self.ended.push(status);
                }
                Output::Accepted { .. } => {}
            }
        }
    }

    pub(crate) fn receive(&mut self, response: D::Response) {
        let heard = self.dialect.on_response(response);
        self.sent.extend(heard.replies);
        if let Some(push) = heard.push {
            self.machine.received(self.stream, push, self.now);
        }
        if let Some((collection, lifetimes)) = heard.lifetimes {
            self.machine.renewed(&collection, lifetimes);
        }
        self.run();
    }

    /// The requests sent since the last call.
    pub(crate) fn sent(&mut self) -> Vec<String> {
        std::mem::take(&mut self.sent).iter().map(Shape::shape).collect()
    }

    /// The changes asked about since the last call, all of them accepted: `=` or `+`, names with versions, `-` names removed.
    pub(crate) fn accept(&mut self) -> Vec<String> {
        self.decide(SinkDecision::Live)
    }

    pub(crate) fn refuse(&mut self, resource: &str, reason: &str) -> Vec<String> {
        let reason = ResourceError { resource: resource.to_owned(), text: reason.to_owned() };
        self.decide(SinkDecision::Refused(NackError { reasons: vec![reason] }))
    }

    fn decide(&mut self, decision: SinkDecision) -> Vec<String> {
        let asked = std::mem::take(&mut self.asked);
        let shapes = asked.iter().map(|(_, change)| shape(change)).collect();
        for (id, change) in asked {
            self.machine.decided(&change.collection, id, decision.clone(), self.now);
            self.run();
        }
        shapes
    }

    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
        self.run();
    }

    pub(crate) fn holds(&self, collection: &str) -> Vec<String> {
        let view = self.machine.collection(collection).unwrap();
        view.resources().map(|resource| format!("{}@{}", resource.name, resource.version)).collect()
    }
}

fn shape(change: &RawChange) -> String {
    let named = change.resources.iter().map(|resource| format!(" {}@{}", resource.name, resource.version));
    let removed = change.removed.iter().map(|name| format!(" -{name}"));
    let sign = if change.full { "=" } else { "+" };
    format!("{} {sign}{}", change.collection, named.chain(removed).collect::<String>())
}

pub(crate) fn options(mode: Mode, collections: &[&str]) -> SinkOptions {
    SinkOptions::new("sink", collections.iter().copied()).mode(mode)
}
