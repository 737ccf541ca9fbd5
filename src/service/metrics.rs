//! Metrics of a host, read from the host at each scrape.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, registry::Registry};

use super::series::{Encoded, counter, counters, gauge, gauges};
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
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        self.sessions(&mut encoder)?;
        self.handlers(&mut encoder)
    }
}

impl HostMetrics {
    fn sessions(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let (host, counts) = (&self.host, self.host.counts());
        let sessions = host.sessions().counts();
        gauges(encoder, "mixer_adapter_sessions", "Open sessions", "adapter", sessions)?;
        let opens = [("ok", &counts.opened), ("refused", &counts.refused)].map(loaded);
        let help = "CreateSession calls, by result";
        counters(encoder, "mixer_adapter_session_opens", help, "result", opens)?;
        let ends = [("closed", &counts.closed), ("expired", &counts.expired), ("evicted", &counts.evicted)];
        let help = "Sessions that ended: closed by their last CloseSession, expired without use, or evicted for those of other connections";
        counters(encoder, "mixer_adapter_session_ends", help, "reason", ends.map(loaded))?;
        let panics = host.adapters().iter().map(|adapter| (adapter.name, adapter.panics()));
        counters(encoder, "mixer_adapter_panics", "Panics in handlers", "adapter", panics)?;
        let help = "Calls and sessions refused with RESOURCE_EXHAUSTED, by limit";
        counters(encoder, "mixer_adapter_limit_refusals", help, "limit", host.refusals().counts())
    }

    fn handlers(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let handlers = self.host.handlers();
        let help = "Cached handlers of calls that carry their configuration";
        gauge(encoder, "mixer_adapter_cached_handlers", help, handlers.cached_count() as i64)?;
        let help = "Cached handlers that were evicted: for others, or after the idle time";
        counters(encoder, "mixer_adapter_handlers_evicted", help, "adapter", handlers.evicted_counts())?;
        let states = handlers.states();
        let help = "States of closed handlers, such as counters of quotas, that are retained";
        gauge(encoder, "mixer_adapter_retained_states", help, states.retained_count() as i64)?;
        let help = "Estimated memory of the states of closed handlers";
        gauge(encoder, "mixer_adapter_retained_state_bytes", help, states.retained_bytes() as i64)?;
        let help = "States of closed handlers that were evicted before their time, because they took too much memory";
        counter(encoder, "mixer_adapter_retained_states_evicted", help, states.evicted())?;
        gauge(encoder, "mixer_adapter_open_handlers", "Open handlers", handlers.live_count() as i64)
    }
}

fn loaded((name, count): (&'static str, &AtomicU64)) -> (&'static str, u64) {
    (name, count.load(Relaxed))
}

/// How often the limits of the server were hit.
#[derive(Debug)]
pub(crate) struct LimitMetrics(pub(crate) Arc<LimitHits>);

impl Collector for LimitMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let hits = Limit::ALL.map(|limit| (limit.name(), self.0.get(limit)));
        let help = "Calls and connections that were refused or ended by a limit, by the name of its flag";
        counters(&mut encoder, "mixer_adapter_limits_hit", help, "limit", hits)
    }
}
