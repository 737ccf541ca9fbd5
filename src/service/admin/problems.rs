//! The problems of a server, their start and their number: conditions, and counters that should not grow.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;

/// A problem is over after this number of seconds without a failure.
const QUIET: u64 = 60;

/// A condition is over after this number of seconds without it.
const QUIET_CONDITION: u64 = 2;

/// The number of seconds for which a problem that is over is shown.
const SHOWN: u64 = 15 * 60;

/// The share of failures from which they are severe.
const SEVERE: f64 = 0.01;

/// The share of recent failures that remains after a second without calls.
const DECAY: f64 = 0.9;

/// A kind of problem, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(not(feature = "envoy"), allow(dead_code, reason = "some are problems of the services of Envoy"))]
pub(in crate::service) enum Kind {
    NotReady,
    Handler,
    Adapter,
    Panic,
    Checks,
    RateLimits,
    Reports,
    LogEntries,
    Condition,
    Instance,
    Limit,
    UnknownQuotas,
    UnmatchedQuotas,
    QuotasNotReturned,
    DecisionLog,
    Certificate,
    Refused,
    Faults,
    Warning,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    Red,
    Amber,
    Green,
}

impl Kind {
    /// Returns whether it is a condition, and not a counter.
    fn is_condition(self) -> bool {
        matches!(self, Self::NotReady | Self::Certificate | Self::Refused | Self::Faults | Self::Warning)
    }

    /// Returns the level if this share of calls fails.
    fn level(self, share: f64) -> Level {
        match self {
            Self::NotReady | Self::Panic => Level::Red,
            Self::Handler | Self::Adapter | Self::Checks | Self::RateLimits if share >= SEVERE => Level::Red,
            _ => Level::Amber,
        }
    }

    fn describe(self, name: &str) -> String {
        let text = match self {
            Self::NotReady => "the server is not ready",
            Self::Handler => return format!("handler {name} fails"),
            Self::Adapter => return format!("adapter {name} fails"),
            Self::Panic => return format!("adapter {name} panics"),
            Self::Checks => "checks fail",
            Self::RateLimits => "rate limits fail",
            Self::Reports => "reports fail",
            Self::LogEntries => "entries of access logs are lost",
            Self::Condition => return format!("the condition of {name} cannot be evaluated"),
            Self::Instance => return format!("{name} cannot be built"),
            Self::Limit => return format!("the limit {name} is exceeded"),
            Self::UnknownQuotas => "quotas are requested that no rule has",
            Self::UnmatchedQuotas => "rate limits match no quota",
            Self::QuotasNotReturned => "hits of rate limits cannot be given back",
            Self::DecisionLog => "lines of the decision log are lost",
            Self::Certificate => return format!("the certificate in {name} ends soon"),
            Self::Refused => "the last configuration was refused, and an older one is in use",
            Self::Faults => "parts of the configuration are not in use",
            Self::Warning => "warning",
        };
        text.to_owned()
    }
}

/// The state of a condition or a counter.
#[derive(Debug, Default)]
struct Symptom {
    /// The counters when they were last observed, in seconds since the Unix epoch.
    observed: u64,
    total: u64,
    total_calls: u64,
    /// The times of the first and the last failure, in seconds since the Unix epoch.
    since: u64,
    last: u64,
    /// Failures and calls since the first failure.
    failed: u64,
    calls: u64,
    /// Failures and calls of about the last ten seconds.
    recent_failed: f64,
    recent_calls: f64,
    detail: String,
}

impl Symptom {
    fn share(&self) -> f64 {
        if self.recent_calls > 0.0 { self.recent_failed / self.recent_calls } else { 1.0 }
    }

    /// Begins anew if there was no failure for a while.
    fn fail(&mut self, now: u64, quiet: u64) {
        if self.last + quiet < now {
            (self.since, self.failed, self.calls) = (now, 0, 0);
        }
        self.last = now;
    }
}

/// The problems of a server.
#[derive(Debug, Default)]
pub(super) struct Problems {
    symptoms: BTreeMap<(Kind, Arc<str>), Symptom>,
    observed: Option<Instant>,
    /// The current time in seconds since the Unix epoch.
    now: u64,
    /// The share of recent failures that remains.
    decay: f64,
}

/// A problem, for people and programs.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    pub(super) level: Level,
    pub(super) kind: Kind,
    /// The full name of the handler or another resource, or an empty text.
    pub(super) name: String,
    pub(super) text: String,
    /// The times of the first and the last failure, in seconds since the Unix epoch.
    pub(super) since: u64,
    pub(super) last: u64,
    /// The number of failures since the first one, and of the calls that they are a part of; 0 if unknown.
    pub(super) failed: u64,
    pub(super) calls: u64,
    /// The first rules that call a failed handler, and the number of all.
    pub(super) rules: Vec<String>,
    pub(super) rule_count: usize,
    #[serde(skip)]
    pub(super) is_over: bool,
}

impl Problems {
    /// Begins an observation; `now` is in seconds since the Unix epoch.
    pub(super) fn begin(&mut self, instant: Instant, now: u64) {
        let elapsed = self.observed.map_or(Duration::ZERO, |last| instant.saturating_duration_since(last));
        self.decay = DECAY.powf(elapsed.as_secs_f64());
        (self.observed, self.now) = (Some(instant), now);
    }

    /// Ends an observation, and forgets old problems and resources that do not exist any more.
    pub(super) fn end(&mut self) {
        let now = self.now;
        self.symptoms.retain(|(kind, _), symptom| {
            symptom.last + SHOWN >= now || (!kind.is_condition() && symptom.observed == now)
        });
    }

    /// Observes a condition.
    pub(super) fn observe_condition(&mut self, kind: Kind, name: Arc<str>, detail: String) {
        let now = self.now;
        let symptom = self.symptoms.entry((kind, name)).or_default();
        symptom.fail(now, QUIET_CONDITION);
        symptom.detail = detail;
    }

    /// Observes a counter of failures, and the counter of all calls; 0 if that is unknown.
    pub(super) fn observe(&mut self, kind: Kind, name: Arc<str>, total: u64, total_calls: u64) {
        if total + total_calls == 0 {
            return;
        }
        let (now, decay) = (self.now, self.decay);
        let symptom = self.symptoms.entry((kind, name)).or_default();
        // A smaller value means that the counter started again.
        let failed = total.checked_sub(symptom.total).unwrap_or(total);
        let calls = total_calls.checked_sub(symptom.total_calls).unwrap_or(total_calls);
        if failed > 0 {
            symptom.fail(now, QUIET);
        }
        symptom.failed += failed;
        symptom.calls += calls;
        symptom.recent_failed = symptom.recent_failed * decay + failed as f64;
        symptom.recent_calls = symptom.recent_calls * decay + calls as f64;
        (symptom.observed, symptom.total, symptom.total_calls) = (now, total, total_calls);
    }

    /// Returns the problems of the last 15 minutes, the worst first.
    pub(super) fn list(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self
            .symptoms
            .iter()
            .filter(|(_, symptom)| symptom.last > 0 && symptom.last + SHOWN >= self.now)
            .map(|((kind, name), symptom)| {
                let quiet = if kind.is_condition() { QUIET_CONDITION } else { QUIET };
                let mut text = kind.describe(name);
                if !symptom.detail.is_empty() {
                    text += &format!(": {}", symptom.detail);
                }
                Problem {
                    level: kind.level(symptom.share()),
                    kind: *kind,
                    name: name.to_string(),
                    text,
                    since: symptom.since,
                    last: symptom.last,
                    failed: symptom.failed,
                    calls: symptom.calls,
                    rules: Vec::new(),
                    rule_count: 0,
                    is_over: symptom.last + quiet < self.now,
                }
            })
            // A condition that lasted a moment is not shown afterwards: no server is ready at once.
            .filter(|problem| {
                !(problem.is_over && problem.kind.is_condition() && problem.since == problem.last)
            })
            .collect();
        problems.sort_by(|a, b| (a.level, a.kind, b.failed).cmp(&(b.level, b.kind, a.failed)));
        problems
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Problems that are observed once a second.
    struct Observed {
        problems: Problems,
        start: Instant,
        second: u64,
    }

    const START: u64 = 1_000_000;

    impl Observed {
        fn new() -> Self {
            Self { problems: Problems::default(), start: Instant::now(), second: 0 }
        }

        /// Passes a number of seconds with these counters of a handler at the end of each.
        fn pass(&mut self, seconds: u64, failed: u64, calls: u64) -> Option<Problem> {
            for _ in 0..seconds {
                self.second += 1;
                self.problems.begin(self.start + Duration::from_secs(self.second), START + self.second);
                self.problems.observe(Kind::Handler, "h".into(), failed, calls);
                self.problems.end();
            }
            self.problems.list().into_iter().next()
        }
    }

    #[test]
    fn a_handler_that_begins_to_fail_is_red_in_the_same_second_whatever_it_did_before() {
        let mut observed = Observed::new();
        assert!(observed.pass(100, 0, 1_000_000).is_none());
        let problem = observed.pass(1, 2, 1_000_002).unwrap();
        assert_eq!((problem.level, problem.since, problem.is_over), (Level::Red, START + 101, false));
        assert_eq!((problem.failed, problem.calls), (2, 2));
        let problem = observed.pass(60, 2, 1_000_002).unwrap();
        assert!(!problem.is_over);
        let problem = observed.pass(1, 2, 1_000_002).unwrap();
        assert!(problem.is_over && problem.last == START + 101);
        assert!(observed.pass(SHOWN - 61, 2, 1_000_002).is_some_and(|problem| problem.is_over));
        assert!(observed.pass(1, 2, 1_000_002).is_none());
    }

    #[test]
    fn few_failures_are_amber_and_those_after_a_quiet_minute_another_problem() {
        let mut observed = Observed::new();
        observed.pass(1, 0, 10_000);
        let problem = observed.pass(1, 1, 20_000).unwrap();
        assert_eq!((problem.level, problem.failed), (Level::Amber, 1));
        observed.pass(61, 1, 20_000);
        let problem = observed.pass(1, 2, 20_001).unwrap();
        assert_eq!((problem.since, problem.failed), (START + observed.second, 1));
    }

    #[test]
    fn the_counter_of_a_handler_that_is_configured_again_begins_again() {
        let mut observed = Observed::new();
        observed.pass(1, 5, 5);
        let problem = observed.pass(1, 3, 3).unwrap();
        assert_eq!((problem.failed, problem.calls), (8, 8));
    }

    #[test]
    fn a_condition_is_a_problem_while_it_lasts_and_a_resource_is_forgotten_with_its_problem() {
        let mut observed = Observed::new();
        observed.pass(1, 1, 1);
        let not_ready = |observed: &Observed| {
            observed.problems.list().into_iter().find(|problem| problem.kind == Kind::NotReady)
        };
        let observe = |observed: &mut Observed, seconds| {
            observed.problems.observe_condition(Kind::NotReady, Arc::default(), "waiting".to_owned());
            let problem = not_ready(observed).unwrap();
            assert_eq!((&*problem.text, problem.is_over), ("the server is not ready: waiting", false));
            observed.pass(seconds, 1, 1);
        };
        // A condition of a moment is not shown when it is over.
        observe(&mut observed, 3);
        assert!(not_ready(&observed).is_none());
        observe(&mut observed, 1);
        observe(&mut observed, 3);
        assert!(not_ready(&observed).is_some_and(|problem| problem.is_over));
        observed.problems.begin(observed.start + Duration::from_secs(2_000), START + 2_000);
        observed.problems.end();
        assert!(observed.problems.symptoms.is_empty());
    }
}
