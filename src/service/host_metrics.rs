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
        let help = "Calls and connections that were refused or ended by a limit, by the name of its flag";
        families.counters("mixer_adapter_limits_hit", help, "limit", hits.counts())
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
    let help = "Calls that ended, by adapter (empty where none was reached), template and gRPC code";
    families.encode(("mixer_adapter_calls", help), None, ["adapter", "template", "code"], calls)?;
    let help = "What adapters count: things dropped, refused or failed, by adapter and event";
    let events = host.adapters().event_counts().into_iter();
    let events =
        events.map(|(adapter, event, count)| ([adapter.into(), event.into()], ConstCounter::new(count)));
    families.encode(("mixer_adapter_events", help), None, ["adapter", "event"], events)?;
    let used = series.iter().filter(|(.., metrics)| metrics.codes().next().is_some());
    let latencies = used
        .map(|(adapter, template, metrics)| ([Cow::from(*adapter), Cow::from(*template)], metrics.latency()));
    let name = ("mixer_adapter_handle_duration", "Time from a decoded request to its answer");
    families.encode(name, Some(Unit::Seconds), ["adapter", "template"], latencies)
}

fn sessions(host: &Host, families: &mut Families<'_>) -> Encoded {
    let counts = host.counts();
    families.gauges("mixer_adapter_sessions", "Open sessions", "adapter", host.sessions().counts())?;
    let opens = loaded(["ok", "refused"], [&counts.opened, &counts.refused]);
    families.counters("mixer_adapter_session_opens", "CreateSession calls, by result", "result", opens)?;
    let ends = loaded(["closed", "expired", "evicted"], [&counts.closed, &counts.expired, &counts.evicted]);
    let help = "Sessions that ended: closed by their last CloseSession, expired without use, or evicted for those of other connections";
    families.counters("mixer_adapter_session_ends", help, "reason", ends)?;
    if let Some(is_reached) = host.reaches_session_store() {
        let help = "Whether there is a connection to the Redis of --sessions";
        families.gauge("mixer_adapter_session_store_connected", help, usize::from(is_reached))?;
        let help = "Sessions of other servers that were opened here";
        families.counter("mixer_adapter_sessions_loaded", help, counts.loaded.load(Relaxed))?;
    }
    let panics = host.adapters().iter().map(|adapter| (adapter.name, adapter.panics()));
    families.counters("mixer_adapter_panics", "Panics in handlers", "adapter", panics)?;
    let help = "Calls and sessions refused with RESOURCE_EXHAUSTED, by limit";
    families.counters("mixer_adapter_limit_refusals", help, "limit", host.refusals().counts())
}

fn handlers(host: &Host, families: &mut Families<'_>) -> Encoded {
    let handlers = host.handlers();
    let help = "Cached handlers of calls that carry their configuration";
    families.gauge("mixer_adapter_cached_handlers", help, handlers.cached_count())?;
    let help = "Cached handlers that were evicted: for others, or after the idle time";
    families.counters("mixer_adapter_handlers_evicted", help, "adapter", handlers.evicted_counts())?;
    let states = handlers.states();
    let help = "States of closed handlers, such as counters of quotas, that are retained";
    families.gauge("mixer_adapter_retained_states", help, states.retained_count())?;
    let help = "Estimated memory of the states of closed handlers";
    families.gauge("mixer_adapter_retained_state_bytes", help, states.retained_bytes())?;
    let help =
        "States of closed handlers that were evicted before their time, because they took too much memory";
    families.counter("mixer_adapter_retained_states_evicted", help, states.evicted())?;
    families.gauge("mixer_adapter_open_handlers", "Open handlers", handlers.live_count())
}
