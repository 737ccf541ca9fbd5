//! What streams of configuration count, under the names that Istio's own have (docs/behaviour/mcp.md#metrics).

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};
use serde::Serialize;
use tonic::Code;

use mixer_adapter_core::framework::status::status_name;

/// What one side of MCP, or of xDS, counts: all of its streams in this process together.
#[derive(Debug)]
pub struct StreamMetrics {
    /// What Istio calls the component.
    component: &'static str,
    clients: AtomicI64,
    streams: AtomicU64,
    series: Mutex<Series>,
}

#[derive(Debug)]
struct Series {
    /// By collection.
    sizes: BTreeMap<String, Sizes>,
    acks: BTreeMap<String, u64>,
    /// By collection and code.
    nacks: BTreeMap<(String, i32), u64>,
    /// Requests for types of version 2 of Envoy's API, by type and client.
    v2: BTreeMap<(String, String), u64>,
    /// By code.
    unsent: BTreeMap<i32, u64>,
    unreceived: BTreeMap<i32, u64>,
}

/// The upper bounds of messages' sizes in bytes: powers of 4, to 1 GiB.
const BOUNDS: usize = 16;

#[derive(Clone, Debug, Default)]
struct Sizes {
    buckets: [u64; BOUNDS + 1],
    sum: u64,
}

/// The number of collections, and of codes, with series of their own. A peer may make up any number.
const MAX_SERIES: usize = 200;
/// The longest name of a collection that has a series of its own.
const LONGEST: usize = 200;
/// What stands for all others.
const OTHERS: &str = "other";

/// The sinks of this process.
pub(crate) static SINK: StreamMetrics = StreamMetrics::new("mixer");
/// The sources of this process.
pub static SOURCE: StreamMetrics = StreamMetrics::new("source");

/// The requests of a client for a type of version 2 of Envoy's API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct V2Requests {
    /// The type URL.
    pub type_url: String,
    /// The id of the node.
    pub client: String,
    /// Their number since the start.
    pub requests: u64,
}

/// A stream that is open, until this is dropped.
#[derive(Debug)]
pub(crate) struct Client(&'static StreamMetrics);

impl StreamMetrics {
    const fn new(component: &'static str) -> Self {
        let series = Series {
            sizes: BTreeMap::new(),
            acks: BTreeMap::new(),
            nacks: BTreeMap::new(),
            v2: BTreeMap::new(),
            unsent: BTreeMap::new(),
            unreceived: BTreeMap::new(),
        };
        Self { component, clients: AtomicI64::new(0), streams: AtomicU64::new(0), series: Mutex::new(series) }
    }

    /// A stream opened.
    #[must_use]
    pub(crate) fn opened(&'static self) -> Client {
        self.streams.fetch_add(1, Relaxed);
        self.clients.fetch_add(1, Relaxed);
        Client(self)
    }

    /// Counts a received message and its size in bytes.
    pub(crate) fn received(&self, collection: &str, bytes: usize) {
        let mut series = self.lock();
        let collection = series_of(&series.sizes, collection);
        let sizes = series.sizes.entry(collection).or_default();
        let bytes = bytes as u64;
        let bucket = (0..BOUNDS).find(|power| bytes <= bound(*power)).unwrap_or(BOUNDS);
        sizes.buckets[bucket] += 1;
        sizes.sum += bytes;
    }

    /// A push was accepted.
    pub(crate) fn acked(&self, collection: &str) {
        let mut series = self.lock();
        let collection = series_of(&series.acks, collection);
        *series.acks.entry(collection).or_default() += 1;
    }

    /// A push was refused. Codes that are none of gRPC's count as UNKNOWN.
    pub(crate) fn nacked(&self, collection: &str, code: i32) {
        let code = Code::from_i32(code) as i32;
        let mut series = self.lock();
        let known = |name: &str| series.nacks.contains_key(&(name.to_owned(), code));
        let fits = collection.len() <= LONGEST && (known(collection) || series.nacks.len() < MAX_SERIES);
        let name = if fits { collection } else { OTHERS };
        *series.nacks.entry((name.to_owned(), code)).or_default() += 1;
    }

    /// Counts a request for a type of version 2 of Envoy's API, by the type URL and the id of the client.
    pub(super) fn requested_v2(&self, type_url: &str, client: &str) {
        let mut series = self.lock();
        let key = (type_url.to_owned(), client.to_owned());
        let fits = type_url.len() <= LONGEST && client.len() <= LONGEST;
        let fits = fits && (series.v2.contains_key(&key) || series.v2.len() < MAX_SERIES);
        let others = || (OTHERS.to_owned(), OTHERS.to_owned());
        *series.v2.entry(if fits { key } else { others() }).or_default() += 1;
    }

    /// Returns the numbers of requests for types of version 2 of Envoy's API, by type URL and the id of the client.
    pub fn v2_requests(&self) -> Vec<V2Requests> {
        let requests = |((type_url, client), requests): (&(String, String), &u64)| V2Requests {
            type_url: type_url.clone(),
            client: client.clone(),
            requests: *requests,
        };
        self.lock().v2.iter().map(requests).collect()
    }

    /// A message could not be sent.
    pub(crate) fn not_sent(&self, code: Code) {
        *self.lock().unsent.entry(code as i32).or_default() += 1;
    }

    /// A stream broke: there was nothing more to be received.
    pub(crate) fn not_received(&self, code: Code) {
        *self.lock().unreceived.entry(code as i32).or_default() += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Series> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Relaxed);
    }
}

fn series_of<T>(known: &BTreeMap<String, T>, collection: &str) -> String {
    let fits = collection.len() <= LONGEST && (known.contains_key(collection) || known.len() < MAX_SERIES);
    if fits { collection } else { OTHERS }.to_owned()
}

fn bound(power: usize) -> u64 {
    1 << (2 * power)
}

impl EncodeMetric for Sizes {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bounds = (0..BOUNDS).map(|power| bound(power) as f64).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.buckets.iter().copied()).collect();
        encoder.encode_histogram::<NoLabelSet>(self.sum as f64, self.buckets.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// What both sides count, for the metrics page.
#[derive(Debug)]
pub struct McpMetrics;

type Encoded = Result<(), std::fmt::Error>;

impl Collector for McpMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let both = [&SINK, &SOURCE];
        let help = "Open streams of configuration";
        let mut clients =
            encoder.encode_descriptor("istio_mcp_clients_total", help, None, MetricType::Gauge)?;
        for side in both {
            let labels = [("component", side.component)];
            ConstGauge::new(side.clients.load(Relaxed)).encode(clients.encode_family(&labels)?)?;
        }
        // A counter's name would end in _total, which is not how Istio calls it.
        let help = "Streams of configuration that were opened";
        let mut streams =
            encoder.encode_descriptor("istio_mcp_reconnections", help, None, MetricType::Unknown)?;
        for side in both {
            let labels = [("component", side.component)];
            let count = i64::try_from(side.streams.load(Relaxed)).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(streams.encode_family(&labels)?)?;
        }
        let help = "Sizes of messages that arrived: pushes at a sink, requests at a source";
        let name = "istio_mcp_message_sizes";
        let mut sizes = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Histogram)?;
        for side in both {
            for (collection, of_collection) in &side.lock().sizes {
                let labels = [("component", side.component), ("collection", collection)];
                of_collection.encode(sizes.encode_family(&labels)?)?;
            }
        }
        let help = "Pushes that were accepted";
        let mut acks =
            encoder.encode_descriptor("istio_mcp_request_acks", help, None, MetricType::Counter)?;
        for side in both {
            for (collection, count) in &side.lock().acks {
                let labels = [("component", side.component), ("collection", collection)];
                ConstCounter::new(*count).encode(acks.encode_family(&labels)?)?;
            }
        }
        let help = "Pushes that were refused";
        let mut nacks =
            encoder.encode_descriptor("istio_mcp_request_nacks", help, None, MetricType::Counter)?;
        for side in both {
            for ((collection, code), count) in &side.lock().nacks {
                let code = status_name(*code);
                let labels = [("component", side.component), ("collection", collection), ("code", &*code)];
                ConstCounter::new(*count).encode(nacks.encode_family(&labels)?)?;
            }
        }
        let help = "Requests for types of version 2 of Envoy's API";
        let mut requests = encoder.encode_descriptor("xds_v2_requests", help, None, MetricType::Counter)?;
        for V2Requests { type_url, client, requests: count } in SOURCE.v2_requests() {
            let labels = [("type_url", &*type_url), ("client", &*client)];
            ConstCounter::new(count).encode(requests.encode_family(&labels)?)?;
        }
        let help = "Messages that could not be sent";
        failures(&mut encoder, "istio_mcp_send_failures", help, |series| &series.unsent)?;
        let help = "Streams that broke off";
        failures(&mut encoder, "istio_mcp_recv_failures", help, |series| &series.unreceived)
    }
}

/// Istio's label `error` holds the error's text, of which there is no end; here it is the code by name.
fn failures(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    which: impl Fn(&Series) -> &BTreeMap<i32, u64>,
) -> Encoded {
    let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for side in [&SINK, &SOURCE] {
        for (code, count) in which(&side.lock()) {
            let (number, name) = (code.to_string(), status_name(Code::from_i32(*code) as i32));
            let labels = [("component", side.component), ("code", &*number), ("error", &*name)];
            ConstCounter::new(*count).encode(encoder.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    static TRIED: StreamMetrics = StreamMetrics::new("tried");

    #[test]
    fn whatever_the_other_end_makes_up_there_is_an_end_to_the_series() {
        for number in 0..1000 {
            let name = format!("collection{number}");
            TRIED.received(&name, 1);
            TRIED.acked(&name);
            TRIED.nacked(&name, number);
            TRIED.requested_v2(&name, "node");
        }
        TRIED.acked(&"x".repeat(LONGEST + 1));
        let series = TRIED.lock();
        // All names with series of their own, and the one for the rest, which has at most one series per code.
        assert_eq!((series.sizes.len(), series.acks.len()), (MAX_SERIES + 1, MAX_SERIES + 1));
        assert!(series.nacks.len() <= MAX_SERIES + 17, "{}", series.nacks.len());
        assert_eq!(series.v2.len(), MAX_SERIES + 1);
        assert_eq!(series.acks[OTHERS], 801);
        assert_eq!(series.acks.values().sum::<u64>(), 1001);
    }

    #[test]
    fn sizes_go_into_buckets_of_powers_of_four() {
        static SIZED: StreamMetrics = StreamMetrics::new("sized");
        for bytes in [0, 1, 2, 4, 5, 1 << 30, (1 << 30) + 1] {
            SIZED.received("c", bytes);
        }
        let sizes = SIZED.lock().sizes["c"].clone();
        assert_eq!(sizes.buckets[..4], [2, 2, 1, 0]);
        assert_eq!(sizes.buckets[15..], [1, 1]);
    }
}
