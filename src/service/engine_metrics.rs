//! Metrics of the engine, read at each scrape.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

use super::series::{Encoded, counter, counters, gauge, gauges};
use mixer_adapter_core::framework::status::status_name;
use mixer_adapter_engine::{
    CacheOutcome, CheckOutcome, ConfigStatus, InstanceCounts, Mixer, QUOTA_OUTCOMES, REPORT_OUTCOMES,
    RequestLimit, RuleCounts,
};
use mixer_adapter_host::metrics::Latency;

/// Metrics of requests, and of the configuration if its status is known.
pub(super) struct EngineMetrics {
    pub(super) mixer: Arc<Mixer>,
    pub(super) config: Option<Arc<Mutex<ConfigStatus>>>,
}

impl std::fmt::Debug for EngineMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineMetrics")
    }
}

/// Selects a counter.
type CounterOf<T> = fn(&T) -> &AtomicU64;

impl Collector for EngineMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        self.requests(&mut encoder)?;
        self.snapshot(&mut encoder)?;
        self.resources(&mut encoder)?;
        self.check_cache(&mut encoder)?;
        self.decision_log(&mut encoder)?;
        self.updates(&mut encoder)
    }
}

impl EngineMetrics {
    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let counts = self.mixer.counts();
        let checks = loaded(CheckOutcome::NAMES, &counts.checks);
        counters(encoder, "mixer_adapter_checks", "Checks, by outcome", "outcome", checks)?;
        let latency = encoder.encode_descriptor(
            "mixer_adapter_check_duration",
            "Time from a decoded check to its answer",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        (&counts.check_latency).encode(latency)?;
        let help = "Reports, by whether the whole report was delivered";
        let reports = loaded(REPORT_OUTCOMES, &counts.reports);
        counters(encoder, "mixer_adapter_reports", help, "outcome", reports)?;
        let help = "Quota requests, by grant: all of the amount, a part, nothing";
        let quotas = loaded(QUOTA_OUTCOMES, &counts.quotas);
        counters(encoder, "mixer_adapter_quotas", help, "outcome", quotas)?;
        let help = "Calls that exceeded a limit, by limit";
        let over_limit = loaded(RequestLimit::NAMES, &counts.over_limit);
        counters(encoder, "mixer_adapter_requests_over_limit", help, "limit", over_limit)?;
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
            counter(encoder, name, help, count.load(Relaxed))?;
        }
        Ok(())
    }

    fn snapshot(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let size = self.mixer.snapshot().map(|snapshot| snapshot.size());
        let (rules, handlers) = size.map_or((0, 0), |size| (size.rules, size.handlers));
        gauge(encoder, "mixer_adapter_rules", "Rules in use", rules as f64)?;
        gauge(encoder, "mixer_adapter_handlers", "Handlers in use by rules", handlers as f64)?;
        let age = encoder.encode_descriptor(
            "mixer_adapter_snapshot_age",
            "Time since the configuration came into use; no value before the first one",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        match size {
            Some(size) => ConstGauge::new(size.age.as_secs_f64()).encode(age),
            None => Ok(()),
        }
    }

    /// Encodes the counters by rule, handler and instance of those that were used.
    fn resources(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let Some(snapshot) = self.mixer.snapshot() else { return Ok(()) };
        let counts = snapshot.resource_counts();
        let rules = counts.rules();
        let of_rules: [(_, _, CounterOf<RuleCounts>); 3] = [
            ("mixer_adapter_rule_matches", "Evaluations in which the condition of a rule matched", |rule| {
                &rule.matched
            }),
            ("mixer_adapter_rule_denials", "Denials by an action of a rule", |rule| &rule.denied),
            (
                "mixer_adapter_rule_errors",
                "Evaluations in which the condition of a rule could not be evaluated",
                |rule| &rule.failed,
            ),
        ];
        for (name, help, of) in of_rules {
            let counts = rules.iter().map(|(rule, counts)| (&**rule, of(counts).load(Relaxed)));
            resources(encoder, name, help, "rule", counts)?;
        }
        let help = "Time of calls of handlers for a rule, without those of reports";
        let durations = rules.iter().map(|(rule, counts)| (&**rule, &counts.latency));
        latencies(encoder, "mixer_adapter_rule_call_duration", help, "rule", durations)?;
        let instances = counts.instances();
        let of_instances: [(_, _, CounterOf<InstanceCounts>); 2] = [
            ("mixer_adapter_instances_built", "Instances built", |instance| &instance.built),
            ("mixer_adapter_instance_errors", "Instances that could not be built", |instance| {
                &instance.failed
            }),
        ];
        for (name, help, of) in of_instances {
            let counts = instances.iter().map(|(instance, counts)| (&**instance, of(counts).load(Relaxed)));
            resources(encoder, name, help, "instance", counts)?;
        }
        let mut handlers = counts.handlers();
        handlers.retain(|(_, calls)| calls.codes().next().is_some());
        if handlers.is_empty() {
            return Ok(());
        }
        let help = "Calls of handlers by rules, by gRPC code";
        let name = "mixer_adapter_handler_calls";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (handler, calls) in &handlers {
            for (code, count) in calls.codes() {
                let labels = [("handler", &**handler), ("code", &*status_name(code as i32))];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Time of calls of handlers by rules";
        let durations = handlers.iter().map(|(handler, calls)| (&**handler, calls.latency()));
        latencies(encoder, "mixer_adapter_handler_call_duration", help, "handler", durations)
    }

    fn check_cache(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let Some(snapshot) = self.mixer.snapshot().filter(|snapshot| snapshot.has_cache()) else {
            return Ok(());
        };
        let counts = snapshot.cache_counts();
        let help = "Checks that a cached answer could answer, by outcome";
        let requests = loaded(CacheOutcome::NAMES, &counts.requests);
        counters(encoder, "mixer_adapter_check_cache_requests", help, "outcome", requests)?;
        for (name, help, count) in [
            (
                "mixer_adapter_check_cache_evictions",
                "Cached answers that were evicted because the cache was full",
                &counts.evictions,
            ),
            (
                "mixer_adapter_check_cache_saved_calls",
                "Calls of adapters that cached answers made unnecessary",
                &counts.saved_calls,
            ),
        ] {
            counter(encoder, name, help, count.load(Relaxed))?;
        }
        let size = snapshot.cache_size();
        gauge(encoder, "mixer_adapter_check_cache_answers", "Cached answers to checks", size.answers as f64)?;
        let bytes = encoder.encode_descriptor(
            "mixer_adapter_check_cache_size",
            "Memory of cached answers to checks",
            Some(&Unit::Bytes),
            MetricType::Gauge,
        )?;
        ConstGauge::new(size.bytes as i64).encode(bytes)
    }

    fn decision_log(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let Some(counts) = self.mixer.decision_log().counts() else { return Ok(()) };
        let lines = [("written", &counts.written), ("dropped", &counts.dropped), ("failed", &counts.failed)];
        let lines = lines.map(|(result, count)| (result, count.load(Relaxed)));
        let help = "Lines of the decision log, by result";
        counters(encoder, "mixer_adapter_decision_log_lines", help, "result", lines)
    }

    fn updates(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let Some(config) = &self.config else { return Ok(()) };
        let status = config.lock().clone();
        let updates = [("applied", status.applied), ("rejected", status.rejected)];
        let help = "Updates of the configuration, by result";
        counters(encoder, "mixer_adapter_config_updates", help, "result", updates)?;
        let help = "Times that a source has lost all its resources, which was not applied";
        counter(encoder, "mixer_adapter_config_losses", help, status.lost)?;
        let help = "Uses of deprecated fields that configuration added";
        let fields = status.deprecated_fields.iter().map(|(field, uses)| (field.as_str(), *uses));
        resources(encoder, "mixer_adapter_deprecated_feature_use", help, "field", fields)?;
        let help = "Non-fatal faults of the configuration in use, including warnings";
        gauge(encoder, "mixer_adapter_config_faults", help, status.faults.len() as f64)?;
        let help = "1 if the last update was rejected, so that an older configuration is in use";
        gauge(
            encoder,
            "mixer_adapter_config_is_stale",
            help,
            f64::from(u8::from(!status.refusal.is_empty())),
        )?;
        let resources = status.resources.iter().map(|(collection, count)| (collection.as_str(), *count));
        let help = "Resources in use, by collection";
        gauges(encoder, "mixer_adapter_config_resources", help, "collection", resources)
    }
}

/// One series for each resource whose count is not 0.
fn resources<'r>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    counts: impl Iterator<Item = (&'r str, u64)>,
) -> Encoded {
    let mut counts = counts.filter(|(_, count)| *count > 0).peekable();
    match counts.peek() {
        Some(_) => counters(encoder, name, help, label, counts),
        None => Ok(()),
    }
}

/// One histogram for each resource that has a duration.
fn latencies<'r>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    latencies: impl Iterator<Item = (&'r str, &'r Latency)>,
) -> Encoded {
    let mut latencies = latencies.filter(|(_, latency)| latency.mean().is_some()).peekable();
    if latencies.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (resource, latency) in latencies {
        latency.encode(family.encode_family(&[(label, resource)])?)?;
    }
    Ok(())
}

/// Reads counters by the names of their resources.
fn loaded<const N: usize>(
    names: [&'static str; N],
    counts: &[AtomicU64; N],
) -> impl Iterator<Item = (&'static str, u64)> {
    names.into_iter().zip(counts.iter().map(|count| count.load(Relaxed)))
}
