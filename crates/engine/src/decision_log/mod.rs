//! The decision log: one line of JSON for each check, quota request and failed report. Lines go to an output, and to the last decisions
//! in memory while a client reads them.

mod line;
mod mask;
mod recent;
#[cfg(test)]
mod tests;

use std::{
    fmt, io,
    time::{Duration, Instant},
};

use mixer_adapter_core::framework::{
    line_queue::{LineCounts, LineQueue},
    log_limit::warn_limited,
    log_text::log_text,
};

use self::{line::Line, mask::Masks};
use crate::{attribute::Bag, decision_id::DecisionIds, sample::Sample};

pub use self::{
    line::{Api, LoggedAttributes, LoggedDecision},
    mask::{DEFAULT_MASKS, MASK},
    recent::RecentDecisions,
};

/// Maximum size of lines that wait to be written, in bytes.
const MAX_QUEUED: usize = 16 << 20;

/// A log of decisions.
#[derive(Debug)]
pub struct DecisionLog {
    ids: DecisionIds,
    masks: Masks,
    output: Option<Output>,
    recent: RecentDecisions,
}

/// An output of a share of all calls.
#[derive(Debug)]
struct Output {
    sample: Sample,
    lines: LineQueue,
}

/// A call whose decisions have an id, and are logged if it is in the sample or a client reads them.
#[derive(Debug)]
pub struct LoggedCall<'l> {
    log: &'l DecisionLog,
    call: CallRecord,
}

/// A logged call without its log, for decisions after its answer.
#[derive(Clone, Debug)]
pub struct CallRecord {
    api: Api,
    id: String,
    start: Instant,
    is_sampled: bool,
    is_recorded: bool,
}

impl DecisionLog {
    /// Creates a log without an output. It replaces the values of `masks`: names of attributes, `ATTRIBUTE[KEY]` for a key of a map, or
    /// `?PARAMETER` for a parameter of queries in any text.
    pub fn new<'m>(masks: impl IntoIterator<Item = &'m str>) -> Self {
        Self {
            ids: DecisionIds::default(),
            masks: Masks::new(masks),
            output: None,
            recent: RecentDecisions::new(),
        }
    }

    /// Starts a thread that writes the lines of a share of all calls, from 0 to 1, to `output`.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn with_output(self, output: impl io::Write + Send + 'static, sample: f64) -> io::Result<Self> {
        let lines = LineQueue::start("decision-log", output, MAX_QUEUED, |error| {
            warn_limited!(%error, "decision log could not be written");
        })?;
        let output = Output { sample: Sample::new(sample), lines };
        Ok(Self { output: Some(output), ..self })
    }

    /// The outcomes of lines; `None` without an output.
    pub fn counts(&self) -> Option<&LineCounts> {
        self.output.as_ref().map(|output| output.lines.counts())
    }

    /// Replaces the masked parameters of queries in a text.
    pub fn masked(&self, text: &str) -> String {
        self.masks.text(text)
    }

    /// The last decisions.
    pub fn recent(&self) -> &RecentDecisions {
        &self.recent
    }

    /// Begins a call; without an id it gets a new one. Returns `None` if the call is neither logged nor watched.
    pub fn begin(&self, api: Api, id: Option<&str>) -> Option<LoggedCall<'_>> {
        let is_recorded = self.recent.admit(id);
        if self.output.is_none() && !is_recorded {
            return None;
        }
        let is_sampled = self.output.as_ref().is_some_and(|output| output.sample.includes_next());
        Some(self.call(api, id, is_sampled, is_recorded))
    }

    /// Returns whether entries of access logs may be logged.
    pub fn is_watched(&self) -> bool {
        self.recent.is_watched()
    }

    /// Begins an entry of an access log for the decision `id`; `None` unless a client reads them.
    pub fn begin_entry(&self, api: Api, id: &str) -> Option<LoggedCall<'_>> {
        self.recent.admit(Some(id)).then(|| self.call(api, Some(id), false, true))
    }

    fn call(&self, api: Api, id: Option<&str>, is_sampled: bool, is_recorded: bool) -> LoggedCall<'_> {
        let id = id.map_or_else(|| self.ids.next(), str::to_owned);
        self.resume(CallRecord { api, id, start: Instant::now(), is_sampled, is_recorded })
    }

    /// Continues a call.
    pub fn resume(&self, call: CallRecord) -> LoggedCall<'_> {
        LoggedCall { log: self, call }
    }

    /// Waits until all lines so far are written; returns whether they were within the time.
    pub fn flush(&self, within: Duration) -> bool {
        self.output.as_ref().is_none_or(|output| output.lines.flush(within))
    }
}

impl Default for DecisionLog {
    /// Masks [credentials](DEFAULT_MASKS).
    fn default() -> Self {
        Self::new(DEFAULT_MASKS)
    }
}

impl LoggedCall<'_> {
    /// The id of the decision.
    pub fn id(&self) -> &str {
        &self.call.id
    }

    /// Returns the call, to be [resumed](DecisionLog::resume) after its answer.
    pub fn record(&self) -> CallRecord {
        self.call.clone()
    }

    /// Returns whether decisions of this call are logged. If not, it has an id only.
    pub fn is_logged(&self) -> bool {
        self.call.is_sampled || self.call.is_recorded
    }

    /// Returns the attributes of a request for the log; `None` if it is not logged.
    pub fn attributes(&self, bag: &Bag) -> Option<LoggedAttributes> {
        self.is_logged().then(|| LoggedAttributes::new(bag, &self.log.masks))
    }

    /// Logs a decision. `status` is set for a denial or an error.
    pub fn log(
        &self,
        decision: LoggedDecision<'_>,
        status: Option<(i32, &str)>,
        peer: impl fmt::Display,
        attributes: Option<&LoggedAttributes>,
    ) {
        if !self.is_logged() {
            return;
        }
        let Self { log, call } = self;
        let line = Line::new(call, decision, status, log_text(peer), attributes, &log.masks);
        // Texts, numbers and maps by texts cannot fail to be JSON.
        let Ok(mut line) = serde_json::to_vec(&line) else { return };
        if call.is_recorded {
            log.recent.add(&call.id, &line);
        }
        if let Some(output) = log.output.as_ref().filter(|_| call.is_sampled) {
            line.push(b'\n');
            output.lines.add(line);
        }
    }
}
