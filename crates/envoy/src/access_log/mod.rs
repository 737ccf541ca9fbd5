//! `envoy.service.accesslog.v3.AccessLogService`: reports entries of access logs (docs/envoy/attributes.md#access-logs).
//!
//! Streams are always read, because otherwise Envoy keeps its entries in memory. Entries wait in a bounded queue to become
//! instances, which wait in a bounded queue for each handler. Beyond the bounds they are dropped and counted.

mod stream;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use mixer_adapter_core::framework::{log_limit::warn_limited, log_text::log_text};
use mixer_adapter_engine::{
    Budget, FailedParts, Mixer, Snapshot,
    attribute::{AttributeValue, Bag},
    decision_log::{Api, LoggedDecision},
    dispatch::{Caller, FailureTexts, PreparedReport, Report, ReportBatch, Request},
    is_decision_id,
};
use prost::Name as _;
use tokio::{runtime::Handle, sync::mpsc, time::Instant};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

pub use self::stream::AccessLogServer;

use self::stream::LogKind;
use crate::{
    attributes::{AttributeError, LogSender, http_attributes, tcp_attributes},
    configuration::Configuration,
    counters::Counters,
    missing_settings::MissingSettings,
    options::MappingOptions,
    proto::{
        self,
        envoy::data::accesslog::v3::{HttpAccessLogEntry, TcpAccessLogEntry},
    },
    tenants::{SharedSpace, Space, TenantCounts},
};

/// The size of the queue between streams and rules, and of the queue of each handler, in bytes. Tenants share it.
const QUEUE: usize = 16 << 20;

/// The memory in bytes of an entry in the queue of messages, without its content.
const ENTRY: usize = size_of::<Vec<u8>>() + 32;

/// Maximum number of instances in one call.
const MAX_BATCH: usize = 1_000;

/// The time that an adapter has for its part of a report, or for generating the attributes of all entries of a message.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The queue of entries.
#[derive(Clone, Debug)]
pub(crate) struct LogQueue {
    messages: mpsc::UnboundedSender<Queued>,
    /// The space of messages, shared by the namespaces of senders.
    space: Arc<SharedSpace>,
    /// The space used by this queue and the queues of handlers.
    pending: TaskTracker,
}

#[derive(Debug)]
struct Queued {
    sender: Arc<LogSender>,
    kind: LogKind,
    /// Encoded entries.
    entries: Vec<Vec<u8>>,
    _space: Space,
    pending: TaskTrackerToken,
}

impl LogQueue {
    /// Creates the queue and the task that empties it.
    pub(crate) fn start(
        configuration: Configuration,
        mapping: MappingOptions,
        counters: Arc<Counters>,
        missing: Arc<MissingSettings>,
        runtime: &Handle,
    ) -> Self {
        #[expect(clippy::disallowed_methods, reason = "`space` bounds it in bytes")]
        let (messages, received) = mpsc::unbounded_channel();
        let handlers = HandlerQueues { queues: HashMap::new(), counters, runtime: runtime.clone() };
        runtime.spawn(Reporter { configuration, mapping, missing, handlers }.run(received));
        Self { messages, space: SharedSpace::new(QUEUE), pending: TaskTracker::new() }
    }

    /// Waits until all queues are empty.
    pub(crate) async fn flush(&self) {
        self.pending.close();
        self.pending.wait().await;
        self.pending.reopen();
    }

    /// Adds encoded entries of a message; returns whether there was space.
    fn add(&self, sender: Arc<LogSender>, kind: LogKind, entries: Vec<Vec<u8>>) -> bool {
        let memory = entries.iter().map(|entry| ENTRY + entry.capacity()).sum::<usize>();
        let size = size_of::<Queued>() + memory;
        let Some(space) = self.space.take(&sender.tenant(), size) else { return false };
        let pending = self.pending.token();
        self.messages.send(Queued { sender, kind, entries, _space: space, pending }).is_ok()
    }
}

/// An entry that cannot be reported.
#[derive(Debug, thiserror::Error)]
enum EntryError {
    #[error("an entry cannot be decoded: {0}")]
    Decode(#[from] prost::DecodeError),
    #[error(transparent)]
    Attributes(#[from] AttributeError),
}

/// Makes instances of entries.
struct Reporter {
    configuration: Configuration,
    mapping: MappingOptions,
    missing: Arc<MissingSettings>,
    handlers: HandlerQueues,
}

impl Reporter {
    /// Reports messages until the queue is closed.
    async fn run(mut self, mut received: mpsc::UnboundedReceiver<Queued>) {
        while let Some(queued) = received.recv().await {
            match self.configuration.snapshot(Some(self.configuration.end_of_start)).await {
                Some(snapshot) => self.report(queued, &snapshot).await,
                None => self.handlers.counters.lose(&Arc::from(""), queued.entries.len()),
            }
        }
    }

    /// Reports the entries of a message.
    async fn report(&mut self, queued: Queued, snapshot: &Arc<Snapshot>) {
        let (mixer, count) = (&*self.configuration.mixer, queued.entries.len());
        let is_logged = mixer.decision_log().is_watched();
        // Entries of one namespace take their space together.
        let mut reports: BTreeMap<Arc<str>, (Arc<TenantCounts>, Report<'_>)> = BTreeMap::new();
        let (mut failures, mut failed) = (FailureTexts::default(), FailedParts::default());
        let mut undecoded = 0;
        // Other messages wait.
        let caller = delivery();
        let mut budget = Budget::new(mixer.limits(), &caller);
        for entry in queued.entries {
            let bag = match self.attributes(queued.kind, entry, &queued.sender, snapshot.bag_of(is_logged)) {
                Ok(bag) => bag,
                Err(error) => {
                    failures.push(error.to_string());
                    undecoded += 1;
                    continue;
                }
            };
            if let Some(id) = logged_id(&bag)
                && let Some(logged) = mixer.decision_log().begin_entry(Api::Envoy, id)
            {
                logged.log(LoggedDecision::LogEntry, None, "", logged.attributes(&bag).as_ref());
            }
            let mut request = Request::new(snapshot, bag, &caller).with_budget(budget);
            let tenant = self.handlers.counters.tenant(request.tenant());
            tenant.log_entries.fetch_add(1, Relaxed);
            let (_, report) =
                reports.entry(tenant.namespace.clone()).or_insert_with(|| (tenant, Report::default()));
            if let Err(error) = report.add(&mut request).await {
                failures.push(error.to_string());
            }
            budget = request.budget();
            mixer.counts().request(request.counts());
        }
        for (tenant, report) in reports.into_values() {
            failed.append(report.failed_parts());
            let PreparedReport { batches, failures: further, lost } = report.prepare();
            failures.append(further);
            for (handler, count) in lost {
                self.handlers.counters.lose(&handler, count);
                tenant.lose(count);
            }
            for batch in batches.into_iter().flat_map(|batch| batch.split(MAX_BATCH)) {
                self.handlers.add(batch, &tenant, queued.pending.clone());
            }
        }
        mixer.counts().report(count, failures.is_empty());
        if !failures.is_empty() {
            log_failures(mixer, count, &failures, &failed);
        }
        if undecoded > 0 {
            self.handlers.counters.lose(&Arc::from(""), undecoded);
        }
    }

    /// Returns the attributes of an encoded entry.
    fn attributes(
        &self,
        kind: LogKind,
        entry: Vec<u8>,
        sender: &LogSender,
        bag: Bag,
    ) -> Result<Bag, EntryError> {
        match kind {
            LogKind::Http => {
                let entry: HttpAccessLogEntry = proto::decode(&HttpAccessLogEntry::full_name(), entry)?;
                let common = entry.common_properties.as_ref();
                self.missing.note_log(common.and_then(|common| common.metadata.as_ref()));
                Ok(http_attributes(&entry, sender, bag, &self.mapping)?)
            }
            LogKind::Tcp => {
                let entry: TcpAccessLogEntry = proto::decode(&TcpAccessLogEntry::full_name(), entry)?;
                Ok(tcp_attributes(&entry, sender, bag, &self.mapping)?)
            }
        }
    }
}

/// Logs the failures of a message of `count` entries.
fn log_failures(mixer: &Mixer, count: usize, failures: &FailureTexts, failed: &FailedParts) {
    if let Some(logged) = mixer.decision_log().begin(Api::Envoy, None) {
        let report = LoggedDecision::Report { requests: count, failed };
        logged.log(report, Some((tonic::Code::Unknown.into(), &log_text(failures))), "", None);
    }
    warn_limited!(error = log_text(failures), "entries of an access log could not be reported");
}

/// Returns the id of the decision on the request of an entry.
fn logged_id(bag: &Bag) -> Option<&str> {
    match bag.standard(standard!("check.decision_id"))? {
        AttributeValue::String(id) if is_decision_id(id) => Some(id),
        _ => None,
    }
}

/// The queue of each handler.
struct HandlerQueues {
    queues: HashMap<Arc<str>, HandlerQueue>,
    counters: Arc<Counters>,
    runtime: Handle,
}

struct QueuedBatch {
    batch: ReportBatch,
    part: BatchPart,
}

/// The part of a call that is from one namespace.
struct BatchPart {
    tenant: Arc<TenantCounts>,
    count: usize,
    _space: Space,
    _pending: TaskTrackerToken,
}

struct HandlerQueue {
    batches: mpsc::UnboundedSender<QueuedBatch>,
    space: Arc<SharedSpace>,
}

impl HandlerQueues {
    fn add(&mut self, batch: ReportBatch, tenant: &Arc<TenantCounts>, pending: TaskTrackerToken) {
        let (name, count) = (batch.handler().clone(), batch.len());
        // Queues of handlers that are no longer configured end as soon as they are empty.
        self.queues.retain(|known, queue| *known == name || !queue.space.is_free());
        let queue = self.queues.entry(name.clone()).or_insert_with(|| {
            #[expect(clippy::disallowed_methods, reason = "`space` bounds it in bytes")]
            let (batches, received) = mpsc::unbounded_channel();
            self.runtime.spawn(send(received, self.counters.clone()));
            HandlerQueue { batches, space: SharedSpace::new(QUEUE) }
        });
        let space = queue.space.take(&tenant.namespace, size_of::<QueuedBatch>() + batch.size());
        let is_queued = space.is_some_and(|space| {
            let part = BatchPart { tenant: tenant.clone(), count, _space: space, _pending: pending };
            queue.batches.send(QueuedBatch { batch, part }).is_ok()
        });
        if !is_queued {
            self.counters.lose(&name, count);
            tenant.lose(count);
        }
    }
}

/// Sends the batches of a handler. What waits for one call becomes the next one.
async fn send(mut received: mpsc::UnboundedReceiver<QueuedBatch>, counters: Arc<Counters>) {
    let mut next = None;
    loop {
        // The batch before, which keeps its handler open, is dropped here.
        let first = match next.take() {
            Some(first) => Some(first),
            None => received.recv().await,
        };
        let Some(QueuedBatch { mut batch, part }) = first else { return };
        let mut parts = vec![part];
        while batch.len() < MAX_BATCH
            && let Ok(QueuedBatch { batch: later, part }) = received.try_recv()
        {
            match batch.merge(later, MAX_BATCH) {
                None => parts.push(part),
                Some(batch) => {
                    next = Some(QueuedBatch { batch, part });
                    break;
                }
            }
        }
        if let Err(error) = batch.send(&delivery()).await {
            let handler = &**batch.handler();
            warn_limited!(handler, error = log_text(error), "part of an access log was not delivered");
            counters.lose(batch.handler(), batch.len());
            for BatchPart { tenant, count, .. } in &parts {
                tenant.lose(*count);
            }
        }
    }
}

/// The caller of handlers: this process, which waits for [`TIMEOUT`].
fn delivery() -> Caller {
    Caller { deadline: Some(Instant::now() + TIMEOUT), ..Caller::default() }
}
