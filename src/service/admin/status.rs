//! `/status`: the state of the program, its resources and their counters, for the page and for other programs.

use std::{
    collections::{BTreeMap, HashSet},
    sync::atomic::Ordering::Relaxed,
};

use serde::Serialize;
use serde_json::{Value as Json, json};
use tonic::Code;

use super::{
    Admin,
    activity::level,
    problems::{Level, Problem},
};
use mixer_adapter_core::framework::status::status_name;
use mixer_adapter_engine::{ConfigChange, Mixer, QuotaCounts, ShadowDifference, ShadowKind, Snapshot};
use mixer_adapter_host::metrics::{CallMetrics, Latency};

/// The state of a server. Problems come first.
#[derive(Serialize)]
pub(super) struct Status {
    state: Level,
    problems: Vec<Problem>,
    /// Problems of the last 15 minutes that are over.
    past_problems: Vec<Problem>,
    /// The last changes of the configuration.
    changes: Vec<ConfigChange>,
    version: &'static str,
    started: u64,
    pending: Vec<String>,
    warnings: Vec<String>,
    explain: bool,
    history: Json,
    adapters: Vec<Json>,
    handlers: Json,
    /// The metrics of handlers, in series.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<Vec<Json>>,
    in_use: Option<Json>,
    cache: Option<Json>,
    /// Evaluations in the shadow, by kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shadow: Vec<Json>,
}

impl Status {
    /// Returns the state of a server; a brief one is without the resources in use and the metrics of handlers.
    pub(super) fn new(admin: &Admin, is_brief: bool) -> Self {
        let Admin { host, readiness, mixer, started, explain, .. } = admin;
        let mut activity = admin.activity.lock();
        activity.observe(admin);
        let [problems, past_problems] = activity.problems(admin);
        let history = activity.history.json();
        drop(activity);
        let counts = host.sessions().counts();
        let adapters = host.adapters().iter().map(|adapter| {
            let sessions = counts.iter().find(|(name, _)| *name == adapter.name);
            json!({
                "name": adapter.name,
                "description": adapter.description,
                "templates": adapter.templates.iter().map(|template| template.name).collect::<Vec<_>>(),
                "sessions": sessions.map_or(0, |(_, count)| *count),
            })
        });
        let snapshot = mixer.as_ref().and_then(|mixer| Mixer::snapshot(mixer));
        Self {
            state: level(&problems),
            problems,
            past_problems,
            changes: admin.config_status().map_or_else(Vec::new, |status| status.changes),
            version: env!("CARGO_PKG_VERSION"),
            started: *started,
            pending: readiness.pending(),
            warnings: readiness.warnings(),
            explain: *explain,
            history,
            adapters: adapters.collect(),
            handlers: json!({ "open": host.handlers().live_count(), "cached": host.handlers().cached_count() }),
            metrics: (!is_brief)
                .then(|| handler_metrics(&host.adapters().handler_metrics().unwrap_or_default())),
            in_use: snapshot.as_deref().map(|snapshot| in_use(snapshot, is_brief)),
            cache: snapshot.as_deref().and_then(cache),
            shadow: mixer.as_ref().map_or_else(Vec::new, |mixer| shadow(mixer)),
        }
    }
}

/// Returns the evaluations in the shadow by kind, and their differences from answers by rule.
fn shadow(mixer: &Mixer) -> Vec<Json> {
    let kinds = ShadowKind::ALL.into_iter().map(|kind| (kind, mixer.shadow().counts(kind)));
    let used = kinds.filter(|(_, counts)| counts.is_used());
    let json = used.map(|(kind, counts)| {
        let differences = counts.rules().into_iter().map(|(rule, counts)| {
            let counts = ShadowDifference::NAMES.into_iter().zip(counts);
            json!({ "rule": &*rule, "differences": counts.collect::<BTreeMap<_, _>>() })
        });
        let results: BTreeMap<_, _> = counts.results().into_iter().collect();
        json!({ "shadow": kind.name(), "results": results, "rules": differences.collect::<Vec<_>>() })
    });
    json.collect()
}

/// The maximum number of series of handlers that are shown.
const MAX_SERIES: usize = 200;

/// Returns the metrics of handlers on a page of OpenMetrics, without the buckets of histograms.
fn handler_metrics(page: &str) -> Vec<Json> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let series = lines.filter_map(|line| line.rsplit_once(' '));
    series
        .filter(|(series, _)| !series.contains("_bucket{"))
        .filter_map(|(series, value)| Some(json!({ "series": series, "value": value.parse::<f64>().ok()? })))
        .take(MAX_SERIES)
        .collect()
}

/// Returns the resources of the configuration in use and their counters since they were first in use. Beyond a limit, further
/// resources are counted together as `other`.
fn in_use(snapshot: &Snapshot, is_brief: bool) -> Json {
    let size = snapshot.size();
    let mut in_use = json!({ "rule_count": size.rules, "handler_count": size.handlers });
    if is_brief {
        return in_use;
    }
    let counts = snapshot.resource_counts();
    let rules = counts.rules.all();
    let counted: HashSet<_> = rules.iter().map(|(name, _)| name.clone()).collect();
    let others = snapshot.rules().filter(|(name, _)| !counted.contains(*name));
    let others = others.map(|(name, place)| json!({ "name": name, "place": place }));
    let rules = rules.into_iter().map(|(name, counts)| {
        json!({
            "name": &*name,
            // A file and a line, or the address of a server.
            "place": snapshot.place(&name),
            // Cached answers are included; `cached` is their number.
            "matched": counts.matched.load(Relaxed),
            "cached": counts.cached.load(Relaxed),
            "denied": counts.denied.load(Relaxed),
            // Evaluations in which the condition could not be evaluated.
            "failed": counts.failed.load(Relaxed),
            "unbuilt": counts.unbuilt.load(Relaxed),
            // Of its calls of handlers, by gRPC code.
            "failed_calls": failed_calls(&counts.calls),
            "last_failure": counts.last_failure().map(|last| json!({
                "handler": &*last.handler,
                "cause": last.cause.name(),
                "seconds_ago": last.at.elapsed().as_secs(),
            })),
            "mean_micros": mean_micros(counts.calls.latency()),
        })
    });
    let handlers = counts.handlers.all().into_iter().map(|(name, counts)| {
        let calls = &counts.calls;
        // Calls may end meanwhile.
        let (succeeded, failed) =
            (calls.count(Code::Ok), failures(calls).map(|(_, count)| count).sum::<u64>());
        json!({
            "name": &*name,
            "calls": succeeded + failed,
            // Calls that cached answers made unnecessary.
            "cached": counts.cached.load(Relaxed),
            "failed": failed,
            "failed_calls": failed_calls(calls),
            "mean_micros": mean_micros(calls.latency()),
        })
    });
    let instances = counts.instances.all();
    let quotas = instances.iter().filter_map(|(name, counts)| quota(name, &counts.quota));
    let built = instances.iter().map(|(name, counts)| {
        json!({ "name": &**name, "built": counts.built.load(Relaxed), "failed": counts.failed.load(Relaxed) })
    });
    in_use["rules"] = rules.collect();
    // The rules that are counted together.
    in_use["other_rules"] = others.collect();
    in_use["handlers"] = handlers.collect();
    in_use["instances"] = built.collect();
    in_use["quotas"] = quotas.collect();
    in_use
}

fn failures(calls: &CallMetrics) -> impl Iterator<Item = (Code, u64)> {
    calls.codes().filter(|(code, _)| *code != Code::Ok)
}

/// Returns the numbers of failed calls by gRPC code.
fn failed_calls(calls: &CallMetrics) -> Json {
    failures(calls).map(|(code, count)| (status_name(code as i32).into_owned(), Json::from(count))).collect()
}

/// Returns `None` for an instance that is not a quota, or that was not requested.
fn quota(name: &str, counts: &QuotaCounts) -> Option<Json> {
    let [requests, refused, requested, granted, returned] =
        [&counts.requests, &counts.refused, &counts.requested, &counts.granted, &counts.returned]
            .map(|count| count.load(Relaxed));
    // The limit in the last answer that has one, for one combination of dimensions.
    let last_limit = counts.last_limit().map(|last| {
        json!({
            "max_amount": last.limit.max_amount,
            "remaining": last.limit.remaining,
            "window_seconds": last.limit.window.map(|window| window.seconds),
            "seconds_ago": last.at.elapsed().as_secs(),
        })
    });
    let is_used = requests + returned > 0 || last_limit.is_some();
    is_used.then(|| {
        json!({
            "name": name,
            "requests": requests,
            // Requests that were granted less than the amount.
            "refused": refused,
            "requested": requested,
            "granted": granted,
            "returned": returned,
            "last_limit": last_limit,
        })
    })
}

/// Returns the mean of durations in microseconds.
fn mean_micros(latency: &Latency) -> Option<u64> {
    latency.mean().map(|mean| u64::try_from(mean.as_micros()).unwrap_or(u64::MAX))
}

/// Returns the state of the check cache; `None` if it was not used.
fn cache(snapshot: &Snapshot) -> Option<Json> {
    let counts = snapshot.cache_counts();
    // In the order of CacheOutcome.
    let [hits, misses, coalesced, stale, bypassed] =
        counts.requests.each_ref().map(|count| count.load(Relaxed));
    let size = snapshot.cache_size();
    (hits + misses + coalesced + stale + bypassed > 0).then(|| {
        json!({
            "hits": hits,
            "misses": misses,
            "coalesced": coalesced,
            "stale": stale,
            // Evaluated without a lookup.
            "bypassed": bypassed,
            "saved_calls": counts.saved_calls.load(Relaxed),
            "saved_seconds": counts.saved_time().as_secs_f64(),
            "answers": size.answers,
            "bytes": size.bytes,
            "evictions": counts.evictions.load(Relaxed),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_handlers_are_shown_without_comments_and_buckets() {
        let page = "# TYPE adapter_a_seconds histogram\nadapter_a_seconds_sum{handler=\"h\"} 0.5\n\
                    adapter_a_seconds_bucket{le=\"1.0\",handler=\"h\"} 2\nadapter_b{handler=\"h\",quota=\"a b\"} 3\n";
        let shown = handler_metrics(page);
        let expected = [
            json!({ "series": "adapter_a_seconds_sum{handler=\"h\"}", "value": 0.5 }),
            json!({ "series": "adapter_b{handler=\"h\",quota=\"a b\"}", "value": 3.0 }),
        ];
        assert_eq!(shown, expected);
        assert_eq!(handler_metrics(&page.repeat(MAX_SERIES)).len(), MAX_SERIES);
    }
}
