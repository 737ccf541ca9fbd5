//! The forms configuration travels in, between the two state machines: one unreliable connection, message by message.

use std::collections::{BTreeMap, VecDeque};

use mixer_adapter_streams::{
    mcp::source,
    proto::{
        envoy::service::discovery::v3::{
            DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        },
        istio::mcp::v1alpha1::{RequestResources, Resources},
    },
    stream::{
        sink::{Dialect, Received},
        source::Catalogue,
    },
    xds::{
        sink::{Delta, Sotw, Versions, node},
        source::{DeltaStream, SotwStream, fetch},
    },
};

/// A connection, of any variant.
pub(crate) trait Wire {
    /// The sink says that.
    fn send(&mut self, request: RequestResources);
    /// The source says what it has to.
    fn push(&mut self, catalogue: &Catalogue);
    /// One message arrives at the source, if any is on its way.
    fn to_source(&mut self, catalogue: &Catalogue) -> bool;
    /// One message arrives at the sink, if any is on its way, and may be for it.
    fn to_sink(&mut self) -> Option<Option<Resources>>;
}

/// The source's end of a stream.
trait Server {
    type Request;
    type Push;
    fn requested(&mut self, request: Self::Request, catalogue: &Catalogue);
    fn next(&mut self, catalogue: &Catalogue) -> Option<Self::Push>;
}

impl Server for source::McpStream {
    type Request = RequestResources;
    type Push = Resources;

    fn requested(&mut self, request: RequestResources, catalogue: &Catalogue) {
        source::McpStream::requested(self, request, catalogue).unwrap();
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<Resources> {
        source::McpStream::next(self, catalogue)
    }
}

impl Server for SotwStream {
    type Request = DiscoveryRequest;
    type Push = DiscoveryResponse;

    fn requested(&mut self, request: DiscoveryRequest, _: &Catalogue) {
        SotwStream::requested(self, request).unwrap();
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<DiscoveryResponse> {
        SotwStream::next(self, catalogue)
    }
}

impl Server for DeltaStream {
    type Request = DeltaDiscoveryRequest;
    type Push = DeltaDiscoveryResponse;

    fn requested(&mut self, request: DeltaDiscoveryRequest, _: &Catalogue) {
        DeltaStream::requested(self, request).unwrap();
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<DeltaDiscoveryResponse> {
        DeltaStream::next(self, catalogue)
    }
}

/// A server of REST, asked again only after it has answered.
#[derive(Default)]
struct Rest(BTreeMap<String, DiscoveryRequest>);

impl Server for Rest {
    type Request = DiscoveryRequest;
    type Push = DiscoveryResponse;

    fn requested(&mut self, request: DiscoveryRequest, _: &Catalogue) {
        self.0.insert(request.type_url.clone(), request);
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<DiscoveryResponse> {
        let answered = self.0.values().find_map(|request| fetch(catalogue, request).unwrap())?;
        self.0.remove(&answered.type_url);
        Some(answered)
    }
}

/// MCP itself.
struct Plain;

impl Dialect for Plain {
    type Request = RequestResources;
    type Response = Resources;

    fn on_request(&mut self, request: RequestResources) -> Vec<RequestResources> {
        vec![request]
    }

    fn on_response(&mut self, push: Resources) -> Received<RequestResources> {
        Received::push(push)
    }
}

struct Stream<S: Server, D> {
    server: S,
    dialect: D,
    up: VecDeque<S::Request>,
    down: VecDeque<S::Push>,
}

impl<S: Server, D: Dialect<Request = S::Request, Response = S::Push>> Wire for Stream<S, D> {
    fn send(&mut self, request: RequestResources) {
        self.up.extend(self.dialect.on_request(request));
    }

    fn push(&mut self, catalogue: &Catalogue) {
        while let Some(push) = self.server.next(catalogue) {
            self.down.push_back(push);
        }
    }

    fn to_source(&mut self, catalogue: &Catalogue) -> bool {
        let request = self.up.pop_front();
        let arrived = request.is_some();
        request.into_iter().for_each(|request| self.server.requested(request, catalogue));
        arrived
    }

    fn to_sink(&mut self) -> Option<Option<Resources>> {
        let received = self.dialect.on_response(self.down.pop_front()?);
        self.up.extend(received.replies);
        Some(received.push)
    }
}

/// How a source and a sink speak with each other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Variant {
    Mcp { incremental: bool },
    Sotw,
    Delta,
    Rest,
}

impl Variant {
    /// A stream that has just opened.
    pub(crate) fn open(self, versions: &Versions) -> Box<dyn Wire> {
        let client = || node("sink", "ns", Vec::new());
        match self {
            Self::Mcp { incremental } => wire(source::McpStream::new(incremental), Plain),
            Self::Rest => wire(Rest::default(), Sotw::new(client())),
            Self::Sotw => wire(SotwStream::new(None), Sotw::new(client())),
            Self::Delta => wire(DeltaStream::new(None), Delta::new(client(), versions.clone())),
        }
    }
}

fn wire<S: Server + 'static, D>(server: S, dialect: D) -> Box<dyn Wire>
where
    D: Dialect<Request = S::Request, Response = S::Push> + 'static,
{
    Box::new(Stream { server, dialect, up: VecDeque::new(), down: VecDeque::new() })
}
