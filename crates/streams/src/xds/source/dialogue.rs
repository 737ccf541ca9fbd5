use std::time::Instant;

use prost::Message;
use tonic::Status;

use super::{
    stream::{Request, XdsStream},
    types::Push,
};
use crate::stream::{
    shorthand::Summarize,
    source::{
        catalogue::Catalogue,
        dialogue::{Dialogue, Event, Meaning},
        pushed::Pushed,
    },
};

/// One stream of xDS with the requests and responses of its variant.
#[derive(Debug)]
pub struct DiscoveryStream<Q, P> {
    stream: XdsStream,
    read: fn(Q) -> Request,
    /// Makes the message of a push; the flag says whether resources have a time to live.
    write: fn(Push, bool) -> Pushed<P>,
}

impl<Q, P: Message> DiscoveryStream<Q, P> {
    pub(super) fn over(
        stream: XdsStream,
        read: fn(Q) -> Request,
        write: fn(Push, bool) -> Pushed<P>,
    ) -> Self {
        Self { stream, read, write }
    }

    /// Handles a request. An error ends the stream.
    pub fn requested(&mut self, request: Q) -> Result<Meaning, Status> {
        self.stream.requested((self.read)(request), None).map(|event| event.meaning)
    }

    /// Returns the time of the next call of [`elapsed`](Self::elapsed): resources with a time to live are renewed by
    /// heartbeats.
    pub fn wakeup(&self) -> Option<Instant> {
        self.stream.wakeup()
    }

    /// Handles the passing of that time.
    pub fn elapsed(&mut self, now: Instant) {
        self.stream.elapsed(now);
    }

    /// Returns the next push, if one is due.
    pub fn next(&mut self, catalogue: &Catalogue) -> Option<P> {
        self.next_push(catalogue)?.into_message().ok()
    }

    fn next_push(&mut self, catalogue: &Catalogue) -> Option<Pushed<P>> {
        let push = self.stream.next(catalogue)?;
        Some((self.write)(push, self.stream.supports_ttl()))
    }
}

impl<Q: Message + Summarize, P: Message + Summarize> Dialogue for DiscoveryStream<Q, P> {
    type Request = Q;
    type Push = P;

    fn on_request(&mut self, request: Q, catalogue: &Catalogue) -> Result<Event, Status> {
        self.stream.requested((self.read)(request), Some(catalogue))
    }

    fn names_size(&self) -> usize {
        self.stream.names_size()
    }

    fn wakeup(&self) -> Option<Instant> {
        self.stream.wakeup()
    }

    fn elapsed(&mut self, now: Instant) {
        self.stream.elapsed(now);
    }

    fn is_due(&mut self, catalogue: &Catalogue) -> bool {
        self.stream.is_due(catalogue)
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<Pushed<P>> {
        self.next_push(catalogue)
    }
}
