use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    fmt::{self, Debug, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use prometheus_client::{
    encoding::{EncodeMetric, text::encode},
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::{
    budget::Budget,
    series::{OTHER, Series},
};
use crate::locked::locked;

/// The metrics of a handler: [`Context::metrics`](crate::Context::metrics).
///
/// A metric `answers` of the adapter `directory` is `adapter_directory_answers` on the metrics page, with the label `handler`: the name of
/// the configured handler, or a number. It is removed when the handler is closed.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    adapter: &'static str,
    store: Arc<MetricStore>,
    scope: Arc<Scope>,
}

/// The metrics of all adapters of a server.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct MetricStore {
    /// By adapter and event.
    events: Mutex<BTreeMap<(&'static str, &'static str), Events>>,
    /// The handlers with metrics of their own, by adapter and value of the label `handler`.
    scopes: Mutex<BTreeMap<(&'static str, String), Arc<Scope>>>,
    series: Arc<AtomicUsize>,
}

/// The maximum number of handlers with metrics on the page.
const MAX_HANDLERS: usize = 1_000;

/// The event of a handler that is beyond the maximum.
const BEYOND_LIMIT: &str = "handlers_without_metrics";

/// The metrics of one handler.
#[derive(Debug, Default)]
struct Scope {
    handler: Option<Arc<str>>,
    metrics: Mutex<Option<Registered>>,
    budget: Arc<Budget>,
}

struct Registered {
    registry: Registry,
    /// A [`Series`] by its name.
    series: HashMap<&'static str, Box<dyn Any + Send>>,
}

/// A counter of events. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<AtomicU64>);

impl Metrics {
    /// Returns the metrics of one adapter without a handler.
    #[doc(hidden)]
    pub fn of(adapter: &'static str, store: Arc<MetricStore>) -> Self {
        Self { adapter, store, scope: Arc::default() }
    }

    /// Returns the metrics of a handler of the adapter; `handler` is its name if it is a configured one.
    #[doc(hidden)]
    #[must_use]
    pub fn of_handler(&self, handler: Option<Arc<str>>) -> Self {
        let budget = Arc::new(Budget::of(self.store.series.clone()));
        Self { scope: Arc::new(Scope { handler, metrics: Mutex::default(), budget }), ..self.clone() }
    }

    /// Returns whether another clone exists, or a metric of the handler is on the page.
    #[doc(hidden)]
    pub fn is_shared(&mut self) -> bool {
        Arc::get_mut(&mut self.scope).is_none()
    }

    /// Removes the metrics of the handler.
    #[doc(hidden)]
    pub fn end(&self) {
        locked(&self.store.scopes).retain(|_, scope| !Arc::ptr_eq(scope, &self.scope));
    }

    /// Returns the counter `mixer_adapter_events_total{adapter, event}`, for events such as things dropped, refused or not fetched.
    ///
    /// All handlers of the adapter share it, so that it does not decrease when a handler closes.
    ///
    /// ```
    /// use mixer_adapter_core::Context;
    ///
    /// let context = Context::detached(());
    /// let lost = context.metrics().events("lines_lost");
    /// lost.add(3);
    /// assert_eq!(context.metrics().events("lines_lost").count(), 3);
    /// ```
    pub fn events(&self, event: &'static str) -> Events {
        locked(&self.store.events).entry((self.adapter, event)).or_default().clone()
    }

    /// Returns a counter with labels. Calls with the same name return the same counter.
    ///
    /// # Panics
    /// The name or a label is not a word of lower-case letters, digits and `_`, or a label is `handler` or `le`.
    pub fn counter<const N: usize>(
        &self,
        name: &'static str,
        help: &str,
        labels: [&'static str; N],
    ) -> Series<Counter, N> {
        self.series(name, help, labels, Counter::default)
    }

    /// Returns a gauge with labels. Calls with the same name return the same gauge.
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    pub fn gauge<const N: usize>(
        &self,
        name: &'static str,
        help: &str,
        labels: [&'static str; N],
    ) -> Series<Gauge, N> {
        self.series(name, help, labels, Gauge::default)
    }

    /// Returns a histogram with labels and the upper bounds of its buckets. Calls with the same name return the same histogram.
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    pub fn histogram<const N: usize>(
        &self,
        name: &'static str,
        help: &str,
        labels: [&'static str; N],
        buckets: impl IntoIterator<Item = f64>,
    ) -> Series<Histogram, N> {
        let buckets: Vec<f64> = buckets.into_iter().collect();
        self.series(name, help, labels, move || Histogram::new(buckets.iter().copied()))
    }

    /// Adds a metric of the crate `prometheus-client`, such as a `Family` with labels of a type of its own. The caller limits the number of its
    /// series. The first metric with a name remains.
    ///
    /// # Panics
    /// As [`counter`](Self::counter).
    pub fn register(
        &self,
        name: &'static str,
        help: &str,
        metric: impl EncodeMetric + Debug + Send + Sync + 'static,
    ) {
        self.registered(name, |registered| {
            registered.series.entry(name).or_insert_with(|| {
                add(&mut registered.registry, name, help, metric);
                Box::new(())
            });
        });
    }

    fn series<
        M: EncodeMetric + prometheus_client::metrics::TypedMetric + Clone + Debug + Send + Sync + 'static,
        const N: usize,
    >(
        &self,
        name: &'static str,
        help: &str,
        labels: [&'static str; N],
        create: impl Fn() -> M + Send + Sync + 'static,
    ) -> Series<M, N> {
        for label in labels {
            assert!(
                is_word(label) && !["handler", "le"].contains(&label),
                "{label:?} cannot be the name of a label"
            );
        }
        let series = Series::new(labels, create, self.scope.budget.clone());
        self.registered(name, |registered| {
            let known = registered.series.entry(name).or_insert_with(|| {
                add(&mut registered.registry, name, help, series.family.clone());
                Box::new(series.clone())
            });
            // A metric of another type with this name: this one is not on the page.
            known.downcast_ref().cloned().unwrap_or(series)
        })
    }

    /// Calls `use_metrics` with the metrics of the handler, which are on the page from the first call on.
    fn registered<R>(&self, name: &str, use_metrics: impl FnOnce(&mut Registered) -> R) -> R {
        assert!(is_word(name), "{name:?} cannot be the name of a metric");
        let mut metrics = locked(&self.scope.metrics);
        use_metrics(metrics.get_or_insert_with(|| {
            let handler = self.store.add(self.adapter, &self.scope);
            let prefix = format!("adapter_{}", self.adapter.replace('-', "_"));
            let labels = [("handler".into(), handler.into())].into_iter();
            Registered { registry: Registry::with_prefix_and_labels(prefix, labels), series: HashMap::new() }
        }))
    }
}

/// Registers a metric; a suffix of its name is its unit.
fn add(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: impl EncodeMetric + Debug + Send + Sync + 'static,
) {
    // The format appends it.
    let name = name.strip_suffix("_total").unwrap_or(name);
    let units = [
        ("_seconds", Unit::Seconds),
        ("_bytes", Unit::Bytes),
        ("_ratios", Unit::Ratios),
        ("_celsius", Unit::Celsius),
    ];
    let unit = units.into_iter().find_map(|(suffix, unit)| Some((name.strip_suffix(suffix)?, unit)));
    match unit {
        Some((name, unit)) => registry.register_with_unit(name, help, unit, metric),
        None => registry.register(name, help, metric),
    }
}

fn is_word(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

impl MetricStore {
    /// Puts the metrics of a handler on the page, and returns the value of its label `handler`. A handler replaces the former one
    /// with its name; one without a name has the lowest free number.
    fn add(&self, adapter: &'static str, scope: &Arc<Scope>) -> String {
        let mut scopes = locked(&self.scopes);
        let name = scope.handler.as_deref();
        let is_known = name.is_some_and(|name| scopes.contains_key(&(adapter, name.to_owned())));
        if scopes.len() >= MAX_HANDLERS && !is_known {
            locked(&self.events).entry((adapter, BEYOND_LIMIT)).or_default().add(1);
            return OTHER.to_owned();
        }
        let handler = match name {
            Some(name) => name.to_owned(),
            None => {
                let mut numbers = (1..).map(|number: u32| number.to_string());
                numbers.find(|number| !scopes.contains_key(&(adapter, number.clone()))).unwrap_or_default()
            }
        };
        scopes.insert((adapter, handler.clone()), scope.clone());
        handler
    }

    /// Returns the counters of events: adapter, event, count.
    pub fn event_counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        let known = locked(&self.events);
        known.iter().map(|((adapter, event), count)| (*adapter, *event, count.count())).collect()
    }

    /// Returns the metrics of all handlers in the format of OpenMetrics, without its end: each family once, with the series of all handlers.
    ///
    /// # Errors
    /// A metric that cannot be encoded.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let scopes: Vec<Arc<Scope>> = locked(&self.scopes).values().cloned().collect();
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        for scope in scopes {
            let mut page = String::new();
            if let Some(registered) = &*locked(&scope.metrics) {
                encode(&mut page, &registered.registry)?;
            }
            for (name, family) in split(&page) {
                let known = families
                    .entry(name)
                    .or_insert_with(|| Family { header: family.header.clone(), series: String::new() });
                // Adapters `a-b` and `a` can have metrics of one name and different types; the page would be invalid with both.
                if known.header == family.header {
                    known.series += &family.series;
                }
            }
        }
        let mut text = String::new();
        for Family { header, series } in families.values() {
            text.write_str(header)?;
            text.write_str(series)?;
        }
        Ok(text)
    }
}

/// A metric on a page: its comments, and its series.
#[derive(Default)]
struct Family {
    header: String,
    series: String,
}

/// Splits a page of OpenMetrics into its families by name.
fn split(page: &str) -> Vec<(String, Family)> {
    let mut families: Vec<(String, Family)> = Vec::new();
    for line in page.lines().filter(|line| *line != "# EOF") {
        if let Some(comment) = line.strip_prefix("# ") {
            let name = comment.split(' ').nth(1).unwrap_or_default();
            if families.last().is_none_or(|(last, _)| last != name) {
                families.push((name.to_owned(), Family::default()));
            }
        }
        if let Some((_, family)) = families.last_mut() {
            let part = if line.starts_with('#') { &mut family.header } else { &mut family.series };
            *part += line;
            part.push('\n');
        }
    }
    families
}

impl Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.series.keys()).finish()
    }
}

impl Events {
    /// Adds to the counter.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// Returns the count since the start of the server.
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use prometheus_client::metrics::family::Family as ClientFamily;

    fn handler(store: &Arc<MetricStore>, adapter: &'static str, name: Option<&str>) -> Metrics {
        Metrics::of(adapter, store.clone()).of_handler(name.map(Arc::from))
    }

    #[test]
    fn handlers_have_a_label_and_share_the_help_and_the_unit_of_a_metric() {
        let store = Arc::new(MetricStore::default());
        let (shop, unnamed) =
            (handler(&store, "my-adapter", Some("shop.default")), handler(&store, "my-adapter", None));
        for metrics in [&shop, &unnamed] {
            metrics.counter("answers_total", "Answers", ["outcome"]).with(["a\"b"]).inc();
            metrics.counter("answers_total", "Answers", ["outcome"]).with(["a\"b"]).inc();
            metrics.gauge("queue_bytes", "Length of the queue", []).with([]).set(7);
        }
        let expected = "\
# HELP adapter_my_adapter_answers Answers.
# TYPE adapter_my_adapter_answers counter
adapter_my_adapter_answers_total{handler=\"1\",outcome=\"a\\\"b\"} 2
adapter_my_adapter_answers_total{handler=\"shop.default\",outcome=\"a\\\"b\"} 2
# HELP adapter_my_adapter_queue_bytes Length of the queue.
# TYPE adapter_my_adapter_queue_bytes gauge
# UNIT adapter_my_adapter_queue_bytes bytes
adapter_my_adapter_queue_bytes{handler=\"1\"} 7
adapter_my_adapter_queue_bytes{handler=\"shop.default\"} 7
";
        assert_eq!(store.encode().unwrap(), expected);
        unnamed.end();
        assert!(!store.encode().unwrap().contains("handler=\"1\""));
        shop.end();
        assert_eq!(store.encode().unwrap(), "");
    }

    #[test]
    fn a_handler_replaces_the_former_one_with_its_name_which_does_not_remove_it() {
        let store = Arc::new(MetricStore::default());
        let (former, current) = (handler(&store, "a", Some("x")), handler(&store, "a", Some("x")));
        former.counter("calls", "Calls", []).with([]).inc_by(5);
        current.counter("calls", "Calls", []).with([]).inc();
        former.end();
        assert!(store.encode().unwrap().ends_with("adapter_a_calls_total{handler=\"x\"} 1\n"));
    }

    #[test]
    fn metrics_of_the_client_library_are_encoded_with_their_labels() {
        let store = Arc::new(MetricStore::default());
        let metrics = handler(&store, "a", None);
        let family =
            ClientFamily::<Vec<(String, String)>, Histogram>::new_with_constructor(|| Histogram::new([1.0]));
        metrics.register("took_seconds", "Time", family.clone());
        family.get_or_create(&vec![("path".to_owned(), "/".to_owned())]).observe(0.5);
        let page = store.encode().unwrap();
        assert!(page.contains("# UNIT adapter_a_took_seconds seconds\n"), "{page}");
        let bucket = page.lines().find(|line| line.contains("le=\"1.0\"")).unwrap();
        assert!(bucket.starts_with("adapter_a_took_seconds_bucket{") && bucket.ends_with("} 1"), "{bucket}");
        assert!(bucket.contains("handler=\"1\"") && bucket.contains("path=\"/\""), "{bucket}");
    }

    #[test]
    fn further_values_of_labels_share_a_series_and_long_ones_are_cut_off() {
        let store = Arc::new(MetricStore::default());
        let metrics = handler(&store, "a", None);
        let calls = metrics.counter("calls", "Calls", ["path"]);
        for path in 0..1_000 {
            calls.with([&format!("{path}{}", "x".repeat(1_000))]).inc();
        }
        let page = store.encode().unwrap();
        assert_eq!(page.lines().count(), 2 + 201, "200 series and that of the others");
        assert!(page.contains("path=\"other\"} 800\n"));
        assert!(page.lines().all(|line| line.len() < 200));
    }

    #[test]
    fn the_series_of_all_handlers_are_limited_until_handlers_end() {
        let store = Arc::new(MetricStore::default());
        let handlers: Vec<Metrics> = (0..101).map(|_| handler(&store, "a", None)).collect();
        for metrics in &handlers {
            let calls = metrics.counter("calls", "Calls", ["path"]);
            for path in 0..200 {
                calls.with([&path.to_string()]).inc();
            }
        }
        assert!(store.encode().unwrap().contains("path=\"other\"} 200\n"));
        handlers.iter().for_each(Metrics::end);
        drop(handlers);
        assert_eq!(store.series.load(Relaxed), 0);
    }

    #[test]
    #[should_panic(expected = "cannot be the name of a label")]
    fn the_label_of_handlers_is_taken() {
        handler(&Arc::default(), "a", None).counter("calls", "Calls", ["handler"]);
    }
}
