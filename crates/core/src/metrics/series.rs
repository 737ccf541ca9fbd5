use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use prometheus_client::metrics::family::{Family, MetricConstructor};

use super::budget::Budget;

/// The largest number of series of one metric of a handler.
const MAX_SERIES: usize = 200;

/// The length of the value of a label in bytes; the rest is cut off.
const MAX_VALUE: usize = 128;

/// The value of all labels of the series that is used when a metric has its maximum of series.
pub(super) const OTHER: &str = "other";

/// A metric with `N` labels: a counter, gauge or histogram for each combination of their values. Clones are the same metric.
///
/// A metric has up to 200 series, and all handlers together 20 000. Further values share a series whose labels are `other`; values
/// are cut off at 128 bytes.
#[derive(Clone, Debug)]
pub struct Series<M, const N: usize> {
    labels: [&'static str; N],
    pub(super) family: Family<Labels, M, Constructor<M>>,
    /// The number of series, without the series `other`.
    count: Arc<AtomicUsize>,
    budget: Arc<Budget>,
}

/// Names and values.
type Labels = Vec<(&'static str, String)>;

impl<M: Clone, const N: usize> Series<M, N> {
    pub(super) fn new(
        labels: [&'static str; N],
        create: impl Fn() -> M + Send + Sync + 'static,
        budget: Arc<Budget>,
    ) -> Self {
        let family = Family::new_with_constructor(Constructor(Arc::new(create)));
        Self { labels, family, count: Arc::default(), budget }
    }

    /// Returns the counter, gauge or histogram with these values of the labels.
    pub fn with(&self, values: [&str; N]) -> M {
        let labels = self.labelled(values);
        if let Some(known) = self.family.get(&labels) {
            return known.clone();
        }
        // Callers at the same time may count a series twice.
        if self.count.load(Relaxed) >= MAX_SERIES || !self.budget.take() {
            return self.family.get_or_create_owned(&self.labelled([OTHER; N]));
        }
        self.count.fetch_add(1, Relaxed);
        self.family.get_or_create_owned(&labels)
    }

    fn labelled(&self, values: [&str; N]) -> Labels {
        let values = values.map(|value| value[..value.floor_char_boundary(MAX_VALUE)].to_owned());
        self.labels.into_iter().zip(values).collect()
    }
}

/// Creates the metrics of a family.
#[derive(Clone)]
pub(super) struct Constructor<M>(Arc<dyn Fn() -> M + Send + Sync>);

impl<M> MetricConstructor<M> for Constructor<M> {
    fn new_metric(&self) -> M {
        (self.0)()
    }
}
