//! The decision log: one line of JSON for each check, quota request and failed report.
//!
//! Lines wait in a queue that is bounded in bytes for a thread that writes them. Lines that find no room are dropped and counted, so
//! that a slow disk delays no call.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use mixer_adapter_core::framework::{log_limit::LogLimit, log_text::log_text, status::status_name};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use crate::{
    attribute::{AttributeValue, Bag},
    decision_id::DecisionIds,
};

/// Maximum size of waiting lines in bytes.
const MAX_QUEUED: usize = 16 << 20;
/// Maximum size of the attributes of one line in bytes; further ones are omitted.
const MAX_ATTRIBUTES: usize = 16 << 10;
/// Size in bytes at which lines are written, even if more are waiting.
const BATCH: usize = 64 << 10;
/// The text in place of a masked value.
const MASK: &str = "***";

/// Attributes whose values hold credentials.
pub const DEFAULT_MASKS: [&str; 7] = [
    "request.api_key",
    "request.auth.raw_claims",
    "request.headers[authorization]",
    "request.headers[cookie]",
    "request.headers[proxy-authorization]",
    "request.headers[x-api-key]",
    "response.headers[set-cookie]",
];

/// A log of decisions.
#[derive(Debug)]
pub struct DecisionLog {
    ids: DecisionIds,
    sample: f64,
    masks: Vec<Mask>,
    decisions: AtomicU64,
    messages: Sender<Message>,
    counts: Arc<DecisionLogCounts>,
}

/// What became of lines.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct DecisionLogCounts {
    /// Lines that were written.
    pub written: AtomicU64,
    /// Lines that found no room in the queue.
    pub dropped: AtomicU64,
    /// Lines that could not be written.
    pub failed: AtomicU64,
    queued: AtomicUsize,
}

enum Message {
    Line(Vec<u8>),
    /// Answered once all earlier lines are written.
    Flush(SyncSender<()>),
}

/// An attribute, or a key of one that is a map: `request.headers[cookie]`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mask {
    attribute: String,
    key: Option<String>,
}

impl Mask {
    fn new(text: &str) -> Self {
        match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            Some((attribute, key)) => Self { attribute: attribute.to_owned(), key: Some(key.to_lowercase()) },
            None => Self { attribute: text.to_owned(), key: None },
        }
    }

    fn covers(&self, attribute: &str, key: Option<&str>) -> bool {
        self.attribute == attribute
            && match (&self.key, key) {
                (None, _) => true,
                (Some(masked), Some(key)) => masked.eq_ignore_ascii_case(key),
                (Some(_), None) => false,
            }
    }
}

/// The service that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Api {
    /// The Mixer API.
    Mixer,
    /// A service of Envoy.
    Envoy,
}

/// A call whose decisions are logged if it is in the sample.
#[derive(Debug)]
pub struct LoggedCall<'l> {
    log: &'l DecisionLog,
    api: Api,
    id: String,
    start: Instant,
    is_sampled: bool,
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
    },
    /// A report that failed.
    Report {
        /// Number of requests.
        requests: usize,
    },
}

/// A line of the log.
#[derive(Serialize)]
struct Line<'d> {
    time: String,
    decision_id: &'d str,
    api: Api,
    kind: &'static str,
    verdict: &'d str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    rules: Vec<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    granted: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<usize>,
    latency_seconds: f64,
    peer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<&'d Map<String, Json>>,
}

impl DecisionLog {
    /// Creates a log of a share of all calls, from 0 to 1, whose lines a thread writes to `output`. The values of `masks` are replaced:
    /// names of attributes, or `ATTRIBUTE[KEY]` for a key of a map.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start<'m>(
        output: impl io::Write + Send + 'static,
        sample: f64,
        masks: impl IntoIterator<Item = &'m str>,
    ) -> io::Result<Self> {
        let counts = Arc::<DecisionLogCounts>::default();
        #[expect(clippy::disallowed_methods, reason = "`queued` bounds it in bytes")]
        let (messages, received) = channel();
        let counted = counts.clone();
        thread::Builder::new()
            .name("decision-log".to_owned())
            .spawn(move || write(output, &received, &counted))?;
        let masks = masks.into_iter().map(Mask::new).collect();
        Ok(Self { ids: DecisionIds::new(), sample, masks, decisions: AtomicU64::new(0), messages, counts })
    }

    /// What became of lines.
    pub fn counts(&self) -> &DecisionLogCounts {
        &self.counts
    }

    /// Begins a call, with an id of its own unless there is one.
    pub fn begin(&self, api: Api, id: Option<String>) -> LoggedCall<'_> {
        // Multiples of the golden ratio are evenly spread over the fractions, without a lock.
        let count = self.decisions.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let fraction = (count >> 11) as f64 / (1_u64 << 53) as f64;
        LoggedCall {
            log: self,
            api,
            id: id.unwrap_or_else(|| self.ids.next()),
            start: Instant::now(),
            is_sampled: fraction < self.sample,
        }
    }

    /// Waits until all lines so far are written; returns whether they were within the time.
    pub fn flush(&self, within: Duration) -> bool {
        let (done, written) = sync_channel(1);
        self.messages.send(Message::Flush(done)).is_ok() && written.recv_timeout(within).is_ok()
    }

    fn add(&self, line: Vec<u8>) {
        let size = line.len();
        let queued = self.counts.queued.fetch_add(size, Relaxed);
        if queued + size > MAX_QUEUED || self.messages.send(Message::Line(line)).is_err() {
            self.counts.queued.fetch_sub(size, Relaxed);
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    fn value(&self, name: &str, value: &AttributeValue) -> Json {
        if self.masks.iter().any(|mask| mask.covers(name, None)) {
            return MASK.into();
        }
        match value {
            AttributeValue::String(text) => log_text(text).into(),
            AttributeValue::Int64(number) => (*number).into(),
            AttributeValue::Double(number) => (*number).into(),
            AttributeValue::Bool(value) => (*value).into(),
            AttributeValue::StringMap(map) => {
                let entries = map.iter().map(|(key, value)| {
                    let is_masked = self.masks.iter().any(|mask| mask.covers(name, Some(key)));
                    (log_text(key), if is_masked { MASK.into() } else { log_text(value).into() })
                });
                Json::Object(entries.collect())
            }
            other => log_text(other).into(),
        }
    }
}

impl LoggedCall<'_> {
    /// The id of the decision.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the attributes of a request for the log, without masked values; `None` if the call is not in the sample.
    pub fn attributes(&self, bag: &Bag) -> Option<Map<String, Json>> {
        if !self.is_sampled {
            return None;
        }
        let (mut attributes, mut room) = (Map::new(), MAX_ATTRIBUTES);
        for declared in bag.vocabulary().iter() {
            let Some(value) = bag.at(declared.slot) else { continue };
            let size = declared.name.len() + value.size();
            if size <= room {
                room -= size;
                attributes.insert(declared.name.to_string(), self.log.value(declared.name, value));
            }
        }
        Some(attributes)
    }

    /// Adds a line for a decision, if the call is in the sample. `status` is that of a denial or an error.
    pub fn log(
        &self,
        decision: LoggedDecision<'_>,
        status: Option<(i32, &str)>,
        peer: impl fmt::Display,
        attributes: Option<&Map<String, Json>>,
    ) {
        if !self.is_sampled {
            return;
        }
        let (kind, verdict) = match decision {
            LoggedDecision::Check { verdict, .. } => ("check", verdict),
            LoggedDecision::Quota { verdict, .. } => ("quota", verdict),
            LoggedDecision::Report { .. } => ("report", "failed"),
        };
        let mut line = Line {
            time: prost_types::Timestamp::from(SystemTime::now()).to_string(),
            decision_id: &self.id,
            api: self.api,
            kind,
            verdict,
            code: status.map(|(code, _)| status_name(code).into_owned()),
            message: status.map(|(_, message)| log_text(message)).filter(|message| !message.is_empty()),
            rules: Vec::new(),
            quota: None,
            amount: None,
            granted: None,
            requests: None,
            latency_seconds: self.start.elapsed().as_secs_f64(),
            peer: log_text(peer),
            attributes,
        };
        match decision {
            LoggedDecision::Check { rules, .. } => line.rules = rules.iter().map(|rule| &**rule).collect(),
            LoggedDecision::Quota { quota, amount, granted, .. } => {
                (line.quota, line.amount, line.granted) = (Some(quota), amount, granted);
            }
            LoggedDecision::Report { requests } => line.requests = Some(requests),
        }
        // Texts, numbers and maps by texts cannot fail to be JSON.
        if let Ok(mut text) = serde_json::to_vec(&line) {
            text.push(b'\n');
            self.log.add(text);
        }
    }
}

/// Writes lines until the log is dropped.
fn write(mut output: impl io::Write, received: &Receiver<Message>, counts: &DecisionLogCounts) {
    static LIMIT: LogLimit = LogLimit::new();
    let mut batch = Vec::new();
    let mut next = received.recv().ok();
    while let Some(message) = next.take() {
        let mut flushed = Vec::new();
        let mut lines = 0;
        let mut add = |message: Message| match message {
            Message::Line(line) => {
                batch.extend_from_slice(&line);
                lines += 1;
                batch.len()
            }
            Message::Flush(done) => {
                flushed.push(done);
                BATCH
            }
        };
        let mut size = add(message);
        while size < BATCH
            && let Ok(message) = received.try_recv()
        {
            size = add(message);
        }
        let written = output.write_all(&batch).and_then(|()| output.flush());
        counts.queued.fetch_sub(batch.len(), Relaxed);
        batch.clear();
        match written {
            Ok(()) => counts.written.fetch_add(lines, Relaxed),
            Err(error) => {
                if let Some(suppressed) = LIMIT.admit() {
                    tracing::warn!(%error, suppressed, "decision log could not be written");
                }
                counts.failed.fetch_add(lines, Relaxed)
            }
        };
        for done in flushed {
            // The waiter may have given up.
            let _ = done.send(());
        }
        next = received.recv().ok();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use mixer_adapter_core::value::ValueType;

    use super::*;
    use crate::attribute::Vocabulary;

    /// An output that a test reads.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Output {
        fn lines(&self) -> Vec<Json> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    impl io::Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const ALLOWED: LoggedDecision<'_> = LoggedDecision::Check { verdict: "allowed", rules: &[] };
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn masked_attributes_and_keys_have_no_values_in_the_log() {
        let mut vocabulary = Vocabulary::new();
        for (name, value_type) in [
            ("request.path", ValueType::String),
            ("request.api_key", ValueType::String),
            ("request.headers", ValueType::StringMap),
        ] {
            vocabulary.declare(name, value_type).unwrap();
        }
        let mut bag = Bag::new(Arc::new(vocabulary));
        bag.insert("request.path", "/a\nb");
        bag.insert("request.api_key", "secret");
        let headers = [("Authorization", "secret"), ("accept", "*/*")];
        bag.insert("request.headers", headers);
        let output = Output::default();
        let log = DecisionLog::start(output.clone(), 1.0, DEFAULT_MASKS).unwrap();
        let call = log.begin(Api::Mixer, None);
        let rules: [Arc<str>; 1] = ["r.rule.ns".into()];
        let denied = LoggedDecision::Check { verdict: "denied", rules: &rules };
        call.log(denied, Some((7, "no")), "1.2.3.4", call.attributes(&bag).as_ref());
        assert!(log.flush(LONG));
        let line = &output.lines()[0];
        assert_eq!(line["decision_id"], call.id());
        assert_eq!((&line["verdict"], &line["code"]), (&"denied".into(), &"PERMISSION_DENIED".into()));
        assert_eq!(line["rules"], serde_json::json!(["r.rule.ns"]));
        let attributes = serde_json::json!({
            "request.path": "/a\nb",
            "request.api_key": "***",
            "request.headers": {"Authorization": "***", "accept": "*/*"},
        });
        assert_eq!(line["attributes"], attributes);
        assert_eq!(log.counts().written.load(Relaxed), 1);
    }

    #[test]
    fn a_sample_has_its_share_of_the_calls() {
        for (share, expected) in [(0.0, 0), (0.25, 250), (1.0, 1000)] {
            let output = Output::default();
            let log = DecisionLog::start(output.clone(), share, []).unwrap();
            (0..1000).for_each(|_| log.begin(Api::Envoy, None).log(ALLOWED, None, "", None));
            assert!(log.flush(LONG));
            assert!(output.lines().len().abs_diff(expected) <= 1, "{share}: {}", output.lines().len());
        }
    }

    #[test]
    fn lines_that_a_slow_output_leaves_no_room_for_are_dropped_and_counted() {
        /// Blocks until the other end is dropped.
        struct Slow(Receiver<()>);

        impl io::Write for Slow {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let (release, blocked) = sync_channel(0);
        let log = DecisionLog::start(Slow(blocked), 1.0, []).unwrap();
        let message = "x".repeat(1000);
        let lines = 2 * MAX_QUEUED / message.len();
        let call = log.begin(Api::Mixer, None);
        (0..lines).for_each(|_| call.log(ALLOWED, Some((7, &message)), "", None));
        let dropped = log.counts().dropped.load(Relaxed);
        assert!(dropped > 0 && dropped < lines as u64, "{dropped} of {lines}");
        assert!(!log.flush(Duration::ZERO));
        drop(release);
        assert!(log.flush(LONG));
        assert_eq!(log.counts().written.load(Relaxed) + dropped, lines as u64);
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        struct Full;

        impl io::Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let log = DecisionLog::start(Full, 1.0, []).unwrap();
        log.begin(Api::Mixer, None).log(ALLOWED, None, "", None);
        assert!(log.flush(LONG));
        assert_eq!(log.counts().failed.load(Relaxed), 1);
    }
}
