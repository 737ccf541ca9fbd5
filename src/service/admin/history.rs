//! The rates of the last 15 minutes.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use mixer_adapter_host::metrics::LatencyCounts;
use serde_json::{Value as Json, json};

/// The time between two points.
const STEP: Duration = Duration::from_secs(5);

/// The number of points in 15 minutes.
const MAX_POINTS: usize = 180;

/// The counters of a server since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// Checks, reports and requests for quotas.
    pub(super) requests: u64,
    /// Denied checks and refused quotas.
    pub(super) denials: u64,
    /// Failed checks, reports and rate limits, and lost log entries.
    pub(super) failures: u64,
    /// Calls of adapters, including calls from other Mixers.
    pub(super) calls: u64,
    /// The durations of checks.
    pub(super) latency: LatencyCounts,
}

/// Rates per second, and durations of checks.
#[derive(Clone, Copy, Debug)]
struct Point {
    requests: f64,
    denials: f64,
    failures: f64,
    calls: f64,
    p50: Option<Duration>,
    p99: Option<Duration>,
}

/// The points of the last 15 minutes, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    points: VecDeque<Point>,
    last: Option<(Instant, Totals)>,
}

impl History {
    /// Adds a point if one is due.
    pub(super) fn observe(&mut self, now: Instant, totals: Totals) {
        let Some((time, last)) = self.last else {
            self.last = Some((now, totals));
            return;
        };
        let elapsed = now.saturating_duration_since(time);
        if elapsed < STEP {
            return;
        }
        let rate = |count: u64, before: u64| {
            let rate = count.saturating_sub(before) as f64 / elapsed.as_secs_f64();
            (rate * 10.0).round() / 10.0
        };
        let latency = totals.latency.since(&last.latency);
        if self.points.len() == MAX_POINTS {
            self.points.pop_front();
        }
        self.points.push_back(Point {
            requests: rate(totals.requests, last.requests),
            denials: rate(totals.denials, last.denials),
            failures: rate(totals.failures, last.failures),
            calls: rate(totals.calls, last.calls),
            p50: latency.quantile(0.5),
            p99: latency.quantile(0.99),
        });
        self.last = Some((now, totals));
    }

    /// Returns a list of each measure. Durations are in microseconds, and null without checks.
    pub(super) fn json(&self) -> Json {
        let rates = |of: fn(&Point) -> f64| self.points.iter().map(of).collect::<Vec<_>>();
        let micros = |of: fn(&Point) -> Option<Duration>| -> Vec<_> {
            let durations = self.points.iter().map(of);
            durations.map(|duration| duration.map(|duration| duration.as_micros() as u64)).collect()
        };
        json!({
            "step_seconds": STEP.as_secs(),
            "requests": rates(|point| point.requests),
            "denials": rates(|point| point.denials),
            "failures": rates(|point| point.failures),
            "calls": rates(|point| point.calls),
            "p50_micros": micros(|point| point.p50),
            "p99_micros": micros(|point| point.p99),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_the_rates_of_its_five_seconds_and_fifteen_minutes_are_stored() {
        let (mut history, start) = (History::default(), Instant::now());
        for second in 0..=1_200 {
            let totals = Totals { requests: second * 7, denials: second / 5, ..Totals::default() };
            history.observe(start + Duration::from_secs(second), totals);
        }
        let json = history.json();
        assert_eq!(json["requests"], json!(vec![7.0; 180]));
        assert_eq!(json["denials"], json!(vec![0.2; 180]));
        assert_eq!(json["p99_micros"], json!(vec![Json::Null; 180]));
    }
}
