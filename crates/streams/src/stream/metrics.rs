//! Metrics of configuration streams, under the names of Istio's own (docs/behaviour/mcp.md#metrics).

use std::{
    collections::BTreeMap,
    fmt,
    ops::Deref,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::{
        MetricType, TypedMetric,
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
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
    series: &'static LazyLock<Series>,
}

type Labels = Vec<(&'static str, String)>;

/// The families of both sides.
#[derive(Debug, Default)]
struct Series {
    clients: Family<Labels, Gauge>,
    streams: Family<Labels, Untyped>,
    refused: Family<Labels, Counter>,
    out_of_order: Counter,
    sizes: Collections<Histogram>,
    acks: Collections<Counter>,
    nacks: Collections<Counter>,
    unsent: Family<Labels, Counter>,
    unreceived: Family<Labels, Counter>,
    v2: Family<Labels, Counter>,
    /// Requests for types of version 2 of Envoy's API, by type and client.
    v2_requests: Mutex<BTreeMap<(String, String), u64>>,
}

/// A family with a label for the collection. The number of collections is limited.
#[derive(Debug)]
struct Collections<M> {
    family: Family<Labels, M>,
    /// The number of series with their own names.
    count: AtomicUsize,
}

impl<M: Clone> Collections<M> {
    fn new(series: fn() -> M) -> Self {
        Self { family: Family::new_with_constructor(series), count: AtomicUsize::new(0) }
    }

    /// Returns the series of a collection, or of the others beyond the limits.
    fn get(&self, collection: &str, labels: impl Fn(&str) -> Labels) -> impl Deref<Target = M> {
        let own = labels(collection);
        let is_known = self.family.get(&own).is_some();
        let fits = collection.len() <= LONGEST
            && (is_known
                || self.count.load(Relaxed) < MAX_SERIES && self.count.fetch_add(1, Relaxed) < MAX_SERIES);
        self.family.get_or_create(&if fits { own } else { labels(OTHERS) })
    }
}

/// The maximum number of series of a family: peers can invent any number of collections and codes.
const MAX_SERIES: usize = 200;
/// The maximum length of the name of a collection with a separate series.
const LONGEST: usize = 200;
/// The name that represents all others.
const OTHERS: &str = "other";

static SERIES: LazyLock<Series> = LazyLock::new(Series::default);
/// The sinks of this process.
pub(crate) static SINK: StreamMetrics = StreamMetrics { component: "mixer", series: &SERIES };
/// The sources of this process.
pub static SOURCE: StreamMetrics = StreamMetrics { component: "source", series: &SERIES };

/// A counter without a type: the name of a typed one would end in `_total`, and Istio's does not.
#[derive(Clone, Debug, Default)]
struct Untyped(Gauge);

impl TypedMetric for Untyped {
    const TYPE: MetricType = MetricType::Unknown;
}

impl EncodeMetric for Untyped {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl Default for Collections<Histogram> {
    /// Sizes in bytes, to 1 GiB.
    fn default() -> Self {
        Self::new(|| Histogram::new(exponential_buckets(1.0, 4.0, 16)))
    }
}

impl Default for Collections<Counter> {
    fn default() -> Self {
        Self::new(Counter::default)
    }
}

/// Exports the metrics of both sides. Families without series are omitted.
#[derive(Debug)]
pub struct McpMetrics;

impl Collector for McpMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let series = &*SERIES;
        let sizes = "Sizes of messages that arrived: pushes at a sink, requests at a source";
        let mut encode = |name: &str, help: &str, unit: Option<&Unit>, family: &dyn EncodeMetric| {
            if family.is_empty() {
                return Ok(());
            }
            family.encode(encoder.encode_descriptor(name, help, unit, family.metric_type())?)
        };
        encode("istio_mcp_clients_total", "Open streams of configuration", None, &series.clients)?;
        let help = "Streams of configuration that were opened";
        encode("istio_mcp_reconnections", help, None, &series.streams)?;
        encode("istio_mcp_message_sizes", sizes, Some(&Unit::Bytes), &series.sizes.family)?;
        for (name, help, family) in [
            (
                "mixer_adapter_config_streams_refused",
                "Streams of configuration that were refused because too many were open or waited",
                &series.refused,
            ),
            ("istio_mcp_request_acks", "Pushes that were accepted", &series.acks.family),
            ("istio_mcp_request_nacks", "Pushes that were refused", &series.nacks.family),
            ("istio_mcp_send_failures", "Messages that could not be sent", &series.unsent),
            ("istio_mcp_recv_failures", "Streams that broke off", &series.unreceived),
            ("mixer_adapter_xds_v2_requests", "Requests for types of version 2 of Envoy's API", &series.v2),
        ] {
            encode(name, help, None, family)?;
        }
        if series.streams.get(&SOURCE.component()).is_none() {
            return Ok(());
        }
        let help = "Pushes of listeners and routes after the timeout for answers to new clusters";
        encode("mixer_adapter_xds_pushes_out_of_order", help, None, &series.out_of_order)
    }
}

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
    fn component(&self) -> Labels {
        vec![("component", self.component.to_owned())]
    }

    /// Returns the labels of a collection.
    fn collection(&self, collection: &str) -> Labels {
        vec![("component", self.component.to_owned()), ("collection", collection.to_owned())]
    }

    /// Counts an opened stream.
    #[must_use]
    pub(crate) fn opened(&'static self) -> Client {
        let component = self.component();
        self.series.streams.get_or_create(&component).0.inc();
        self.series.clients.get_or_create(&component).inc();
        // Series from 0, so that the first increase is seen.
        drop(self.series.refused.get_or_create(&component));
        Client(self)
    }

    /// Counts a stream or a request that was refused because too many are open.
    pub(crate) fn refused(&self) {
        self.series.refused.get_or_create(&self.component()).inc();
    }

    /// Counts a push of resources that no longer waited for the client to answer the clusters before it.
    pub(crate) fn pushed_out_of_order(&self) {
        self.series.out_of_order.inc();
    }

    /// Counts a received message and its size in bytes.
    pub(crate) fn received(&self, collection: &str, bytes: usize) {
        self.series.sizes.get(collection, |collection| self.collection(collection)).observe(bytes as f64);
    }

    /// Counts an accepted push.
    pub(crate) fn acked(&self, collection: &str) {
        self.series.acks.get(collection, |collection| self.collection(collection)).inc();
    }

    /// Counts a refused push. Codes that gRPC does not define count as UNKNOWN.
    pub(crate) fn nacked(&self, collection: &str, code: i32) {
        let code = status_name(Code::from_i32(code) as i32);
        let series = self.series.nacks.get(collection, |collection| {
            let mut labels = self.collection(collection);
            labels.push(("code", code.clone().into_owned()));
            labels
        });
        series.inc();
    }

    /// Counts a request for a type of version 2 of Envoy's API, by the type URL and the id of the client.
    pub(super) fn requested_v2(&self, type_url: &str, client: &str) {
        let mut requests = self.series.v2_requests.lock();
        let mut key = (type_url.to_owned(), client.to_owned());
        let fits = type_url.len() <= LONGEST && client.len() <= LONGEST;
        if !fits || !requests.contains_key(&key) && requests.len() >= MAX_SERIES {
            key = (OTHERS.to_owned(), OTHERS.to_owned());
        }
        let labels = vec![("type_url", key.0.clone()), ("client", key.1.clone())];
        self.series.v2.get_or_create(&labels).inc();
        *requests.entry(key).or_default() += 1;
    }

    /// Returns the numbers of requests for types of version 2 of Envoy's API, by type URL and the id of the client.
    pub fn v2_requests(&self) -> Vec<V2Requests> {
        let requests = self.series.v2_requests.lock();
        let requests = requests.iter().map(|((type_url, client), requests)| V2Requests {
            type_url: type_url.clone(),
            client: client.clone(),
            requests: *requests,
        });
        requests.collect()
    }

    /// Counts a message that could not be sent.
    pub(crate) fn not_sent(&self, code: Code) {
        self.series.unsent.get_or_create(&self.code(code)).inc();
    }

    /// Counts a stream that ended with an error.
    pub(crate) fn not_received(&self, code: Code) {
        self.series.unreceived.get_or_create(&self.code(code)).inc();
    }

    /// Istio's label `error` has the text of the error, which is unbounded; here it is the name of the code.
    fn code(&self, code: Code) -> Labels {
        let (number, name) = ((code as i32).to_string(), status_name(code as i32).into_owned());
        vec![("component", self.component.to_owned()), ("code", number), ("error", name)]
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.series.clients.get_or_create(&self.0.component()).dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TRIED: StreamMetrics = StreamMetrics { component: "tried", series: &TRIED_SERIES };
    static TRIED_SERIES: LazyLock<Series> = LazyLock::new(Series::default);

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
        let series = &*TRIED_SERIES;
        let own = |number: &i32| TRIED.collection(&format!("collection{number}"));
        let sizes = (0..1000).filter(|number| series.sizes.family.get(&own(number)).is_some());
        let acks = (0..1000).filter(|number| series.acks.family.get(&own(number)).is_some());
        assert_eq!((sizes.count(), acks.count()), (MAX_SERIES, MAX_SERIES));
        assert_eq!(series.nacks.count.load(Relaxed), MAX_SERIES);
        assert_eq!(TRIED.v2_requests().len(), MAX_SERIES + 1);
        let others = TRIED.collection(OTHERS);
        assert_eq!(series.acks.family.get_or_create(&others).get(), 801);
        let first = TRIED.collection("collection0");
        assert_eq!(series.acks.family.get_or_create(&first).get(), 1);
    }
}
