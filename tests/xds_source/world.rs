//! A server with one stream, without sockets.

use mixer_adapter_config::{
    proto::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    },
    stream::source::{Catalogue, Meaning},
    xds::source::{DeltaStream, SotwStream},
};

use crate::messages::*;

pub(crate) fn catalogue() -> Catalogue {
    Catalogue::default().open()
}

pub(crate) struct Sotw {
    pub(crate) catalogue: Catalogue,
    pub(crate) stream: SotwStream,
}

impl Sotw {
    pub(crate) fn new() -> Self {
        Self { catalogue: catalogue(), stream: SotwStream::new(None) }
    }

    /// The same server with another stream.
    pub(crate) fn reconnect(&mut self) {
        self.stream = SotwStream::new(None);
    }

    pub(crate) fn set(&mut self, type_url: &str, texts: &str) {
        self.catalogue.apply(&all(type_url, texts));
    }

    pub(crate) fn request(&mut self, request: DiscoveryRequest) -> Meaning {
        self.stream.requested(request).unwrap()
    }

    pub(crate) fn ask(&mut self, type_url: &str, names: &str) {
        assert_eq!(self.request(ask(type_url, names)), Meaning::Requested);
    }

    pub(crate) fn ack(&mut self, push: &DiscoveryResponse, names: &str) {
        assert_eq!(self.request(ack(push, names)), Meaning::Accepted);
    }

    pub(crate) fn next(&mut self) -> Option<DiscoveryResponse> {
        self.stream.next(&self.catalogue)
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
    pub(crate) stream: DeltaStream,
}

impl Delta {
    pub(crate) fn new() -> Self {
        Self { catalogue: catalogue(), stream: DeltaStream::new(None) }
    }

    /// The same server with another stream.
    pub(crate) fn reconnect(&mut self) {
        self.stream = DeltaStream::new(None);
    }

    pub(crate) fn set(&mut self, type_url: &str, texts: &str) {
        self.catalogue.apply(&all(type_url, texts));
    }

    pub(crate) fn request(&mut self, request: DeltaDiscoveryRequest) -> Meaning {
        self.stream.requested(request).unwrap()
    }

    pub(crate) fn subscribe(&mut self, type_url: &str, more: &str, less: &str) {
        assert_eq!(self.request(subscribe(type_url, more, less)), Meaning::Requested);
    }

    pub(crate) fn next(&mut self) -> Option<DeltaDiscoveryResponse> {
        self.stream.next(&self.catalogue)
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
