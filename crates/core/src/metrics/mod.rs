//! Metrics of adapters on the metrics page.
//!
//! [`Context::metrics`](crate::Context::metrics) has the metrics of a handler: counters, gauges and histograms with labels, which are
//! removed when the handler is closed, and counters of [events](Metrics::events) of the adapter, which remain.
//!
//! ```
//! use mixer_adapter_core::{Context, metrics::exponential_buckets};
//!
//! let context = Context::detached(());
//! let answers = context.metrics().counter("answers", "Answers of the service", ["outcome"]);
//! answers.with(["found"]).inc();
//! let times = context.metrics().histogram(
//!     "answer_seconds", "Time until the service answers", [], exponential_buckets(0.001, 2.0, 12),
//! );
//! times.with([]).observe(0.02);
//! ```

mod budget;
mod series;
mod store;

pub use prometheus_client;
pub use prometheus_client::metrics::{
    counter::Counter,
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets, linear_buckets},
};
pub use series::Series;
#[doc(hidden)]
pub use store::MetricStore;
pub use store::{Events, Metrics};
