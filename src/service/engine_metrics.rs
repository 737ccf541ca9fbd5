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
use mixer_adapter_host::metrics::{CallMetrics, Latency};

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
    families.counters("mixer_adapter_checks", "Checks, by outcome", "outcome", checks)?;
    let name = ("mixer_adapter_check_duration", "Time from a decoded check to its answer");
    families.encode(name, Some(Unit::Seconds), [], [([], &counts.check_latency)])?;
    let help = "Reports, by whether the whole report was delivered";
    let reports = loaded(REPORT_OUTCOMES, counts.reports.each_ref());
    families.counters("mixer_adapter_reports", help, "outcome", reports)?;
    let help = "Quota requests, by grant: all of the amount, a part, nothing";
    let quotas = loaded(QUOTA_OUTCOMES, counts.quotas.each_ref());
    families.counters("mixer_adapter_quotas", help, "outcome", quotas)?;
    let help = "Calls that exceeded a limit, by limit";
    let over_limit = loaded(RequestLimit::NAMES, counts.over_limit.each_ref());
    families.counters("mixer_adapter_requests_over_limit", help, "limit", over_limit)?;
    for (name, help, count) in [
        ("mixer_adapter_reported_requests", "Requests in reports", &counts.reported_requests),
        (
            "mixer_adapter_condition_errors",
            "Conditions of rules that could not be evaluated",
            &counts.condition_errors,
        ),
        (
            "mixer_adapter_status_details_omitted",
            "Details of denials and errors that were omitted from answers because of their size",
            &counts.omitted_details,
        ),
        ("mixer_adapter_unknown_quotas", "Requests for a quota that no rule has", &counts.unknown_quotas),
    ] {
        families.counter(name, help, count.load(Relaxed))?;
    }
    Ok(())
}

fn snapshot(mixer: &Mixer, families: &mut Families<'_>) -> Encoded {
    let size = mixer.snapshot().map(|snapshot| snapshot.size());
    let (rules, handlers) = size.map_or((0, 0), |size| (size.rules, size.handlers));
    families.gauge("mixer_adapter_rules", "Rules in use", rules)?;
    families.gauge("mixer_adapter_handlers", "Handlers in use by rules", handlers)?;
    let help = "Time since the configuration came into use; no value before the first one";
    size.map_or(Ok(()), |size| {
        families.measure("mixer_adapter_snapshot_age", help, Unit::Seconds, size.age.as_secs_f64())
    })
}

/// Encodes the counters of used rules, handlers and instances.
fn resources(mixer: &Mixer, families: &mut Families<'_>) -> Encoded {
    let Some(snapshot) = mixer.snapshot() else { return Ok(()) };
    let counts = snapshot.resource_counts();
    let rules = counts.rules.all();
    let of_rules: [(_, _, CounterOf<RuleCounts>); 5] = [
        (
            "mixer_adapter_rule_matches",
            "Evaluations in which the condition of a rule matched, and cached answers of such evaluations",
            |rule| &rule.matched,
        ),
        (
            "mixer_adapter_rule_cached_matches",
            "Cached answers among the matches of a rule, which call no handler",
            |rule| &rule.cached,
        ),
        ("mixer_adapter_rule_denials", "Denials by an action of a rule, also by cached answers", |rule| {
            &rule.denied
        }),
        (
            "mixer_adapter_rule_instance_errors",
            "Instances of the actions of a rule that could not be built",
            |rule| &rule.unbuilt,
        ),
        (
            "mixer_adapter_rule_errors",
            "Evaluations in which the condition of a rule could not be evaluated",
            |rule| &rule.failed,
        ),
    ];
    for (name, help, of) in of_rules {
        families.used(
            name,
            help,
            "rule",
            rules.iter().map(|(rule, counts)| (&**rule, of(counts).load(Relaxed))),
        )?;
    }
    let calls = rules.iter().map(|(rule, counts)| (&**rule, &counts.calls));
    let name = ("mixer_adapter_rule_calls", "Calls of handlers for a rule, by gRPC code");
    families.encode(name, None, ["rule", "code"], calls.clone().flat_map(calls_by_code))?;
    let durations = calls.map(|(rule, calls)| (rule, calls.latency()));
    let help = "Time of calls of handlers for a rule";
    latencies(families, ("mixer_adapter_rule_call_duration", help), "rule", durations)?;
    let instances = counts.instances.all();
    let of_instances: [(_, _, CounterOf<InstanceCounts>); 2] = [
        ("mixer_adapter_instances_built", "Instances built", |instance| &instance.built),
        ("mixer_adapter_instance_errors", "Instances that could not be built", |instance| &instance.failed),
    ];
    for (name, help, of) in of_instances {
        let counts = instances.iter().map(|(instance, counts)| (&**instance, of(counts).load(Relaxed)));
        families.used(name, help, "instance", counts)?;
    }
    let handlers = counts.handlers.all();
    let calls = handlers.iter().map(|(handler, counts)| (&**handler, &counts.calls));
    let name = ("mixer_adapter_handler_calls", "Calls of handlers by rules, by gRPC code");
    families.encode(name, None, ["handler", "code"], calls.clone().flat_map(calls_by_code))?;
    let help = "Calls of handlers that cached answers made unnecessary";
    let cached = handlers.iter().map(|(handler, counts)| (&**handler, counts.cached.load(Relaxed)));
    families.used("mixer_adapter_handler_cached_calls", help, "handler", cached)?;
    let durations = calls.map(|(handler, calls)| (handler, calls.latency()));
    let name = ("mixer_adapter_handler_call_duration", "Time of calls of handlers by rules");
    latencies(families, name, "handler", durations)
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
    let help = "Checks that a cached answer could answer, by outcome";
    let requests = loaded(CacheOutcome::NAMES, counts.requests.each_ref());
    families.counters("mixer_adapter_check_cache_requests", help, "outcome", requests)?;
    let help = "Cached answers that were evicted because the cache was full";
    families.counter("mixer_adapter_check_cache_evictions", help, counts.evictions.load(Relaxed))?;
    let help = "Calls of adapters that cached answers made unnecessary";
    families.counter("mixer_adapter_check_cache_saved_calls", help, counts.saved_calls.load(Relaxed))?;
    let size = snapshot.cache_size();
    families.gauge("mixer_adapter_check_cache_answers", "Cached answers to checks", size.answers)?;
    let help = "Memory of cached answers to checks";
    families.measure("mixer_adapter_check_cache_size", help, Unit::Bytes, size.bytes as f64)
}

fn shadow(mixer: &Mixer, families: &mut Families<'_>) -> Encoded {
    let used = ShadowKind::ALL.map(|kind| (kind.name(), mixer.shadow().counts(kind)));
    let used = used.iter().filter(|(_, counts)| counts.is_used());
    let results = used.clone().flat_map(|(shadow, counts)| {
        let results = counts.results().into_iter();
        results.map(|(result, count)| ([(*shadow).into(), result.into()], ConstCounter::new(count)))
    });
    let name =
        ("mixer_adapter_shadow_evaluations", "Evaluations in the shadow, by comparison with the answer");
    families.encode(name, None, ["shadow", "result"], results)?;
    let rules: Vec<_> = used
        .flat_map(|(shadow, counts)| counts.rules().into_iter().map(move |rule| (*shadow, rule)))
        .collect();
    let differences = rules.iter().flat_map(|(shadow, (rule, counts))| {
        let differences = ShadowDifference::NAMES.into_iter().zip(*counts).filter(|(_, count)| *count > 0);
        differences.map(move |(difference, count)| {
            ([(*shadow).into(), (&**rule).into(), difference.into()], ConstCounter::new(count))
        })
    });
    let name =
        ("mixer_adapter_shadow_rule_differences", "Evaluations in the shadow with another answer, by rule");
    families.encode(name, None, ["shadow", "rule", "difference"], differences)
}

fn decision_log(mixer: &Mixer, families: &mut Families<'_>) -> Encoded {
    let Some(counts) = mixer.decision_log().counts() else { return Ok(()) };
    let lines = loaded(["written", "dropped", "failed"], [&counts.written, &counts.dropped, &counts.failed]);
    let help = "Lines of the decision log, by result";
    families.counters("mixer_adapter_decision_log_lines", help, "result", lines)
}

fn updates(status: &ConfigStatus, families: &mut Families<'_>) -> Encoded {
    let updates = [("applied", status.applied), ("rejected", status.rejected)];
    let help = "Updates of the configuration, by result";
    families.counters("mixer_adapter_config_updates", help, "result", updates)?;
    let help = "Times that a source has lost all its resources, which was not applied";
    families.counter("mixer_adapter_config_losses", help, status.lost)?;
    let help = "Uses of deprecated fields that configuration added";
    let fields = status.deprecated_fields.iter().map(|(field, uses)| (field.as_str(), *uses));
    families.used("mixer_adapter_deprecated_feature_use", help, "field", fields)?;
    let help = "Non-fatal faults of the configuration in use, including warnings";
    families.gauge("mixer_adapter_config_faults", help, status.faults.len())?;
    let help = "1 if the last update was rejected, so that an older configuration is in use";
    families.gauge("mixer_adapter_config_is_stale", help, usize::from(!status.refusal.is_empty()))?;
    let resources = status.resources.iter().map(|(collection, count)| (collection.as_str(), *count));
    families.gauges(
        "mixer_adapter_config_resources",
        "Resources in use, by collection",
        "collection",
        resources,
    )
}

/// Encodes a histogram for each resource that has a duration.
fn latencies<'r>(
    families: &mut Families<'_>,
    name: (&str, &str),
    label: &'static str,
    latencies: impl Iterator<Item = (&'r str, &'r Latency)>,
) -> Encoded {
    let latencies = latencies.filter(|(_, latency)| latency.mean().is_some());
    let latencies = latencies.map(|(resource, latency)| ([resource.into()], latency));
    families.encode(name, Some(Unit::Seconds), [label], latencies)
}
