//! The lines of the log.

use std::{sync::Arc, time::SystemTime};

use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::{CallRecord, mask::Masks};
use crate::{
    attribute::Bag,
    failed_part::{FailedPart, FailedParts},
    trace::is_zero,
};
use mixer_adapter_core::framework::{log_text::log_text, status::status_name};

/// Maximum size of the attributes of one line in bytes; further ones are omitted.
const MAX_ATTRIBUTES: usize = 16 << 10;

/// The service that was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Api {
    /// The Mixer API.
    #[default]
    Mixer,
    /// A service of Envoy.
    Envoy,
}

/// The outcome of a check, a quota request or a report.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum LoggedDecision<'d> {
    /// A check.
    Check {
        /// Its outcome: allowed, denied or failed.
        verdict: &'d str,
        /// The full names of the rules that decided.
        rules: &'d [Arc<str>],
        /// The parts that failed.
        failed: &'d FailedParts,
    },
    /// A quota request.
    Quota {
        /// Its outcome.
        verdict: &'d str,
        /// The name of the quota, or the domain of rate limits.
        quota: &'d str,
        /// The amount requested; `None` for rate limits with several descriptors.
        amount: Option<i64>,
        /// The amount granted.
        granted: Option<i64>,
        /// The parts that failed.
        failed: &'d FailedParts,
    },
    /// A report that failed.
    Report {
        /// Number of requests.
        requests: usize,
        /// The parts that failed.
        failed: &'d FailedParts,
    },
    /// A difference between the answer and an evaluation in the shadow, after the answer.
    Shadow {
        /// The kind of [shadow](crate::ShadowKind).
        shadow: &'d str,
        /// The kind of [difference](crate::ShadowDifference).
        difference: &'d str,
        /// The outcome that counts.
        live: &'d str,
        /// The name of the quota; `None` for a check.
        quota: Option<&'d str>,
        /// The full names of the rules with the difference.
        rules: &'d [Arc<str>],
        /// The parts that failed.
        failed: &'d FailedParts,
    },
    /// An entry of an access log, which only the [recent decisions](super::RecentDecisions) have.
    LogEntry,
}

/// The attributes of a request for the log, without masked values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoggedAttributes {
    values: Map<String, Json>,
    /// Number of attributes that do not fit.
    omitted: usize,
}

impl LoggedAttributes {
    pub(super) fn new(bag: &Bag, masks: &Masks) -> Self {
        let (mut values, mut omitted, mut room) = (Map::new(), 0, MAX_ATTRIBUTES);
        for declared in bag.vocabulary().iter() {
            let Some(value) = bag.at(declared.slot) else { continue };
            let size = declared.name.len() + value.size();
            if size > room {
                omitted += 1;
                continue;
            }
            room -= size;
            values.insert(declared.name.to_string(), masks.value(declared.name, value));
        }
        Self { values, omitted }
    }
}

/// A line of the log.
#[derive(Default, Serialize)]
pub(super) struct Line<'d> {
    time: String,
    decision_id: &'d str,
    api: Api,
    kind: &'static str,
    verdict: &'d str,
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rules: Vec<&'d str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    failed: &'d [FailedPart],
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    granted: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_seconds: Option<f64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    peer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<&'d Map<String, Json>>,
    #[serde(skip_serializing_if = "is_zero")]
    omitted: usize,
}

impl<'d> Line<'d> {
    pub(super) fn new(
        call: &'d CallRecord,
        decision: LoggedDecision<'d>,
        status: Option<(i32, &str)>,
        peer: String,
        attributes: Option<&'d LoggedAttributes>,
        masks: &Masks,
    ) -> Self {
        let is_timed = !matches!(decision, LoggedDecision::LogEntry | LoggedDecision::Shadow { .. });
        let mut line = Self {
            time: prost_types::Timestamp::from(SystemTime::now()).to_string(),
            decision_id: &call.id,
            api: call.api,
            kind: "log_entry",
            verdict: "logged",
            code: status.map(|(code, _)| status_name(code).into_owned()),
            message: status.map(|(_, message)| masks.text(message)).filter(|message| !message.is_empty()),
            latency_seconds: is_timed.then(|| call.start.elapsed().as_secs_f64()),
            peer,
            attributes: attributes.map(|attributes| &attributes.values),
            omitted: attributes.map_or(0, |attributes| attributes.omitted),
            ..Self::default()
        };
        match decision {
            LoggedDecision::Check { verdict, rules, failed } => {
                (line.kind, line.verdict, line.failed) = ("check", verdict, failed.list());
                line.rules = rules.iter().map(|rule| &**rule).collect();
            }
            LoggedDecision::Quota { verdict, quota, amount, granted, failed } => {
                (line.kind, line.verdict, line.failed) = ("quota", verdict, failed.list());
                (line.quota, line.amount, line.granted) = (Some(log_text(quota)), amount, granted);
            }
            LoggedDecision::Report { requests, failed } => {
                (line.kind, line.verdict, line.failed) = ("report", "failed", failed.list());
                line.requests = Some(requests);
            }
            LoggedDecision::Shadow { shadow, difference, live, quota, rules, failed } => {
                (line.kind, line.verdict, line.failed) = ("shadow", difference, failed.list());
                (line.shadow, line.live, line.quota) = (Some(shadow), Some(live), quota.map(log_text));
                line.rules = rules.iter().map(|rule| &**rule).collect();
            }
            LoggedDecision::LogEntry => {}
        }
        line
    }
}
