//! A sink as a source of configuration for the engine.

use std::{
    collections::BTreeMap,
    future::Future,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::service::Routes;

use super::{
    Delivery, DialOptions, Listener, Peer, convert, listen,
    sink::{self, Cache, ResourceSinkService, Sink, SinkOptions},
};
use crate::{
    Collection, Kind,
    proto::envoy::config::core::v3::Node,
    source::{Answer, Source, SourceSettings, SourceStatus, Update, Watched},
    xds::sink as xds,
};

/// How long pushes of several collections are gathered after the last one: what belongs together comes together, but in no order.
const QUIET: Duration = Duration::from_millis(200);
/// The longest they are, however many come.
const LONGEST: Duration = Duration::from_secs(2);

/// Configuration that arrives by MCP, from a source that is dialed or from those that dial.
///
/// Pushes that arrive together are one update. When it is refused, each is tried by itself, in the order Mixer processes kinds, so that
/// one bad rule does not hold up the handlers that came with it.
#[derive(Debug)]
pub struct StreamSource {
    name: String,
    way: Way,
    options: SinkOptions,
    cache: Option<Cache>,
    running: Arc<Running>,
}

/// How the sink comes by its streams.
#[derive(Debug)]
enum Way {
    Dial(Protocol, Peer, DialOptions),
    Listen(Listener),
    Read(PathBuf),
}

/// What is spoken with who is dialed.
#[derive(Debug)]
enum Protocol {
    Mcp,
    Xds(xds::Variant, Box<Node>),
    Rest(Box<Node>),
}

impl StreamSource {
    /// Configuration from the `ResourceSource` of a peer.
    pub fn new(source: Peer, options: SinkOptions) -> Self {
        Self::by(source.to_string(), Way::Dial(Protocol::Mcp, source, DialOptions::default()), options)
    }

    /// The same, as the settings of sources say.
    pub fn of(source: Peer, settings: &SourceSettings) -> Self {
        Self { cache: settings.cache.clone(), ..Self::new(source, options(settings)) }
    }

    /// Configuration from the `AggregatedDiscoveryService` of a peer, to a client that says so of itself.
    pub fn by_xds(server: Peer, variant: xds::Variant, node: Node, settings: &SourceSettings) -> Self {
        let options = SinkOptions {
            id: node.id.clone(),
            mode: variant.mode(),
            resync: variant.resync(),
            ..options(settings)
        };
        let name = server.to_string();
        let way = Way::Dial(Protocol::Xds(variant, Box::new(node)), server, DialOptions::default());
        Self { cache: settings.cache.clone(), ..Self::by(name, way, options) }
    }

    /// Configuration from a server of xDS that is asked now and then, over HTTP.
    pub fn by_rest(server: Peer, node: Node, settings: &SourceSettings) -> Self {
        let options = SinkOptions { id: node.id.clone(), mode: sink::Mode::Full, ..options(settings) };
        let name = server.to_string();
        let way = Way::Dial(Protocol::Rest(Box::new(node)), server, DialOptions::default());
        Self { cache: settings.cache.clone(), ..Self::by(name, way, options) }
    }

    /// Configuration from files that each hold a response of xDS: that one, or all in that directory.
    pub fn reading(path: PathBuf, settings: &SourceSettings) -> Self {
        let name = format!("xds://{}", path.display());
        let options = SinkOptions { mode: sink::Mode::Full, ..options(settings) };
        Self { cache: settings.cache.clone(), ..Self::by(name, Way::Read(path), options) }
    }

    /// The same, dialed otherwise.
    #[must_use]
    pub fn dialed(mut self, options: DialOptions) -> Self {
        if let Way::Dial(_, _, dial) = &mut self.way {
            *dial = options;
        }
        self
    }

    /// Configuration from sources that dial that listener. They find the service `ResourceSink` there.
    pub fn listening(listener: impl Into<Listener>, settings: &SourceSettings) -> Self {
        let listener = listener.into();
        let name = {
            let scheme = if listener.tls().is_some() { "mcps" } else { "mcp" };
            format!("sources that dial {scheme}://{listener}")
        };
        Self { cache: settings.cache.clone(), ..Self::by(name, Way::Listen(listener), options(settings)) }
    }

    fn by(name: String, way: Way, options: SinkOptions) -> Self {
        Self { name, way, options, cache: None, running: Arc::default() }
    }

    /// Starts to follow. What is pushed is for the caller to decide on.
    pub fn connect(self) -> Subscription {
        let (sink, changes) = Sink::start(self.options, self.cache);
        let _ = self.running.sink.set((self.name.clone(), sink.clone()));
        let stop = CancellationToken::new();
        let stopped = stop.clone().drop_guard();
        match self.way {
            Way::Dial(Protocol::Mcp, source, dial) => tokio::spawn(sink::dial(sink, source, dial, stop)),
            Way::Dial(Protocol::Xds(variant, node), server, dial) => {
                tokio::spawn(xds::dial(sink, server, variant, *node, dial, stop))
            }
            Way::Dial(Protocol::Rest(node), server, _) => {
                tokio::spawn(xds::poll(sink, server, *node, xds::REFRESH, stop))
            }
            Way::Read(path) => tokio::spawn(async move {
                tokio::select! {
                    () = xds::file::follow(sink, path) => {}
                    () = stop.cancelled() => {}
                }
            }),
            Way::Listen(listener) => {
                let service = ResourceSinkService::serve(sink, &ResourceSinkService::default_options());
                tokio::spawn(listen(listener, Routes::new(service), stop))
            }
        };
        Subscription { changes, _stopped: stopped }
    }

    async fn follow(self, updates: mpsc::Sender<Update>) {
        let required = self.options.collections.iter().filter(|wanted| wanted.required);
        let required: Vec<String> = required.map(|wanted| wanted.collection.clone()).collect();
        let name = self.name.clone();
        let following = self.connect();
        deliver(&name, &required, following.changes, &updates).await;
    }
}

/// A server that is followed until this is dropped.
#[derive(Debug)]
pub struct Subscription {
    /// What it pushes.
    pub changes: mpsc::Receiver<Delivery>,
    _stopped: DropGuard,
}

fn options(settings: &SourceSettings) -> SinkOptions {
    SinkOptions {
        collections: settings.collections.clone(),
        skip_bad_resources: settings.skip_bad_resources,
        ..SinkOptions::new(sink_id(), [] as [&str; 0])
    }
}

impl Source for StreamSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        vec![self.running.clone()]
    }

    fn run(self: Box<Self>, updates: mpsc::Sender<Update>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.follow(updates))
    }
}

/// The sink of a source, once it runs.
#[derive(Debug, Default)]
struct Running {
    sink: OnceLock<(String, Sink)>,
}

impl Watched for Running {
    fn status(&self) -> BoxFuture<'_, Option<SourceStatus>> {
        let status = async {
            let (source, sink) = self.sink.get()?;
            Some(SourceStatus { source: source.clone(), ..sink.status().await? })
        };
        status.boxed()
    }

    fn reconsider(&self) -> BoxFuture<'_, ()> {
        let asked = async {
            if let Some((_, sink)) = self.sink.get() {
                sink.reconsider().await;
            }
        };
        asked.boxed()
    }
}

/// An id for the sink of this program: the host's name tells it from others, and is what a pod is called.
pub fn sink_id() -> String {
    match environment("HOSTNAME") {
        Some(host) => format!("mixer-adapter~{host}"),
        None => "mixer-adapter".to_owned(),
    }
}

/// What the environment says, unless that is nothing.
pub(crate) fn environment(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

/// The six collections of Mixer's own kinds.
pub fn mixer_collections() -> impl Iterator<Item = String> {
    Collection::mixer().map(|collection| collection.as_str().to_owned())
}

/// Hands what a sink delivers on as updates, until nobody takes them or nothing comes any more. The first waits for all required
/// collections: rules mean nothing before their handlers are there.
pub async fn deliver(
    source: &str,
    required: &[String],
    mut changes: mpsc::Receiver<Delivery>,
    updates: &mpsc::Sender<Update>,
) {
    let source: Arc<str> = source.into();
    let mut gathered = BTreeMap::new();
    let mut complete = false;
    loop {
        let arrived = tokio::select! {
            arrived = changes.recv() => arrived,
            () = updates.closed() => return,
        };
        let Some(arrived) = arrived else { return };
        gathered.insert(arrived.change().collection.clone(), arrived);
        gather(&mut changes, &mut gathered).await;
        complete |= required.iter().all(|collection| gathered.contains_key(collection.as_str()));
        if !complete {
            continue;
        }
        let mut together: Vec<_> = std::mem::take(&mut gathered).into_values().collect();
        together.sort_by_key(|delivery| order(&delivery.change().collection));
        if offer(&source, together, updates).await.is_none() {
            return;
        }
    }
}

/// Takes what else comes soon. Of a collection, nothing does: it waits for its verdict.
async fn gather(changes: &mut mpsc::Receiver<Delivery>, gathered: &mut BTreeMap<Arc<str>, Delivery>) {
    let end = Instant::now() + LONGEST;
    while let Ok(Some(arrived)) = timeout_at(end.min(Instant::now() + QUIET), changes.recv()).await {
        gathered.insert(arrived.change().collection.clone(), arrived);
    }
}

/// Mixer's kinds in the order they are processed in, then everything else.
fn order(collection: &str) -> (bool, Option<Kind>) {
    let role = Collection::new(collection).role();
    (role.is_none(), role)
}

/// Offers changes, and passes on what is said to them. `None` if nobody takes updates any more.
async fn offer(source: &Arc<str>, together: Vec<Delivery>, updates: &mpsc::Sender<Update>) -> Option<()> {
    let mut readable = Vec::new();
    for delivery in together {
        match convert::to_update(delivery.change(), source) {
            Ok(change) => readable.push((delivery, change)),
            Err(rejection) => delivery.reject(rejection),
        }
    }
    if readable.is_empty() {
        return Some(());
    }
    let changes = readable.iter().map(|(_, change)| change.clone()).collect();
    match send(source, changes, updates).await? {
        Answer::Applied => readable.into_iter().for_each(|(delivery, _)| delivery.accept()),
        Answer::Rejected(faults) if readable.len() == 1 => {
            for (delivery, _) in readable {
                let rejection = convert::to_rejection(&delivery.change().collection, &faults);
                delivery.reject(rejection);
            }
        }
        Answer::Rejected(_) => {
            for (delivery, change) in readable {
                match send(source, vec![change], updates).await? {
                    Answer::Applied => delivery.accept(),
                    Answer::Rejected(faults) => {
                        let rejection = convert::to_rejection(&delivery.change().collection, &faults);
                        delivery.reject(rejection);
                    }
                }
            }
        }
    }
    Some(())
}

async fn send(
    source: &Arc<str>,
    changes: Vec<crate::source::Change>,
    updates: &mpsc::Sender<Update>,
) -> Option<Answer> {
    let (update, answer) = Update::new(source.clone(), changes, Vec::new());
    updates.send(update).await.ok()?;
    answer.await.ok()
}
