//! The decision log: one line of JSON for each check, quota request and failed report. Lines go to an output, and to the last decisions
//! in memory while a client reads them.

mod line;
mod mask;
mod recent;
#[cfg(test)]
mod tests;

use std::{
    fmt, io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use mixer_adapter_core::framework::{
    line_queue::{LineCounts, LineQueue},
    log_limit::warn_limited,
    log_text::log_text,
};

use self::{line::Line, mask::Masks};
use crate::{attribute::Bag, decision_id::DecisionIds};

pub use self::{
    line::{Api, LoggedAttributes, LoggedDecision},
    mask::DEFAULT_MASKS,
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
    sample: f64,
    calls: AtomicU64,
    lines: LineQueue,
}

impl Output {
    /// Returns whether the next call is in the sample.
    fn samples(&self) -> bool {
        // Multiples of the golden ratio are evenly spread over the fractions, without a lock.
        let count = self.calls.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let fraction = (count >> 11) as f64 / (1_u64 << 53) as f64;
        fraction < self.sample
    }
}

/// A call whose decisions have an id, and are logged if it is in the sample or a client reads them.
#[derive(Debug)]
pub struct LoggedCall<'l> {
    log: &'l DecisionLog,
    api: Api,
    id: String,
    start: Instant,
    output: Option<&'l LineQueue>,
    is_recorded: bool,
}

impl DecisionLog {
    /// Creates a log without an output. It replaces the values of `masks`: names of attributes, `ATTRIBUTE[KEY]` for a key of a map, or
    /// `?PARAMETER` for a parameter of queries in any text.
    pub fn new<'m>(masks: impl IntoIterator<Item = &'m str>) -> Self {
        Self {
            ids: DecisionIds::new(),
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
        let output = Output { sample, calls: AtomicU64::new(0), lines };
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
        let output = self.output.as_ref().filter(|output| output.samples()).map(|output| &output.lines);
        Some(self.call(api, id, output, is_recorded))
    }

    /// Returns whether entries of access logs may be logged.
    pub fn is_watched(&self) -> bool {
        self.recent.is_watched()
    }

    /// Begins an entry of an access log for the decision `id`; `None` unless a client reads them.
    pub fn begin_entry(&self, api: Api, id: &str) -> Option<LoggedCall<'_>> {
        self.recent.admit(Some(id)).then(|| self.call(api, Some(id), None, true))
    }

    fn call<'l>(
        &'l self,
        api: Api,
        id: Option<&str>,
        output: Option<&'l LineQueue>,
        is_recorded: bool,
    ) -> LoggedCall<'l> {
        let id = id.map_or_else(|| self.ids.next(), str::to_owned);
        LoggedCall { log: self, api, id, start: Instant::now(), output, is_recorded }
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
        &self.id
    }

    /// Returns whether decisions of this call are logged. If not, it has an id only.
    pub fn is_logged(&self) -> bool {
        self.output.is_some() || self.is_recorded
    }

    /// Returns the attributes of a request for the log; `None` if it is not logged.
    pub fn attributes(&self, bag: &Bag) -> Option<LoggedAttributes> {
        self.is_logged().then(|| LoggedAttributes::new(bag, &self.log.masks))
    }

    /// Logs a decision. `status` is that of a denial or an error.
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
        let (origin, masks) = ((self.api, &*self.id), &self.log.masks);
        let line = Line::new(origin, decision, status, log_text(peer), attributes, masks);
        let line = match decision {
            LoggedDecision::LogEntry => line,
            _ => line.with_latency(self.start.elapsed()),
        };
        // Texts, numbers and maps by texts cannot fail to be JSON.
        let Ok(mut line) = serde_json::to_vec(&line) else { return };
        if self.is_recorded {
            self.log.recent.add(&self.id, &line);
        }
        if let Some(output) = self.output {
            line.push(b'\n');
            output.add(line);
        }
    }
}
