//! Subscriptions to servers of configuration, whatever their protocol.

use futures_util::{FutureExt as _, future::BoxFuture};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::service::Routes;

use crate::{
    identity::sink_id,
    mcp::sink::{self as mcp, service::ResourceSinkService},
    proto::envoy::config::core::v3::Node,
    settings::SourceSettings,
    stream::{
        self, convert,
        listen::{ListenOptions, listen_with},
        peer::Peer,
        redial::DialOptions,
        shorthand::Trace,
        sink::{Mode, SinkOptions, cache::Cache, dialect::Variant, driver::Sink},
    },
    xds::sink as xds,
};
use mixer_adapter_config::{
    Offer, Offers, Parsed, Update, ValidationError, join_texts, limit_texts,
    source::{ReloadRequests, Source, SourceHandle, SourceStatus, StreamError, unix_time},
};
use mixer_adapter_net::{Listener, grpc::StreamMemory};

/// The pause after which pushes are offered: pushes of several collections belong together, but arrive in any order.
const QUIET: Duration = Duration::from_millis(200);
/// The number of faults of a collection in a warning.
const MAX_FAULTS: usize = 3;
/// The longest time for which pushes are gathered.
const LONGEST: Duration = Duration::from_secs(2);

/// Configuration that is pushed on streams of MCP or xDS, or read in the same way from an xDS server over REST or from
/// files.
///
/// The push of each collection is a separate offer, so that an invalid rule does not delay handlers of the same batch.
#[derive(Debug)]
pub struct StreamSource {
    name: String,
    transport: Transport,
    options: SinkOptions,
    cache: Option<Cache>,
    running: Arc<Running>,
}

fn dial_options(settings: &SourceSettings) -> DialOptions {
    let options = DialOptions::default();
    let longest_wait = settings.longest_wait;
    let (first_wait, memory) = (options.first_wait.min(longest_wait), settings.memory.clone());
    DialOptions { first_wait, longest_wait, memory, ..options }
}

/// The transport of a sink's streams.
#[derive(Debug)]
enum Transport {
    Mcp(Peer, DialOptions),
    Aggregated(Variant, Peer, DialOptions),
    Xds((xds::ApiVersion, Variant), Box<xds::XdsClient>, Peer, DialOptions),
    Rest(Box<xds::XdsClient>, Peer, xds::PollOptions, StreamMemory),
    Files(PathBuf, ReloadRequests),
    Listen(Listener, ListenOptions),
}

impl StreamSource {
    /// Subscribes to the `ResourceSource` of a peer.
    pub fn mcp(source: Peer, settings: &SourceSettings) -> Self {
        Self::new(source.to_string(), Transport::Mcp(source, dial_options(settings)), settings)
    }

    /// Subscribes to the `AggregatedMeshConfigService` of a peer.
    pub fn aggregated(source: Peer, variant: Variant, settings: &SourceSettings) -> Self {
        let transport = Transport::Aggregated(variant, source.clone(), dial_options(settings));
        let mut source = Self::new(source.to_string(), transport, settings);
        source.options.mode = variant.mode();
        source
    }

    /// Subscribes to the `AggregatedDiscoveryService` of a peer.
    pub fn xds(server: Peer, variant: Variant, node: Node, settings: &SourceSettings) -> Self {
        let (name, id) = (server.to_string(), node.id.clone());
        let client = Box::new(xds::XdsClient::new(node, settings.resource_names.clone()));
        let transport =
            Transport::Xds((xds::ApiVersion::V3, variant), client, server, dial_options(settings));
        let mut source = Self::new(name, transport, settings);
        source.options =
            SinkOptions { id, mode: variant.mode(), resync: Some(xds::RESYNC), ..source.options };
        source
    }

    /// Polls an xDS server over HTTP.
    pub fn rest(server: Peer, node: Node, polling: xds::PollOptions, settings: &SourceSettings) -> Self {
        let (name, id) = (server.to_string(), node.id.clone());
        let client = Box::new(xds::XdsClient::new(node, settings.resource_names.clone()));
        let memory = settings.memory.clone().unwrap_or_else(|| StreamMemory::new(usize::MAX));
        let mut source = Self::new(name, Transport::Rest(client, server, polling, memory), settings);
        source.options = SinkOptions { id, mode: Mode::Full, ..source.options };
        source
    }

    /// Reads files that each hold an xDS response: one file, or all of a directory.
    pub fn files(path: PathBuf, settings: &SourceSettings) -> Self {
        let name = format!("xds://{}", path.display());
        let mut source = Self::new(name, Transport::Files(path, settings.reload.clone()), settings);
        source.options.mode = Mode::Full;
        source
    }

    /// Serves `ResourceSink` to sources that connect to this program.
    pub fn listen(listener: impl Into<Listener>, settings: &SourceSettings) -> Self {
        let listener = listener.into();
        let scheme = if listener.tls().is_some() { "mcps" } else { "mcp" };
        let name = format!("sources that dial {scheme}://{listener}");
        let mut options = ListenOptions::default();
        if let Some(memory) = &settings.memory {
            options.memory = memory.clone();
        }
        Self::new(name, Transport::Listen(listener, options), settings)
    }

    fn new(name: String, transport: Transport, settings: &SourceSettings) -> Self {
        let options = SinkOptions {
            collections: settings.collections.clone(),
            skip_bad_resources: settings.skip_bad_resources,
            annotations: settings.sink_annotations.clone(),
            ..SinkOptions::new(settings.sink_id.clone().unwrap_or_else(sink_id), [] as [&str; 0])
        };
        Self { name, transport, options, cache: settings.cache.clone(), running: Arc::default() }
    }

    /// Begins streams with the versions of the held resources, so that only changes are sent. Only for sources that
    /// honour them. Istio's sources do not: resources that are deleted while the sink is disconnected would remain.
    #[must_use]
    pub(crate) fn resuming(mut self) -> Self {
        self.options.mode = Mode::Resume;
        self
    }

    /// Passes the messages of its streams to an observer.
    #[must_use]
    pub fn tracing(mut self, trace: Trace) -> Self {
        self.options.trace = trace;
        self
    }

    /// Uses another version of Envoy's API with a server of xDS.
    #[must_use]
    pub fn in_version(mut self, of: xds::ApiVersion) -> Self {
        if let Transport::Xds((version, _), ..) = &mut self.transport {
            *version = of;
        }
        self
    }

    /// Subscribes for a caller that decides on each push itself.
    pub fn connect(self) -> Subscription {
        let (sink, changes) = Sink::start(self.options, self.cache);
        let _ = self.running.sink.set((self.name.clone(), sink.clone()));
        let stop = CancellationToken::new();
        let stopped = stop.clone().drop_guard();
        match self.transport {
            Transport::Mcp(source, dial) => tokio::spawn(mcp::dial(sink, source, dial, stop)),
            Transport::Aggregated(variant, source, dial) => {
                tokio::spawn(mcp::dial_aggregated(sink, source, variant, dial, stop))
            }
            Transport::Xds(variant, client, server, dial) => {
                tokio::spawn(xds::dial(sink, server, variant, *client, dial, stop))
            }
            Transport::Rest(client, server, polling, memory) => {
                tokio::spawn(xds::poll(sink, server, *client, polling, memory, stop))
            }
            Transport::Files(path, reload) => tokio::spawn(xds::file::follow(sink, path, reload, stop)),
            Transport::Listen(listener, options) => {
                let service = ResourceSinkService::serve(sink, &ResourceSinkService::default_options());
                tokio::spawn(listen_with(listener, Routes::new(service), options, stop))
            }
        };
        Subscription { changes, _stopped: stopped }
    }

    /// Reads the state of the server: the first state of each collection that the settings request.
    ///
    /// # Errors
    /// Collections that did not arrive within `wait`.
    pub async fn read_once(self, wait: Duration) -> Result<Parsed, NotDeliveredError> {
        let source = self.name.clone();
        let mut missing: BTreeSet<String> =
            self.options.collections.iter().map(|wanted| wanted.collection.clone()).collect();
        let deadline = Instant::now() + wait;
        let mut subscription = self.connect();
        let mut read = Parsed::default();
        while !missing.is_empty() {
            let Ok(Some(offer)) = timeout_at(deadline, subscription.changes.recv()).await else {
                return Err(NotDeliveredError { source_name: source, wait, missing });
            };
            if missing.remove(&*offer.content().collection) {
                let (change, faults) = convert::decode(offer.content(), &source);
                read.resources.extend(change.content.resources().cloned());
                read.faults.extend(faults);
            }
            offer.accept();
        }
        Ok(read)
    }

    async fn offer(self, mut offers: Offers) {
        let source: Arc<str> = self.name.as_str().into();
        let running = self.running.clone();
        let skip_bad_resources = self.options.skip_bad_resources;
        let mut subscription = self.connect();
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                offer = subscription.changes.recv() => match offer {
                    Some(offer) => batch.push(offer),
                    None => return,
                },
                () = offers.closed() => return,
            }
            let end = Instant::now() + LONGEST;
            while let Ok(Some(more)) =
                timeout_at(end.min(Instant::now() + QUIET), subscription.changes.recv()).await
            {
                batch.push(more);
            }
            let decoded: Vec<_> = batch
                .drain(..)
                .filter_map(|offer| {
                    offer.try_map(|pushed| running.decode(&pushed, &source, skip_bad_resources))
                })
                .collect();
            if !decoded.is_empty() && offers.send(decoded).await.is_none() {
                return;
            }
        }
    }
}

/// Collections that a server did not deliver in time.
#[derive(Debug, thiserror::Error)]
#[error("{source_name}: not delivered within {wait:?}: {}", Vec::from_iter(.missing.iter().map(String::as_str)).join(", "))]
pub struct NotDeliveredError {
    source_name: String,
    wait: Duration,
    missing: BTreeSet<String>,
}

/// A subscription to a server of configuration, until it is dropped.
#[derive(Debug)]
pub struct Subscription {
    /// The pushes of the server.
    pub changes: mpsc::Receiver<Offer<stream::RawChange>>,
    _stopped: DropGuard,
}

impl Source for StreamSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn handle(&self) -> Option<Arc<dyn SourceHandle>> {
        Some(self.running.clone())
    }

    fn run(self: Box<Self>, offers: Offers) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.offer(offers))
    }
}

/// The sink of a source that runs, with the source's name.
#[derive(Debug, Default)]
struct Running {
    sink: OnceLock<(String, Sink)>,
    /// The faults of collections whose last push cannot be read.
    unreadable: Mutex<BTreeMap<Arc<str>, String>>,
}

impl Running {
    /// Decodes a push and records its faults.
    ///
    /// # Errors
    /// The faults, unless faulty resources are skipped.
    fn decode(
        &self,
        pushed: &stream::RawChange,
        source: &Arc<str>,
        skip_bad_resources: bool,
    ) -> Result<Update, Vec<ValidationError>> {
        let (change, faults) = convert::decode(pushed, source);
        self.record(&pushed.collection, &faults);
        if !faults.is_empty() && !skip_bad_resources {
            return Err(faults);
        }
        for fault in &faults {
            tracing::warn!(%source, collection = %pushed.collection, "bad resource skipped: {fault}");
        }
        Ok(Update { source: source.clone(), changes: vec![change], faults: Vec::new() })
    }

    /// Records the faults of a collection.
    fn record(&self, collection: &Arc<str>, faults: &[ValidationError]) {
        let mut unreadable = self.unreadable.lock();
        if faults.is_empty() {
            unreadable.remove(collection);
        } else {
            let texts = limit_texts(faults, MAX_FAULTS);
            unreadable.insert(collection.clone(), join_texts(&texts));
        }
    }
}

impl SourceHandle for Running {
    fn status(&self) -> BoxFuture<'_, Option<SourceStatus>> {
        let status = async {
            let (source, sink) = self.sink.get()?;
            Some(SourceStatus { source: source.clone(), ..sink.status().await? })
        };
        status.boxed()
    }

    fn warnings(&self) -> Vec<String> {
        let Some((source, sink)) = self.sink.get() else { return Vec::new() };
        let disconnected = sink.health().error().map(|StreamError { error, since }| {
            let seconds = unix_time().saturating_sub(since);
            format!("{source} has not been connected for {seconds} s: {error}")
        });
        let unreadable = self.unreadable.lock();
        let unreadable =
            unreadable.iter().map(|(collection, faults)| format!("{source}: {collection}: {faults}"));
        disconnected.into_iter().chain(unreadable).collect()
    }

    fn connected_for(&self) -> Option<Duration> {
        self.sink.get()?.1.health().connected_for()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::sink::node;

    /// istiod pushes only changes that affect the kind of proxy that it takes a client for.
    #[test]
    fn a_server_of_xds_is_asked_for_everything_every_five_minutes() {
        let settings = SourceSettings::new("ns");
        let node = node("pod", "ns", Vec::new());
        let source = StreamSource::xds(Peer::new("h:1"), Variant::Sotw, node, &settings);
        assert_eq!(source.options.resync, Some(Duration::from_secs(300)));
        assert_eq!(StreamSource::mcp(Peer::new("h:1"), &settings).options.resync, None);
    }
}
