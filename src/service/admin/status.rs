//! `/status`: the state of the program, its resources and their counters, for the page and for other programs.

use std::sync::atomic::Ordering::Relaxed;

use tonic::Code;

use crate::service::Readiness;
use mixer_adapter_engine::{Mixer, QuotaCounts, Snapshot};
use mixer_adapter_host::{Host, metrics::Latency};

/// The status of the program, for its page and for other programs.
#[derive(serde::Serialize)]
pub(super) struct Status {
    version: &'static str,
    /// When the server started, in seconds since the Unix epoch.
    started: u64,
    /// The conditions of readiness that do not hold yet.
    pending: Vec<String>,
    warnings: Vec<String>,
    /// Whether `/explain` and `/decisions` answer.
    explain: bool,
    adapters: Vec<AdapterStatus>,
    handlers: Handlers,
    /// The configuration in use; `null` before the first one, and without an engine.
    in_use: Option<InUse>,
    /// The check cache; `null` if it was not used.
    cache: Option<CacheStatus>,
}

#[derive(serde::Serialize)]
struct AdapterStatus {
    name: &'static str,
    description: &'static str,
    templates: Vec<&'static str>,
    sessions: usize,
}

#[derive(serde::Serialize)]
struct Handlers {
    open: usize,
    /// The open handlers that are cached for calls that carry their configuration.
    cached: usize,
}

/// The resources of the configuration in use and their counters since they were first in use. Beyond a limit, further resources are
/// counted together as `other`.
#[derive(serde::Serialize)]
struct InUse {
    /// Number of rules with an effect.
    rule_count: usize,
    /// Number of handlers that these rules use.
    handler_count: usize,
    rules: Vec<RuleStatus>,
    handlers: Vec<HandlerStatus>,
    instances: Vec<InstanceStatus>,
    /// The quotas among the instances that were requested.
    quotas: Vec<QuotaStatus>,
}

#[derive(serde::Serialize)]
struct RuleStatus {
    name: String,
    /// A file and a line, or the address of a server.
    place: Option<String>,
    matched: u64,
    denied: u64,
    /// Evaluations in which the condition could not be evaluated.
    failed: u64,
    /// The mean duration of the calls of handlers for the rule, without reports; `null` without calls.
    mean_micros: Option<u64>,
}

#[derive(serde::Serialize)]
struct HandlerStatus {
    name: String,
    calls: u64,
    /// The number of failed calls.
    failed: u64,
    /// The mean duration of a call; `null` without calls.
    mean_micros: Option<u64>,
}

#[derive(serde::Serialize)]
struct InstanceStatus {
    name: String,
    built: u64,
    /// Times that it could not be built.
    failed: u64,
}

#[derive(serde::Serialize)]
struct QuotaStatus {
    name: String,
    requests: u64,
    /// The number of requests that were granted less than the amount.
    refused: u64,
    requested: u64,
    granted: u64,
    returned: u64,
    /// The state of the limit in the last answer that has one, for one combination of dimensions.
    last_limit: Option<LimitStatus>,
}

#[derive(serde::Serialize)]
struct LimitStatus {
    max_amount: i64,
    remaining: i64,
    window_seconds: Option<i64>,
    seconds_ago: u64,
}

impl QuotaStatus {
    /// Returns `None` for an instance that is not a quota, or that was not requested.
    fn of(name: &str, counts: &QuotaCounts) -> Option<Self> {
        let [requests, refused, requested, granted, returned] =
            [&counts.requests, &counts.refused, &counts.requested, &counts.granted, &counts.returned]
                .map(|count| count.load(Relaxed));
        let last_limit = counts.last_limit().map(|last| LimitStatus {
            max_amount: last.limit.max_amount,
            remaining: last.limit.remaining,
            window_seconds: last.limit.window.map(|window| window.seconds),
            seconds_ago: last.at.elapsed().as_secs(),
        });
        let is_used = requests + returned > 0 || last_limit.is_some();
        let name = name.to_owned();
        is_used.then_some(Self { name, requests, refused, requested, granted, returned, last_limit })
    }
}

/// Returns the mean of durations in microseconds.
fn mean_micros(latency: &Latency) -> Option<u64> {
    latency.mean().map(|mean| u64::try_from(mean.as_micros()).unwrap_or(u64::MAX))
}

impl InUse {
    fn of(snapshot: &Snapshot) -> Self {
        let size = snapshot.size();
        let counts = snapshot.resource_counts();
        let instances = counts.instances();
        Self {
            rule_count: size.rules,
            handler_count: size.handlers,
            rules: counts
                .rules()
                .into_iter()
                .map(|(name, counts)| RuleStatus {
                    place: snapshot.place(&name).map(str::to_owned),
                    matched: counts.matched.load(Relaxed),
                    denied: counts.denied.load(Relaxed),
                    failed: counts.failed.load(Relaxed),
                    mean_micros: mean_micros(&counts.latency),
                    name: name.to_string(),
                })
                .collect(),
            handlers: counts
                .handlers()
                .into_iter()
                .map(|(name, calls)| {
                    let all = calls.codes().map(|(_, count)| count).sum();
                    HandlerStatus {
                        name: name.to_string(),
                        calls: all,
                        failed: all - calls.count(Code::Ok),
                        mean_micros: mean_micros(calls.latency()),
                    }
                })
                .collect(),
            quotas: instances
                .iter()
                .filter_map(|(name, counts)| QuotaStatus::of(name, &counts.quota))
                .collect(),
            instances: instances
                .into_iter()
                .map(|(name, counts)| InstanceStatus {
                    name: name.to_string(),
                    built: counts.built.load(Relaxed),
                    failed: counts.failed.load(Relaxed),
                })
                .collect(),
        }
    }
}

#[derive(serde::Serialize)]
struct CacheStatus {
    hits: u64,
    misses: u64,
    coalesced: u64,
    stale: u64,
    saved_calls: u64,
    saved_seconds: f64,
    answers: usize,
    bytes: usize,
    evictions: u64,
}

impl CacheStatus {
    /// `None` if the cache was not used.
    fn of(snapshot: &Snapshot) -> Option<Self> {
        let counts = snapshot.cache_counts();
        // In the order of CacheOutcome.
        let [hits, misses, coalesced, stale] = counts.requests.each_ref().map(|count| count.load(Relaxed));
        if hits + misses + coalesced + stale == 0 {
            return None;
        }
        let size = snapshot.cache_size();
        Some(Self {
            hits,
            misses,
            coalesced,
            stale,
            saved_calls: counts.saved_calls.load(Relaxed),
            saved_seconds: counts.saved_time().as_secs_f64(),
            answers: size.answers,
            bytes: size.bytes,
            evictions: counts.evictions.load(Relaxed),
        })
    }
}

impl Status {
    /// Returns the state of a server that started at that time, in seconds since the Unix epoch. `explain` is whether `/explain` and
    /// `/decisions` answer.
    pub(super) fn new(
        host: &Host,
        readiness: &Readiness,
        mixer: Option<&Mixer>,
        started: u64,
        explain: bool,
    ) -> Self {
        let counts = host.sessions().counts();
        let sessions =
            |name: &str| counts.iter().find(|(adapter, _)| *adapter == name).map_or(0, |(_, count)| *count);
        let adapters = host.adapters().iter().map(|adapter| AdapterStatus {
            name: adapter.name,
            description: adapter.description,
            templates: adapter.templates.iter().map(|template| template.name).collect(),
            sessions: sessions(adapter.name),
        });
        let snapshot = mixer.and_then(Mixer::snapshot);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            started,
            pending: readiness.pending(),
            warnings: readiness.warnings(),
            explain,
            adapters: adapters.collect(),
            handlers: Handlers { open: host.handlers().live_count(), cached: host.handlers().cached_count() },
            in_use: snapshot.as_deref().map(InUse::of),
            cache: snapshot.as_deref().and_then(CacheStatus::of),
        }
    }
}
