//! Metrics of the engine and its configuration.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use prometheus_client::{metrics::counter::ConstCounter, registry::Unit};

use super::metrics_encoder::{Encoded, Families, loaded};
use mixer_adapter_core::framework::status::status_name;
use mixer_adapter_engine::{
    CacheOutcome, CheckOutcome, ConfigStatus, InstanceCounts, Mixer, QUOTA_OUTCOMES, REPORT_OUTCOMES,
    RequestLimit, RuleCounts, ShadowDifference, ShadowKind,
};
use mixer_adapter_host::metrics::CallMetrics;

/// Selects a counter.
type CounterOf<T> = fn(&T) -> &AtomicU64;

/// Encodes the metrics of an engine, and of its configuration if the status is known.
pub(super) fn encode(
    mixer: &Mixer,
    config: Option<&Arc<Mutex<ConfigStatus>>>,
    families: &mut Families<'_>,
) -> Encoded {
    requests(mixer, families)?;
    snapshot(mixer, families)?;
    resources(mixer, families)?;
    check_cache(mixer, families)?;
    shadow(mixer, families)?;
    decision_log(mixer, families)?;
    config.map_or(Ok(()), |config| {
        let status = config.lock().clone();
        updates(&status, families)
    })
}

fn requests(mixer: &Mixer, families: &mut Families<'_>) -> Encoded {
    let counts = mixer.counts();
    let checks = loaded(CheckOutcome::NAMES, counts.checks.each_ref());
    families.counters("mixer_adapter_checks", "outcome", checks)?;
    families.encode(
        "mixer_adapter_check_duration",
        Some(Unit::Seconds),
        [],
        [([], &counts.check_latency)],
    )?;
    let reports = loaded(REPORT_OUTCOMES, counts.reports.each_ref());
    families.counters("mixer_adapter_reports", "outcome", reports)?;
    let quotas = loaded(QUOTA_OUTCOMES, counts.quotas.each_ref());
    families.counters("mixer_adapter_quotas", "outcome", quotas)?;
    let over_limit = loaded(RequestLimit::NAMES, counts.over_limit.each_ref());
    families.counters("mixer_adapter_requests_over_limit", "limit", over_limit)?;
    for (name, count) in [
        ("mixer_adapter_reported_requests", &counts.reported_requests),
        ("mixer_adapter_condition_errors", &counts.condition_errors),
        ("mixer_adapter_status_details_omitted", &counts.omitted_details),
        ("mixer_adapter_unknown_quotas", &counts.unknown_quotas),
    ] {
        families.counter(name, count.load(Relaxed))?;
    }
    Ok(())
}

fn snapshot(mixer: &Mixer, families: &mut Families<'_>) -> Encoded {
    let size = mixer.snapshot().map(|snapshot| snapshot.size());
    let (rules, handlers) = size.map_or((0, 0), |size| (size.rules, size.handlers));
    families.gauge("mixer_adapter_rules", rules)?;
    families.gauge("mixer_adapter_handlers", handlers)?;
    size.map_or(Ok(()), |size| {
        families.measure("mixer_adapter_snapshot_age", Unit::Seconds, size.age.as_secs_f64())
    })
}

/// Encodes the counters of used rules, handlers and instances.
fn resources(mixer: &Mixer, families: &mut Families<'_>) -> Encoded {
    let Some(snapshot) = mixer.snapshot() else { return Ok(()) };
    let counts = snapshot.resource_counts();
    let rules = counts.rules.all();
    let of_rules: [(_, CounterOf<RuleCounts>); 5] = [
        ("mixer_adapter_rule_matches", |rule| &rule.matched),
        ("mixer_adapter_rule_cached_matches", |rule| &rule.cached),
        ("mixer_adapter_rule_denials", |rule| &rule.denied),
        ("mixer_adapter_rule_instance_errors", |rule| &rule.unbuilt),
        ("mixer_adapter_rule_errors", |rule| &rule.failed),
    ];
    for (name, of) in of_rules {
        let counts = rules.iter().map(|(rule, counts)| (&**rule, of(counts).load(Relaxed)));
        families.used(name, "rule", counts)?;
    }
    let of_rules = rules.iter().map(|(rule, counts)| (&**rule, &counts.calls));
    calls(families, ["mixer_adapter_rule_calls", "mixer_adapter_rule_call_duration"], "rule", of_rules)?;
    let instances = counts.instances.all();
    let of_instances: [(_, CounterOf<InstanceCounts>); 2] = [
        ("mixer_adapter_instances_built", |instance| &instance.built),
        ("mixer_adapter_instance_errors", |instance| &instance.failed),
    ];
    for (name, of) in of_instances {
        let counts = instances.iter().map(|(instance, counts)| (&**instance, of(counts).load(Relaxed)));
        families.used(name, "instance", counts)?;
    }
    let handlers = counts.handlers.all();
    let cached = handlers.iter().map(|(handler, counts)| (&**handler, counts.cached.load(Relaxed)));
    families.used("mixer_adapter_handler_cached_calls", "handler", cached)?;
    let of_handlers = handlers.iter().map(|(handler, counts)| (&**handler, &counts.calls));
    let names = ["mixer_adapter_handler_calls", "mixer_adapter_handler_call_duration"];
    calls(families, names, "handler", of_handlers)
}

/// Encodes the calls of each resource by code, and their durations.
fn calls<'r>(
    families: &mut Families<'_>,
    [by_code, duration]: [&str; 2],
    label: &'static str,
    calls: impl Iterator<Item = (&'r str, &'r CallMetrics)> + Clone,
) -> Encoded {
    families.encode(by_code, None, [label, "code"], calls.clone().flat_map(calls_by_code))?;
    let used = calls.filter(|(_, calls)| calls.latency().mean().is_some());
    let latencies = used.map(|(resource, calls)| ([resource.into()], calls.latency()));
    families.encode(duration, Some(Unit::Seconds), [label], latencies)
}

/// Returns the calls of a resource by code.
fn calls_by_code<'r>(
    (resource, calls): (&'r str, &'r CallMetrics),
) -> impl Iterator<Item = ([Cow<'r, str>; 2], ConstCounter<u64>)> {
    calls
        .codes()
        .map(move |(code, count)| ([resource.into(), status_name(code as i32)], ConstCounter::new(count)))
}

fn check_cache(mixer: &Mixer, families: &mut Families<'_>) -> Encoded {
    let Some(snapshot) = mixer.snapshot().filter(|snapshot| snapshot.has_cache()) else { return Ok(()) };
    let counts = snapshot.cache_counts();
    let requests = loaded(CacheOutcome::NAMES, counts.requests.each_ref());
    families.counters("mixer_adapter_check_cache_requests", "outcome", requests)?;
    families.counter("mixer_adapter_check_cache_evictions", counts.evictions.load(Relaxed))?;
    families.counter("mixer_adapter_check_cache_saved_calls", counts.saved_calls.load(Relaxed))?;
    let size = snapshot.cache_size();
    families.gauge("mixer_adapter_check_cache_answers", size.answers)?;
    families.measure("mixer_adapter_check_cache_size", Unit::Bytes, size.bytes as f64)
}

fn shadow(mixer: &Mixer, families: &mut Families<'_>) -> Encoded {
    let used = ShadowKind::ALL.map(|kind| (kind.name(), mixer.shadow().counts(kind)));
    let used = used.iter().filter(|(_, counts)| counts.is_used());
    let results = used.clone().flat_map(|(shadow, counts)| {
        let results = counts.results().into_iter();
        results.map(|(result, count)| ([(*shadow).into(), result.into()], ConstCounter::new(count)))
    });
    families.encode("mixer_adapter_shadow_evaluations", None, ["shadow", "result"], results)?;
    let rules: Vec<_> = used
        .flat_map(|(shadow, counts)| counts.rules().into_iter().map(move |rule| (*shadow, rule)))
        .collect();
    let differences = rules.iter().flat_map(|(shadow, (rule, counts))| {
        let differences = ShadowDifference::NAMES.into_iter().zip(*counts).filter(|(_, count)| *count > 0);
        differences.map(move |(difference, count)| {
            ([(*shadow).into(), (&**rule).into(), difference.into()], ConstCounter::new(count))
        })
    });
    families.encode(
        "mixer_adapter_shadow_rule_differences",
        None,
        ["shadow", "rule", "difference"],
        differences,
    )
}

fn decision_log(mixer: &Mixer, families: &mut Families<'_>) -> Encoded {
    let Some(counts) = mixer.decision_log().counts() else { return Ok(()) };
    let lines = loaded(["written", "dropped", "failed"], [&counts.written, &counts.dropped, &counts.failed]);
    families.counters("mixer_adapter_decision_log_lines", "result", lines)
}

fn updates(status: &ConfigStatus, families: &mut Families<'_>) -> Encoded {
    let updates = [("applied", status.applied), ("rejected", status.rejected)];
    families.counters("mixer_adapter_config_updates", "result", updates)?;
    families.counter("mixer_adapter_config_losses", status.lost)?;
    let fields = status.deprecated_fields.iter().map(|(field, uses)| (field.as_str(), *uses));
    families.used("mixer_adapter_deprecated_feature_use", "field", fields)?;
    families.gauge("mixer_adapter_config_faults", status.faults.len())?;
    families.gauge("mixer_adapter_config_is_stale", usize::from(!status.refusal.is_empty()))?;
    let resources = status.resources.iter().map(|(collection, count)| (collection.as_str(), *count));
    families.gauges("mixer_adapter_config_resources", "collection", resources)
}
