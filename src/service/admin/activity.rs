//! Observes the counters and conditions of a server.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant, SystemTime},
};

use mixer_adapter_config::source::unix_time;
use mixer_adapter_core::framework::status::status_name;
use mixer_adapter_engine::{CheckOutcome, Mixer, RequestLimit};
use mixer_adapter_host::metrics::CallMetrics;
use mixer_adapter_net::tls;
use tonic::Code;

use super::{
    Admin,
    history::{History, Totals},
    problems::{Kind, Level, Problem, Problems},
};

/// The maximum number of current problems that are shown, and of past ones.
const MAX_PROBLEMS: usize = 20;

/// The number of rules of a problem that are shown.
const MAX_RULES: usize = 5;

/// How long before its end a certificate is a problem.
const CERTIFICATE_WARNING: Duration = Duration::from_secs(7 * 24 * 3600);

/// Returns counters of failures that the engine does not count.
pub(in crate::service) type FailureCounters = Box<dyn Fn() -> Vec<(Kind, u64)> + Send + Sync>;

/// The last 15 minutes of a server.
#[derive(Debug, Default)]
pub(in crate::service) struct Activity {
    pub(super) history: History,
    problems: Problems,
}

/// Returns the numbers of failed and of all calls. Cancelled calls are not failures.
fn failures(calls: &CallMetrics) -> (u64, u64) {
    calls.codes().fold((0, 0), |(failed, all), (code, count)| match code {
        Code::Ok | Code::Cancelled => (failed, all + count),
        _ => (failed + count, all + count),
    })
}

impl Activity {
    /// Observes a server, at least once a second.
    pub(super) fn observe(&mut self, admin: &Admin) {
        self.problems.begin(Instant::now(), unix_time());
        let mut totals = Totals::default();
        self.observe_adapters(admin, &mut totals);
        if let Some(mixer) = &admin.mixer {
            self.observe_engine(mixer, &mut totals);
        }
        for (kind, failed) in admin.failure_counters.iter().flat_map(|counters| counters()) {
            totals.failures += failed;
            self.problems.observe(kind, Arc::default(), failed, 0);
        }
        for (limit, hits) in admin.hits.counts() {
            self.problems.observe(Kind::Limit, limit.into(), hits, 0);
        }
        self.observe_conditions(admin);
        self.problems.end();
        self.history.observe(Instant::now(), totals);
    }

    fn observe_adapters(&mut self, admin: &Admin, totals: &mut Totals) {
        let adapters = admin.host.adapters();
        for adapter in adapters.iter() {
            self.problems.observe(Kind::Panic, adapter.name.into(), adapter.panics(), 0);
        }
        let mut by_adapter = BTreeMap::<&str, (u64, u64)>::new();
        for (adapter, metrics) in adapters.methods().flat_map(|method| method.metrics()) {
            let (failed, all) = failures(&metrics);
            let sums = by_adapter.entry(adapter).or_default();
            *sums = (sums.0 + failed, sums.1 + all);
        }
        for (adapter, (failed, all)) in by_adapter {
            totals.calls += all;
            self.problems.observe(Kind::Adapter, adapter.into(), failed, all);
        }
    }

    fn observe_engine(&mut self, mixer: &Mixer, totals: &mut Totals) {
        let counts = mixer.counts();
        let checks = counts.checks.each_ref().map(|count| count.load(Relaxed));
        let [delivered, undelivered] = counts.reports.each_ref().map(|count| count.load(Relaxed));
        let [granted, partial, refused] = counts.quotas.each_ref().map(|count| count.load(Relaxed));
        let all_checks: u64 = checks.iter().sum();
        let failed_checks = checks[CheckOutcome::Failed as usize];
        totals.requests += all_checks + delivered + undelivered + granted + partial + refused;
        totals.denials += checks[CheckOutcome::Denied as usize] + refused;
        totals.failures += failed_checks + undelivered;
        totals.latency = counts.check_latency.counts();
        let problems = &mut self.problems;
        problems.observe(Kind::Checks, Arc::default(), failed_checks, all_checks);
        problems.observe(Kind::Reports, Arc::default(), undelivered, delivered + undelivered);
        problems.observe(Kind::UnknownQuotas, Arc::default(), counts.unknown_quotas.load(Relaxed), 0);
        for (name, count) in RequestLimit::NAMES.into_iter().zip(&counts.over_limit) {
            problems.observe(Kind::Limit, name.into(), count.load(Relaxed), 0);
        }
        if let Some(lines) = mixer.decision_log().counts() {
            let lost = lines.dropped.load(Relaxed) + lines.failed.load(Relaxed);
            problems.observe(Kind::DecisionLog, Arc::default(), lost, 0);
        }
        let Some(snapshot) = mixer.snapshot() else { return };
        let resources = snapshot.resource_counts();
        for (handler, counts) in resources.handlers.all() {
            let (failed, all) = failures(&counts.calls);
            problems.observe(Kind::Handler, handler, failed, all);
        }
        for (rule, counts) in resources.rules.all() {
            problems.observe(Kind::Condition, rule, counts.failed.load(Relaxed), 0);
        }
        for (instance, counts) in resources.instances.all() {
            problems.observe(Kind::Instance, instance, counts.failed.load(Relaxed), 0);
        }
    }

    fn observe_conditions(&mut self, admin: &Admin) {
        for (file, left) in ending_certificates() {
            self.problems.observe_condition(Kind::Certificate, file.into(), left);
        }
        let mut observe = |kind, texts: &[String]| {
            if let Some((first, others)) = texts.split_first() {
                let more = if others.is_empty() { String::new() } else { format!("; {} more", others.len()) };
                self.problems.observe_condition(kind, Arc::default(), format!("{first}{more}"));
            }
        };
        observe(Kind::NotReady, &admin.readiness.pending());
        observe(Kind::Warning, &admin.readiness.warnings());
        let Some(config) = &admin.config else { return };
        let config = config.lock();
        if config.applied > 0 {
            observe(Kind::Refused, &config.refusal);
        }
        let snapshot = admin.mixer.as_ref().and_then(|mixer| mixer.snapshot());
        if snapshot.is_some_and(|snapshot| snapshot.has_faults()) {
            observe(Kind::Faults, &config.faults);
        }
    }

    /// Returns the current and the past problems, the worst first.
    pub(super) fn problems(&self, admin: &Admin) -> [Vec<Problem>; 2] {
        let (over, mut lasting): (Vec<_>, Vec<_>) =
            self.problems.list().into_iter().partition(|problem| problem.is_over);
        // The handlers of rules count the calls of adapters, too.
        if lasting.iter().any(|problem| problem.kind == Kind::Handler) {
            lasting.retain(|problem| problem.kind != Kind::Adapter);
        }
        [lasting, over].map(|mut problems| {
            problems.truncate(MAX_PROBLEMS);
            problems.iter_mut().for_each(|problem| add_cause(problem, admin));
            problems
        })
    }
}

/// Returns the files of the certificates that end soon, and when.
fn ending_certificates() -> impl Iterator<Item = (String, String)> {
    let now = SystemTime::now();
    let ends = tls::certificate_ends().into_iter();
    let soon = ends.filter(move |(_, end)| *end < now + CERTIFICATE_WARNING);
    soon.map(move |(file, end)| {
        let left = match end.duration_since(now) {
            Ok(left) => format!("in {} h", left.as_secs() / 3600),
            Err(_) => "it has ended".to_owned(),
        };
        (file.display().to_string(), left)
    })
}

/// Adds why a handler or an adapter failed last, and which rules call the handler.
fn add_cause(problem: &mut Problem, admin: &Admin) {
    let snapshot = admin.mixer.as_ref().and_then(|mixer| mixer.snapshot());
    let failure = match problem.kind {
        Kind::Handler => snapshot.as_ref().and_then(|snapshot| {
            let handlers = snapshot.resource_counts().handlers.all();
            let (_, counts) = handlers.into_iter().find(|(name, _)| **name == *problem.name)?;
            counts.calls.last_failure()
        }),
        Kind::Adapter => {
            let metrics = admin.host.adapters().methods().flat_map(|method| method.metrics());
            let mut of_adapter = metrics.filter(|(adapter, _)| *adapter == problem.name);
            of_adapter.find_map(|(_, calls)| calls.last_failure())
        }
        _ => None,
    };
    if let Some(failure) = failure {
        problem.text += &format!(": {}", status_name(failure.code as i32));
        // A message may have values of a request.
        if let Some(mixer) = admin.mixer.as_ref().filter(|_| admin.explain) {
            problem.text += &format!(": {}", mixer.decision_log().masked(&failure.message));
        }
    }
    if let Some(snapshot) = snapshot.filter(|_| problem.kind == Kind::Handler) {
        let rules = snapshot.rules_of(&problem.name);
        problem.rule_count = rules.len();
        problem.rules = rules.into_iter().take(MAX_RULES).map(str::to_owned).collect();
    }
}

/// Returns the worst level of problems.
pub(super) fn level(problems: &[Problem]) -> Level {
    problems.iter().map(|problem| problem.level).min().unwrap_or(Level::Green)
}
