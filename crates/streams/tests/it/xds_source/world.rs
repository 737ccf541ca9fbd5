//! A server with one stream, without sockets. The rules of `watch --certify` hold for all that it sends, and those of `source --certify`
//! record what its client breaks.

use std::time::Instant;

use mixer_adapter_streams::{
    certify::{ClientRules, Protocol, ServerRules, Violation},
    proto::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    },
    stream::{
        Shorthand, Summarize as _,
        sink::Variant,
        source::{Catalogue, Meaning},
    },
    xds::{
        sink::ApiVersion,
        source::{DeltaStream, SotwStream},
    },
};

use super::messages::*;

pub(crate) fn catalogue() -> Catalogue {
    Catalogue::default().open()
}

/// The rules of both ends of a stream.
struct Rules {
    server: ServerRules,
    client: ClientRules,
    /// What the client has broken, on all streams.
    broken: Vec<Violation>,
}

impl Rules {
    fn new(variant: Variant) -> Self {
        let server = ServerRules::new(Protocol::Xds(ApiVersion::V3, variant));
        Self { server, client: ClientRules::default(), broken: Vec::new() }
    }

    fn reconnect(&mut self, variant: Variant) {
        let broken = std::mem::take(&mut self.broken);
        *self = Self { broken, ..Self::new(variant) };
    }

    fn requested(&mut self, request: &Shorthand) {
        self.server.sent(request);
        self.broken.extend(self.client.received(request, &request.type_url));
    }

    /// The bodies of the test have no names, their texts do.
    fn pushed(&mut self, mut response: Shorthand, texts: &str) {
        let changed = texts.split(" - ").next().unwrap_or_default().split_whitespace();
        response.names = changed.map(|text| text.split('@').next().unwrap_or_default().to_owned()).collect();
        assert_eq!(self.server.received(&response), []);
        self.client.sent(&response);
    }
}

pub(crate) struct Sotw {
    pub(crate) catalogue: Catalogue,
    stream: SotwStream,
    rules: Rules,
}

impl Sotw {
    pub(crate) fn new() -> Self {
        let rules = Rules::new(Variant::Sotw);
        Self { catalogue: catalogue(), stream: SotwStream::new(None), rules }
    }

    /// What its client has broken.
    pub(crate) fn broken(&self) -> &[Violation] {
        &self.rules.broken
    }

    /// The same server with another stream.
    pub(crate) fn reconnect(&mut self) {
        self.stream = SotwStream::new(None);
        self.rules.reconnect(Variant::Sotw);
    }

    pub(crate) fn set(&mut self, type_url: &str, texts: &str) {
        self.catalogue.apply(&all(type_url, texts));
    }

    pub(crate) fn request(&mut self, request: DiscoveryRequest) -> Meaning {
        self.rules.requested(&request.shorthand());
        self.stream.requested(request).unwrap()
    }

    pub(crate) fn ask(&mut self, type_url: &str, names: &str) {
        assert_eq!(self.request(ask(type_url, names)), Meaning::Requested);
    }

    pub(crate) fn ack(&mut self, push: &DiscoveryResponse, names: &str) {
        assert_eq!(self.request(ack(push, names)), Meaning::Accepted);
    }

    /// Passes the time to the stream, as its driver does, and returns when it wants that again.
    pub(crate) fn elapsed(&mut self, now: Instant) -> Option<Instant> {
        self.stream.elapsed(now);
        self.stream.wakeup()
    }

    pub(crate) fn next(&mut self) -> Option<DiscoveryResponse> {
        let push = self.stream.next(&self.catalogue)?;
        self.rules.pushed(push.shorthand(), &texts(&push));
        Some(push)
    }

    /// The next push, which is of that type and has these resources.
    pub(crate) fn pushes(&mut self, type_url: &str, expected: &str) -> DiscoveryResponse {
        let push = self.next().unwrap_or_else(|| panic!("{expected:?} is not pushed"));
        assert_eq!((&*push.type_url, &*texts(&push)), (type_url, expected));
        push
    }

    /// The same, accepted.
    pub(crate) fn pushes_well(&mut self, type_url: &str, expected: &str, names: &str) -> DiscoveryResponse {
        let push = self.pushes(type_url, expected);
        self.ack(&push, names);
        push
    }

    pub(crate) fn rests(&mut self) {
        assert_eq!(self.next(), None);
    }
}

pub(crate) struct Delta {
    pub(crate) catalogue: Catalogue,
    stream: DeltaStream,
    rules: Rules,
}

impl Delta {
    pub(crate) fn new() -> Self {
        let rules = Rules::new(Variant::Delta);
        Self { catalogue: catalogue(), stream: DeltaStream::new(None), rules }
    }

    /// What its client has broken.
    pub(crate) fn broken(&self) -> &[Violation] {
        &self.rules.broken
    }

    /// The same server with another stream.
    pub(crate) fn reconnect(&mut self) {
        self.stream = DeltaStream::new(None);
        self.rules.reconnect(Variant::Delta);
    }

    pub(crate) fn set(&mut self, type_url: &str, texts: &str) {
        self.catalogue.apply(&all(type_url, texts));
    }

    pub(crate) fn request(&mut self, request: DeltaDiscoveryRequest) -> Meaning {
        self.rules.requested(&request.shorthand());
        self.stream.requested(request).unwrap()
    }

    pub(crate) fn subscribe(&mut self, type_url: &str, more: &str, less: &str) {
        assert_eq!(self.request(subscribe(type_url, more, less)), Meaning::Requested);
    }

    pub(crate) fn next(&mut self) -> Option<DeltaDiscoveryResponse> {
        let push = self.stream.next(&self.catalogue)?;
        self.rules.pushed(push.shorthand(), &changes(&push));
        Some(push)
    }

    /// The next push, which is of that type and has these resources, and after a `-` these removals.
    pub(crate) fn pushes(&mut self, type_url: &str, expected: &str) -> DeltaDiscoveryResponse {
        let push = self.next().unwrap_or_else(|| panic!("{expected:?} is not pushed"));
        assert_eq!((&*push.type_url, &*changes(&push)), (type_url, expected));
        push
    }

    /// The same, accepted.
    pub(crate) fn pushes_well(&mut self, type_url: &str, expected: &str) -> DeltaDiscoveryResponse {
        let push = self.pushes(type_url, expected);
        assert_eq!(self.request(accepted(&push)), Meaning::Accepted);
        push
    }

    pub(crate) fn rests(&mut self) {
        assert_eq!(self.next(), None);
    }
}
