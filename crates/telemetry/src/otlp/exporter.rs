//! A queue of telemetry, which is sent in batches.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, mem,
    sync::Arc,
    time::Duration,
};

use mixer_adapter_core::{
    framework::{log_limit::warn_limited, log_text::log_text, settings},
    metrics::Events,
};
use mixer_adapter_net::Backoff;
use parking_lot::Mutex;
use prost::{Message, bytes::Bytes};
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};

use super::{
    collector::{Collector, ExportError, Signal},
    message::ExportRequest,
};

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// The size at which a batch is sent in bytes. Collectors accept messages of 4 MiB by default.
const BATCH_BYTES: usize = 1 << 20;

/// The memory of an item besides its messages in bytes.
const ITEM_BYTES: usize = 2 * size_of::<Item>();

settings! {
    /// Limits of a queue and its batches.
    #[derive(Clone, Copy, Debug)]
    pub struct ExportLimits {
        /// How many messages are sent together.
        batch_size: usize = 512,
        /// How long a message waits for others.
        batch_delay: Duration = Duration::from_secs(1),
        /// The number of messages that wait or are being sent.
        queue_size: usize = 8192,
        /// The memory of these messages in bytes.
        queue_bytes: usize = 8 << 20,
        /// How long a batch is tried to send.
        retry_time: Duration = Duration::from_secs(300),
    }
}

/// Sends telemetry of one signal to a collector. Messages beyond the queue are lost, as are batches that the collector does not accept in
/// time: both are counted.
#[derive(Clone)]
pub struct Exporter(Arc<Shared>);

struct Shared {
    collector: Collector,
    signal: Signal,
    limits: ExportLimits,
    lost: Events,
    queue: Mutex<Queue>,
    /// A batch has begun or is complete, or the exporter closes.
    changed: Notify,
    /// The exporter closes.
    closing: Notify,
    /// The queue is empty.
    drained: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Item>,
    waiting_bytes: usize,
    /// Since when the first item waits.
    since: Option<Instant>,
    /// The messages that wait or are being sent: their number, their bytes, and their items.
    size: usize,
    bytes: usize,
    weight: usize,
    is_closing: bool,
}

struct Item {
    resource: Bytes,
    message: Bytes,
    /// What it counts for: the number of data points of a metric.
    weight: usize,
}

impl Item {
    fn bytes(&self) -> usize {
        self.resource.len() + self.message.len() + ITEM_BYTES
    }
}

impl Exporter {
    /// Creates an exporter, and the task that sends, which ends after [`close`](Self::close). `lost` counts lost items.
    pub fn new(
        collector: Collector,
        signal: Signal,
        limits: ExportLimits,
        lost: Events,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, changed, closing, drained) = Default::default();
        let shared = Shared { collector, signal, limits, lost, queue, changed, closing, drained };
        let shared = Arc::new(shared);
        (Self(shared.clone()), run(shared))
    }

    /// Queues a message of a resource: a span, a log record, or a metric with `weight` data points.
    pub fn add(&self, resource: Bytes, message: &impl Message, weight: usize) {
        let Shared { limits, queue, changed, .. } = &*self.0;
        let item = Item { resource, message: message.encode_to_vec().into(), weight };
        let bytes = item.bytes();
        let mut queue = queue.lock();
        let is_full = queue.size >= limits.queue_size || queue.bytes + bytes > limits.queue_bytes;
        if is_full || queue.is_closing {
            drop(queue);
            return self.0.lose(weight, "the queue is full");
        }
        queue.size += 1;
        queue.weight += weight;
        queue.bytes += bytes;
        queue.waiting_bytes += bytes;
        queue.waiting.push_back(item);
        let is_first = queue.since.is_none();
        if is_first {
            queue.since = Some(Instant::now());
        }
        if is_first || queue.has_batch(limits) {
            changed.notify_one();
        }
    }

    /// Returns how many spans, log records or data points are lost.
    pub fn lost(&self) -> u64 {
        self.0.lost.count()
    }

    /// Sends the queue without waiting for full batches, and accepts no more items. Items that are not sent within `limit` are lost.
    pub async fn close(&self, limit: Duration) {
        let Shared { queue, changed, closing, drained, .. } = &*self.0;
        queue.lock().is_closing = true;
        changed.notify_one();
        closing.notify_one();
        if timeout(limit, drained.notified()).await.is_err() {
            let closed = Queue { is_closing: true, ..Queue::default() };
            let left = mem::replace(&mut *queue.lock(), closed).weight;
            self.0.lose(left, "the collector has not accepted it before the end");
        }
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { collector, signal, limits, .. } = &*self.0;
        let mut debug = f.debug_struct("Exporter");
        debug.field("url", &collector.url).field("signal", signal).field("limits", limits);
        debug.finish_non_exhaustive()
    }
}

impl Queue {
    fn has_batch(&self, limits: &ExportLimits) -> bool {
        !self.waiting.is_empty()
            && (self.waiting.len() >= limits.batch_size || self.waiting_bytes >= BATCH_BYTES)
    }

    fn take_batch(&mut self, limits: &ExportLimits) -> Vec<Item> {
        let mut bytes = 0;
        let fits = self.waiting.iter().take(limits.batch_size).take_while(|item| {
            bytes += item.bytes();
            bytes <= BATCH_BYTES
        });
        // A larger message is sent alone.
        let count = fits.count().max(1).min(self.waiting.len());
        let batch: Vec<Item> = self.waiting.drain(..count).collect();
        self.waiting_bytes -= batch.iter().map(Item::bytes).sum::<usize>();
        self.since = (!self.waiting.is_empty()).then(Instant::now);
        batch
    }
}

impl Shared {
    /// Waits until a batch is due. Returns `None` if the exporter closes and nothing waits.
    async fn next_batch(&self) -> Option<Vec<Item>> {
        loop {
            let due = {
                let mut queue = self.queue.lock();
                let due = queue.since.map(|since| since + self.limits.batch_delay);
                let is_due = due.is_some_and(|due| queue.is_closing || due <= Instant::now());
                if is_due || queue.has_batch(&self.limits) {
                    return Some(queue.take_batch(&self.limits));
                }
                if queue.is_closing {
                    return None;
                }
                due
            };
            match due {
                Some(due) => _ = timeout_at(due, self.changed.notified()).await,
                None => self.changed.notified().await,
            }
        }
    }

    /// Sends a batch, until it is accepted or given up.
    async fn send(&self, batch: &[Item]) {
        let mut resources: BTreeMap<Bytes, Vec<Bytes>> = BTreeMap::new();
        for item in batch {
            resources.entry(item.resource.clone()).or_default().push(item.message.clone());
        }
        let request = ExportRequest::new(resources);
        let weight = batch.iter().map(|item| item.weight).sum();
        let (mut delays, end) = (BACKOFF.delays(), Instant::now() + self.limits.retry_time);
        loop {
            let (error, retry_after) = match self.collector.export(self.signal, &request).await {
                Ok(rejected) => {
                    let count = usize::try_from(rejected.rejected).unwrap_or_default().min(weight);
                    return self
                        .lose(count, &format!("the collector rejects it: {}", rejected.error_message));
                }
                Err(ExportError::Permanent(error)) => return self.lose(weight, &error.to_string()),
                Err(ExportError::Temporary(error, retry_after)) => (error, retry_after),
            };
            let delay = delays.next_delay().max(retry_after);
            if Instant::now() + delay > end {
                return self.lose(weight, &error.to_string());
            }
            let (url, error) = (log_text(&self.collector.url), log_text(&error));
            tracing::debug!(url, error, retry_in = ?delay, "export failed");
            // The last attempt is not delayed by the failures before.
            let _ = timeout(delay, self.closing.notified()).await;
        }
    }

    fn lose(&self, count: usize, reason: &str) {
        if count > 0 {
            self.lost.add(count as u64);
            let url = log_text(&self.collector.url);
            warn_limited!(url, signal = ?self.signal, count, reason = log_text(reason), "telemetry is lost");
        }
    }
}

async fn run(shared: Arc<Shared>) {
    while let Some(batch) = shared.next_batch().await {
        shared.send(&batch).await;
        let mut queue = shared.queue.lock();
        // After the end of the time to close, the queue is empty.
        queue.size = queue.size.saturating_sub(batch.len());
        queue.weight = queue.weight.saturating_sub(batch.iter().map(|item| item.weight).sum());
        queue.bytes = queue.bytes.saturating_sub(batch.iter().map(Item::bytes).sum());
    }
    shared.drained.notify_one();
}
