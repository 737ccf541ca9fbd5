//! Metrics of a host, and of the limits of its server.

use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use prometheus_client::{
    metrics::counter::ConstCounter,
    registry::{Registry, Unit},
};

use super::metrics_encoder::{Encoded, Families, Scraped, loaded};
use mixer_adapter_core::framework::status::status_name;
use mixer_adapter_host::{Host, metrics::CallMetrics};
use mixer_adapter_net::LimitHits;

/// Returns the metrics of a host.
pub(super) fn registry(host: &Arc<Host>) -> Registry {
    let mut registry = Registry::default();
    let host = host.clone();
    registry.register_collector(Box::new(Scraped(move |families: &mut Families<'_>| {
        calls(&host, families)?;
        sessions(&host, families)?;
        handlers(&host, families)
    })));
    registry
}

/// Adds the metrics of how often the limits of a server were hit.
pub(crate) fn add_limits(registry: &mut Registry, hits: Arc<LimitHits>) {
    registry.register_collector(Box::new(Scraped(move |families: &mut Families<'_>| {
        families.counters("mixer_adapter_limits_hit", "limit", hits.counts())
    })));
}

/// Encodes the calls by adapter (empty where none was reached), template and code, and the events of adapters.
fn calls(host: &Host, families: &mut Families<'_>) -> Encoded {
    let methods = host.adapters().methods();
    let series = methods.flat_map(|method| {
        let (template, _) = method.template();
        method.metrics().into_iter().map(move |(adapter, metrics)| (adapter, template, metrics))
    });
    let mut series: Vec<(&str, &str, Arc<CallMetrics>)> = series.collect();
    series.sort_by_key(|(adapter, template, _)| (*adapter, *template));
    let calls = series.iter().flat_map(|(adapter, template, metrics)| {
        let counts = metrics.codes();
        counts.map(|(code, count)| {
            let labels = [Cow::from(*adapter), Cow::from(*template), status_name(code as i32)];
            (labels, ConstCounter::new(count))
        })
    });
    families.encode("mixer_adapter_calls", None, ["adapter", "template", "code"], calls)?;
    let events = host.adapters().event_counts().into_iter();
    let events =
        events.map(|(adapter, event, count)| ([adapter.into(), event.into()], ConstCounter::new(count)));
    families.encode("mixer_adapter_events", None, ["adapter", "event"], events)?;
    let used = series.iter().filter(|(.., metrics)| metrics.codes().next().is_some());
    let latencies = used
        .map(|(adapter, template, metrics)| ([Cow::from(*adapter), Cow::from(*template)], metrics.latency()));
    families.encode("mixer_adapter_handle_duration", Some(Unit::Seconds), ["adapter", "template"], latencies)
}

fn sessions(host: &Host, families: &mut Families<'_>) -> Encoded {
    let counts = host.counts();
    families.gauges("mixer_adapter_sessions", "adapter", host.sessions().counts())?;
    let opens = loaded(["ok", "refused"], [&counts.opened, &counts.refused]);
    families.counters("mixer_adapter_session_opens", "result", opens)?;
    let ends = loaded(["closed", "expired", "evicted"], [&counts.closed, &counts.expired, &counts.evicted]);
    families.counters("mixer_adapter_session_ends", "reason", ends)?;
    if let Some(is_reached) = host.reaches_session_store() {
        families.gauge("mixer_adapter_session_store_connected", usize::from(is_reached))?;
        families.counter("mixer_adapter_sessions_loaded", counts.loaded.load(Relaxed))?;
    }
    let panics = host.adapters().iter().map(|adapter| (adapter.name, adapter.panics()));
    families.counters("mixer_adapter_panics", "adapter", panics)?;
    families.counters("mixer_adapter_limit_refusals", "limit", host.refusals().counts())
}

fn handlers(host: &Host, families: &mut Families<'_>) -> Encoded {
    let handlers = host.handlers();
    families.gauge("mixer_adapter_cached_handlers", handlers.cached_count())?;
    families.counters("mixer_adapter_handlers_evicted", "adapter", handlers.evicted_counts())?;
    let states = handlers.states();
    families.gauge("mixer_adapter_retained_states", states.retained_count())?;
    families.gauge("mixer_adapter_retained_state_bytes", states.retained_bytes())?;
    families.counter("mixer_adapter_retained_states_evicted", states.evicted())?;
    families.gauge("mixer_adapter_open_handlers", handlers.live_count())
}
