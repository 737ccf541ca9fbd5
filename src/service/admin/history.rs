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

/// The measures: rates per second, and durations of checks in microseconds, which are null without checks.
const MEASURES: [&str; 6] = ["requests", "denials", "failures", "calls", "p50_micros", "p99_micros"];

/// The points of each measure in the last 15 minutes, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    points: [VecDeque<Json>; MEASURES.len()],
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
            Json::from((rate * 10.0).round() / 10.0)
        };
        let latency = totals.latency.since(&last.latency);
        let micros =
            |quantile| Json::from(latency.quantile(quantile).map(|duration| duration.as_micros() as u64));
        let values = [
            rate(totals.requests, last.requests),
            rate(totals.denials, last.denials),
            rate(totals.failures, last.failures),
            rate(totals.calls, last.calls),
            micros(0.5),
            micros(0.99),
        ];
        for (points, value) in self.points.iter_mut().zip(values) {
            if points.len() == MAX_POINTS {
                points.pop_front();
            }
            points.push_back(value);
        }
        self.last = Some((now, totals));
    }

    /// Returns the list of each measure.
    pub(super) fn json(&self) -> Json {
        let mut json: Json =
            MEASURES.into_iter().zip(self.points.iter().map(|points| json!(points))).collect();
        json["step_seconds"] = STEP.as_secs().into();
        json
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
