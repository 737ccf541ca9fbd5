//! Metrics of a host, read from the host at each scrape.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use mixer_adapter_host::{Host, metrics::Calls};
use mixer_adapter_net::{Limit, LimitHits};

pub(super) fn registry(host: &Arc<Host>) -> Registry {
    let mut registry = Registry::default();
    let methods = host.adapters().methods();
    let series = methods.flat_map(|method| {
        let (template, _) = method.template();
        method.metrics().into_iter().map(move |(adapter, metrics)| (adapter, template, metrics))
    });
    let mut series: Vec<_> = series.collect();
    series.sort_by_key(|(adapter, template, _)| (*adapter, *template));
    registry.register_collector(Box::new(Calls { series }));
    registry.register_collector(Box::new(HostMetrics { host: host.clone() }));
    registry
}

struct HostMetrics {
    host: Arc<Host>,
}

impl std::fmt::Debug for HostMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostMetrics")
    }
}

impl Collector for HostMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let host = &self.host;
        let mut sessions =
            encoder.encode_descriptor("mixer_adapter_sessions", "Open sessions", None, MetricType::Gauge)?;
        for (adapter, count) in host.sessions().counts() {
            ConstGauge::new(count as i64).encode(sessions.encode_family(&[("adapter", adapter)])?)?;
        }
        let mut opens = encoder.encode_descriptor(
            "mixer_adapter_session_opens",
            "CreateSession calls, by result",
            None,
            MetricType::Counter,
        )?;
        let counts = host.counts();
        for (result, count) in [("ok", &counts.opened), ("refused", &counts.refused)] {
            ConstCounter::new(count.load(Relaxed)).encode(opens.encode_family(&[("result", result)])?)?;
        }
        let mut ends = encoder.encode_descriptor(
            "mixer_adapter_session_ends",
            "Sessions that ended: closed by their last CloseSession, expired without use, or evicted for those of other connections",
            None,
            MetricType::Counter,
        )?;
        for (reason, count) in
            [("closed", &counts.closed), ("expired", &counts.expired), ("evicted", &counts.evicted)]
        {
            ConstCounter::new(count.load(Relaxed)).encode(ends.encode_family(&[("reason", reason)])?)?;
        }
        let mut panics = encoder.encode_descriptor(
            "mixer_adapter_panics",
            "Panics in handlers",
            None,
            MetricType::Counter,
        )?;
        for adapter in host.adapters().iter() {
            let count = ConstCounter::new(adapter.panics());
            count.encode(panics.encode_family(&[("adapter", adapter.name)])?)?;
        }
        let mut refusals = encoder.encode_descriptor(
            "mixer_adapter_limit_refusals",
            "Calls and sessions refused with RESOURCE_EXHAUSTED, by limit",
            None,
            MetricType::Counter,
        )?;
        for (limit, count) in host.refusals().counts() {
            ConstCounter::new(count).encode(refusals.encode_family(&[("limit", limit)])?)?;
        }
        let handlers = host.handlers();
        let cached = encoder.encode_descriptor(
            "mixer_adapter_cached_handlers",
            "Cached handlers of calls that carry their configuration",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(handlers.cached_count() as i64).encode(cached)?;
        let mut evicted = encoder.encode_descriptor(
            "mixer_adapter_handlers_evicted",
            "Cached handlers that were evicted: for others, or after the idle time",
            None,
            MetricType::Counter,
        )?;
        for (adapter, count) in handlers.evicted_counts() {
            ConstCounter::new(count).encode(evicted.encode_family(&[("adapter", adapter)])?)?;
        }
        let states = handlers.states();
        let retained = encoder.encode_descriptor(
            "mixer_adapter_retained_states",
            "States of closed handlers, such as counters of quotas, that are retained",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(states.retained_count() as i64).encode(retained)?;
        let bytes = encoder.encode_descriptor(
            "mixer_adapter_retained_state_bytes",
            "Estimated memory of the states of closed handlers",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(states.retained_bytes() as i64).encode(bytes)?;
        let evicted = encoder.encode_descriptor(
            "mixer_adapter_retained_states_evicted",
            "States of closed handlers that were evicted before their time, because they took too much memory",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(states.evicted()).encode(evicted)?;
        let open = encoder.encode_descriptor(
            "mixer_adapter_open_handlers",
            "Open handlers",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(handlers.live_count() as i64).encode(open)
    }
}

/// How often the limits of the server were hit.
#[derive(Debug)]
pub(super) struct LimitMetrics(pub(super) Arc<LimitHits>);

impl Collector for LimitMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut hits = encoder.encode_descriptor(
            "mixer_adapter_limits_hit",
            "Calls and connections that were refused or ended by a limit, by the name of its flag",
            None,
            MetricType::Counter,
        )?;
        for limit in Limit::ALL {
            let count = ConstCounter::new(self.0.get(limit));
            count.encode(hits.encode_family(&[("limit", limit.name())])?)?;
        }
        Ok(())
    }
}
