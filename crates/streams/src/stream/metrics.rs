//! Metrics of configuration streams, under the names of Istio's own (docs/behaviour/mcp.md#metrics).

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};
use serde::Serialize;
use tonic::Code;

use mixer_adapter_core::framework::status::status_name;

/// The counters of one side of MCP and xDS: of all its streams in this process.
#[derive(Debug)]
pub struct StreamMetrics {
    /// Istio's name of the component.
    component: &'static str,
    clients: AtomicI64,
    streams: AtomicU64,
    refused: AtomicU64,
    out_of_order: AtomicU64,
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

/// The maximum number of collections, and of codes, with series of their own: peers can invent any number.
const MAX_SERIES: usize = 200;
/// The maximum length of the name of a collection with a series of its own.
const LONGEST: usize = 200;
/// The name that represents all others.
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

/// An open stream, until this is dropped.
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
        Self {
            component,
            clients: AtomicI64::new(0),
            streams: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            out_of_order: AtomicU64::new(0),
            series: Mutex::new(series),
        }
    }

    /// Counts an opened stream.
    #[must_use]
    pub(crate) fn opened(&'static self) -> Client {
        self.streams.fetch_add(1, Relaxed);
        self.clients.fetch_add(1, Relaxed);
        Client(self)
    }

    /// Counts a stream or a request that was refused because of the number of those that are open.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts a push of resources that no longer waited for the client to answer the clusters before it.
    pub(crate) fn pushed_out_of_order(&self) {
        self.out_of_order.fetch_add(1, Relaxed);
    }

    /// Counts a received message and its size in bytes.
    pub(crate) fn received(&self, collection: &str, bytes: usize) {
        let mut series = self.series.lock();
        let collection = series_of(&series.sizes, collection);
        let sizes = series.sizes.entry(collection).or_default();
        let bytes = bytes as u64;
        let bucket = (0..BOUNDS).find(|power| bytes <= bound(*power)).unwrap_or(BOUNDS);
        sizes.buckets[bucket] += 1;
        sizes.sum += bytes;
    }

    /// Counts an accepted push.
    pub(crate) fn acked(&self, collection: &str) {
        let mut series = self.series.lock();
        let collection = series_of(&series.acks, collection);
        *series.acks.entry(collection).or_default() += 1;
    }

    /// Counts a refused push. Codes that gRPC does not define count as UNKNOWN.
    pub(crate) fn nacked(&self, collection: &str, code: i32) {
        let code = Code::from_i32(code) as i32;
        let mut series = self.series.lock();
        let known = |name: &str| series.nacks.contains_key(&(name.to_owned(), code));
        let fits = collection.len() <= LONGEST && (known(collection) || series.nacks.len() < MAX_SERIES);
        let name = if fits { collection } else { OTHERS };
        *series.nacks.entry((name.to_owned(), code)).or_default() += 1;
    }

    /// Counts a request for a type of version 2 of Envoy's API, by the type URL and the id of the client.
    pub(super) fn requested_v2(&self, type_url: &str, client: &str) {
        let mut series = self.series.lock();
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
        self.series.lock().v2.iter().map(requests).collect()
    }

    /// Counts a message that could not be sent.
    pub(crate) fn not_sent(&self, code: Code) {
        *self.series.lock().unsent.entry(code as i32).or_default() += 1;
    }

    /// Counts a stream that ended with an error.
    pub(crate) fn not_received(&self, code: Code) {
        *self.series.lock().unreceived.entry(code as i32).or_default() += 1;
    }

    /// Returns whether there was a stream or a request.
    fn is_used(&self) -> bool {
        let series = self.series.lock();
        self.streams.load(Relaxed) > 0
            || self.refused.load(Relaxed) > 0
            || !(series.v2.is_empty()
                && series.sizes.is_empty()
                && series.unsent.is_empty()
                && series.unreceived.is_empty())
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

/// The counters of both sides, for the metrics page.
#[derive(Debug)]
pub struct McpMetrics;

type Encoded = Result<(), std::fmt::Error>;

impl Collector for McpMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let mut sides = [&SINK, &SOURCE].into_iter().filter(|side| side.is_used()).peekable();
        if sides.peek().is_none() {
            return Ok(());
        }
        let sides: Vec<&StreamMetrics> = sides.collect();
        let help = "Open streams of configuration";
        let mut clients =
            encoder.encode_descriptor("istio_mcp_clients_total", help, None, MetricType::Gauge)?;
        for side in &sides {
            let labels = [("component", side.component)];
            ConstGauge::new(side.clients.load(Relaxed)).encode(clients.encode_family(&labels)?)?;
        }
        // The name of a counter would end in _total, which Istio's does not.
        let help = "Streams of configuration that were opened";
        let mut streams =
            encoder.encode_descriptor("istio_mcp_reconnections", help, None, MetricType::Unknown)?;
        for side in &sides {
            let labels = [("component", side.component)];
            let count = i64::try_from(side.streams.load(Relaxed)).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(streams.encode_family(&labels)?)?;
        }
        let help = "Streams of configuration that were refused because too many were open or waited";
        let name = "mixer_adapter_config_streams_refused";
        let mut refused = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for side in &sides {
            let labels = [("component", side.component)];
            ConstCounter::new(side.refused.load(Relaxed)).encode(refused.encode_family(&labels)?)?;
        }
        if SOURCE.is_used() {
            let help = "Pushes of listeners and routes after the timeout for answers to new clusters";
            let name = "mixer_adapter_xds_pushes_out_of_order";
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(SOURCE.out_of_order.load(Relaxed)).encode(family)?;
        }
        let help = "Sizes of messages that arrived: pushes at a sink, requests at a source";
        let name = "istio_mcp_message_sizes";
        if sides.iter().any(|side| !side.series.lock().sizes.is_empty()) {
            let mut sizes =
                encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Histogram)?;
            for side in &sides {
                for (collection, of_collection) in &side.series.lock().sizes {
                    let labels = [("component", side.component), ("collection", collection)];
                    of_collection.encode(sizes.encode_family(&labels)?)?;
                }
            }
        }
        counters(&mut encoder, &sides, "istio_mcp_request_acks", "Pushes that were accepted", |series| {
            let acks = series.acks.iter();
            acks.map(|(collection, count)| (vec![("collection", collection.clone())], *count)).collect()
        })?;
        counters(&mut encoder, &sides, "istio_mcp_request_nacks", "Pushes that were refused", |series| {
            let nacks = series.nacks.iter().map(|((collection, code), count)| {
                (vec![("collection", collection.clone()), ("code", status_name(*code).into_owned())], *count)
            });
            nacks.collect()
        })?;
        let help = "Messages that could not be sent";
        counters(&mut encoder, &sides, "istio_mcp_send_failures", help, |series| by_code(&series.unsent))?;
        let help = "Streams that broke off";
        counters(&mut encoder, &sides, "istio_mcp_recv_failures", help, |series| {
            by_code(&series.unreceived)
        })?;
        let requests = SOURCE.v2_requests();
        if requests.is_empty() {
            return Ok(());
        }
        let help = "Requests for types of version 2 of Envoy's API";
        let name = "mixer_adapter_xds_v2_requests";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for V2Requests { type_url, client, requests: count } in requests {
            let labels = [("type_url", &*type_url), ("client", &*client)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Labels of a series in addition to the component, and its count.
type Counted = (Vec<(&'static str, String)>, u64);

/// Istio's label `error` has the text of the error, which is unbounded; here it is the name of the code.
fn by_code(counts: &BTreeMap<i32, u64>) -> Vec<Counted> {
    let labels = |code: &i32| {
        let name = status_name(Code::from_i32(*code) as i32).into_owned();
        vec![("code", code.to_string()), ("error", name)]
    };
    counts.iter().map(|(code, count)| (labels(code), *count)).collect()
}

/// Encodes counters of several series, if there are any.
fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    sides: &[&StreamMetrics],
    name: &str,
    help: &str,
    of: impl Fn(&Series) -> Vec<Counted>,
) -> Encoded {
    let counted: Vec<_> = sides
        .iter()
        .flat_map(|side| of(&side.series.lock()).into_iter().map(|one| (side.component, one)))
        .collect();
    if counted.is_empty() {
        return Ok(());
    }
    let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (component, (labels, count)) in counted {
        let mut all = vec![("component", component.to_owned())];
        all.extend(labels);
        ConstCounter::new(count).encode(encoder.encode_family(&all)?)?;
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
        let series = TRIED.series.lock();
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
        let sizes = SIZED.series.lock().sizes["c"].clone();
        assert_eq!(sizes.buckets[..4], [2, 2, 1, 0]);
        assert_eq!(sizes.buckets[15..], [1, 1]);
    }
}
