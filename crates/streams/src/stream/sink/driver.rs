//! The task of a sink, between its streams and the application on one side and the state machine on the other.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::FuturesUnordered,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use super::{
    SinkOptions,
    cache::{Cache, Writer},
    collection::{ProposalId, SinkDecision},
    health::Health,
    machine::{Closed, Output, SinkMachine},
    status::Observed,
    stream::StreamId,
};
use crate::{
    proto::istio::mcp::v1alpha1::{RequestResources, Resources},
    stream::{
        clock::{now, sleep_until},
        metrics::SINK,
        raw_change::RawChange,
        shorthand::Trace,
    },
};
use mixer_adapter_config::{Decision, Decisions, Offer, source::SourceStatus};

/// The number of requests that wait for the transport of one stream. No burst is larger: a full queue means that the
/// source does not read.
const UNREAD: usize = 128;
/// Messages of all streams that wait for the sink.
const UNHANDLED: usize = 4;

/// The requests of a sink on one stream, and at last the reason of its end.
pub(crate) type Requests = mpsc::Receiver<Result<RequestResources, Status>>;

/// A running sink, until its last clone is dropped.
#[derive(Clone, Debug)]
pub struct Sink {
    commands: mpsc::Sender<Command>,
    next: Arc<AtomicU64>,
    trace: Trace,
    health: Arc<Health>,
}

enum Command {
    Opened { id: StreamId, peer: String, handle: Handle },
    Received(StreamId, Resources, oneshot::Sender<()>),
    Renewed(String, Vec<(String, Duration)>),
    Closed(StreamId, Option<Status>, oneshot::Sender<Closed>),
    Describe(oneshot::Sender<SourceStatus>),
}

/// The sink's end of a stream.
struct Handle {
    requests: mpsc::Sender<Result<RequestResources, Status>>,
    ended: CancellationToken,
}

/// A stream, for its transport.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    id: StreamId,
    sink: Sink,
    /// Cancelled when the sink ends the stream.
    pub(crate) ended: CancellationToken,
}

impl Sink {
    /// Starts a sink on the runtime of the caller. Pushes arrive at the receiver, one change of a collection at a time;
    /// if the receiver is dropped, everything is refused.
    ///
    /// The content of the cache is offered first. The caller connects the sink to sources, with
    /// [`dial`](crate::mcp::sink::dial) or the [service](crate::mcp::sink::ResourceSinkService).
    pub fn start(options: SinkOptions, cache: Option<Cache>) -> (Self, mpsc::Receiver<Offer<RawChange>>) {
        let (commands, inbox) = mpsc::channel(UNHANDLED);
        // One place for each collection: the machine has one undecided change of each.
        let (offers, changes) = mpsc::channel(options.collections.len().max(1));
        let trace = options.trace.clone();
        let mut machine = SinkMachine::new(options);
        for cached in cache.iter().flat_map(Cache::load) {
            machine.restore(&cached.collection, cached.version, cached.resources);
        }
        let driver = Driver {
            machine,
            observed: Observed::default(),
            streams: HashMap::new(),
            offers,
            decisions: FuturesUnordered::new(),
            writer: cache.map(Writer::start),
        };
        tokio::spawn(driver.run(inbox));
        (Self { commands, next: Arc::default(), trace, health: Arc::default() }, changes)
    }

    /// Returns the status of the sink, for people.
    pub async fn status(&self) -> Option<SourceStatus> {
        let (status, described) = oneshot::channel();
        self.commands.send(Command::Describe(status)).await.ok()?;
        let status = described.await.ok()?;
        Some(SourceStatus { last_error: self.health.error(), ..status })
    }

    /// Returns whether its streams work.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// Registers a stream that opens. Requests for the source arrive at the receiver.
    pub(crate) async fn open(&self, peer: String) -> (Stream, Requests) {
        let id = self.next.fetch_add(1, Relaxed) + 1;
        self.health.opened(id);
        let (requests, outbox) = mpsc::channel(UNREAD);
        let ended = CancellationToken::new();
        let handle = Handle { requests, ended: ended.clone() };
        // If the driver has ended it drops the handle, which ends the stream.
        let _ = self.commands.send(Command::Opened { id, peer, handle }).await;
        (Stream { id, sink: self.clone(), ended }, outbox)
    }
}

impl Stream {
    /// Returns the observer of its messages.
    pub(crate) fn trace(&self) -> &Trace {
        &self.sink.trace
    }

    /// Returns whether the streams of its sink work.
    pub(crate) fn health(&self) -> &Health {
        &self.sink.health
    }

    /// Passes a push to the sink. Waits until the sink has read it, which slows the source down: what arrives meanwhile is not decoded.
    pub(crate) async fn received(&self, push: Resources) {
        let (read, done) = oneshot::channel();
        let _ = self.sink.commands.send(Command::Received(self.id, push, read)).await;
        let _ = done.await;
    }

    /// Sets the times to live of resources of a collection.
    pub(crate) async fn renewed(&self, collection: String, lifetimes: Vec<(String, Duration)>) {
        let _ = self.sink.commands.send(Command::Renewed(collection, lifetimes)).await;
    }

    /// Ends the stream.
    pub(crate) async fn closed(self, status: Option<Status>) -> Closed {
        self.sink.health.ended(self.id, status.as_ref());
        let (closed, told) = oneshot::channel();
        let _ = self.sink.commands.send(Command::Closed(self.id, status, closed)).await;
        told.await.unwrap_or_default()
    }
}

/// A decision on a proposal of a collection, and the receiver of the next one.
type Decided = (Arc<str>, ProposalId, Option<Decision>, Decisions);

struct Driver {
    machine: SinkMachine,
    observed: Observed,
    streams: HashMap<StreamId, Handle>,
    offers: mpsc::Sender<Offer<RawChange>>,
    decisions: FuturesUnordered<BoxFuture<'static, Decided>>,
    writer: Option<Writer>,
}

impl Driver {
    async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        loop {
            self.drain_outputs();
            let wakeup = self.machine.wakeup(now());
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(command) => self.handle_command(command),
                    None => break,
                },
                Some((collection, id, decision, decisions)) = self.decisions.next() => {
                    // A proposal without further decisions was replaced, or is in use.
                    if let Some(decision) = decision {
                        let decision = SinkDecision::new(&collection, decision);
                        self.machine.decided(&collection, id, decision, now());
                        self.await_decision(collection, id, decisions);
                    }
                }
                () = sleep_until(wakeup) => {}
            }
        }
        if let Some(writer) = self.writer {
            writer.finish().await;
        }
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Opened { id, peer, handle } => {
                self.observed.opened(id, peer);
                self.streams.insert(id, handle);
                self.machine.opened(id, now());
            }
            Command::Received(id, push, read) => {
                self.observed.received(id, &push);
                self.machine.received(id, push, now());
                let _ = read.send(());
            }
            Command::Renewed(collection, lifetimes) => self.machine.renewed(&collection, lifetimes),
            Command::Closed(id, status, told) => {
                self.observed.closed(id, status.as_ref());
                self.streams.remove(&id);
                let _ = told.send(self.machine.closed(id, status.as_ref(), now()));
            }
            Command::Describe(status) => {
                let _ = status.send(self.observed.describe(&self.machine));
            }
        }
    }

    /// Executes the outputs of the machine.
    fn drain_outputs(&mut self) {
        while let Some(output) = self.machine.poll(now()) {
            match output {
                Output::Send(id, request) => {
                    self.observed.sent(id, &request);
                    self.send(id, request);
                }
                Output::End(id, status) => self.end(id, status),
                Output::Decide(id, change) => {
                    let collection = change.collection.clone();
                    let (offer, decisions) = Offer::new(change);
                    // Without a receiver the offer is dropped, which refuses it.
                    let _ = self.offers.try_send(offer);
                    self.await_decision(collection, id, decisions);
                }
                Output::Accepted { collection, news } => {
                    self.observed.accepted(&collection);
                    let held = self.machine.collection(&collection);
                    if let (true, Some(writer), Some(held)) = (news, &self.writer, held) {
                        writer.enqueue(held);
                    }
                }
            }
        }
    }

    fn await_decision(&self, collection: Arc<str>, id: ProposalId, mut decisions: Decisions) {
        let decision = async move {
            let decision = decisions.next().await;
            (collection, id, decision, decisions)
        };
        self.decisions.push(decision.boxed());
    }

    fn send(&mut self, id: StreamId, request: RequestResources) {
        let Some(handle) = self.streams.get(&id) else { return };
        if let Err(mpsc::error::TrySendError::Full(_)) = handle.requests.try_send(Ok(request)) {
            SINK.not_sent(Code::ResourceExhausted);
            self.end(id, Status::resource_exhausted("the source does not read what the sink says"));
            self.machine.closed(id, None, now());
        }
    }

    fn end(&mut self, id: StreamId, status: Status) {
        if let Some(handle) = self.streams.remove(&id) {
            tracing::warn!(peer = self.observed.peer(id), %status, "ending the configuration stream");
            let _ = handle.requests.try_send(Err(status));
            handle.ended.cancel();
        }
    }
}
