#![allow(clippy::unwrap_used)]

use std::sync::{
    Arc, Mutex,
    atomic::Ordering::Relaxed,
    mpsc::{Receiver, sync_channel},
};

use mixer_adapter_core::value::ValueType;
use serde_json::Value as Json;

use super::*;
use crate::{attribute::Vocabulary, failed_part::FailedParts};

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

/// No failed parts.
const NONE: &FailedParts = &FailedParts::NONE;
const ALLOWED: LoggedDecision<'_> = LoggedDecision::Check { verdict: "allowed", rules: &[], failed: NONE };
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
    bag.insert("request.path", "/a\nb?key=secret&x=1");
    bag.insert("request.api_key", "secret");
    let headers = [("Authorization", "secret"), ("accept", "*/*")];
    bag.insert("request.headers", headers);
    let output = Output::default();
    let log = DecisionLog::default().with_output(output.clone(), 1.0).unwrap();
    let call = log.begin(Api::Mixer, None).unwrap();
    let rules: [Arc<str>; 1] = ["r.rule.ns".into()];
    let denied = LoggedDecision::Check { verdict: "denied", rules: &rules, failed: NONE };
    call.log(denied, Some((7, "/?token=secret is closed")), "1.2.3.4", call.attributes(&bag).as_ref());
    assert!(log.flush(LONG));
    let line = &output.lines()[0];
    assert_eq!(line["decision_id"], call.id());
    assert_eq!((&line["verdict"], &line["code"]), (&"denied".into(), &"PERMISSION_DENIED".into()));
    assert_eq!(line["message"], "/?token=*** is closed");
    assert_eq!(line["rules"], serde_json::json!(["r.rule.ns"]));
    let attributes = serde_json::json!({
        "request.path": "/a\nb?key=***&x=1",
        "request.api_key": "***",
        "request.headers": {"Authorization": "***", "accept": "*/*"},
    });
    assert_eq!(line["attributes"], attributes);
    assert_eq!(log.counts().unwrap().written.load(Relaxed), 1);
}

#[test]
fn a_sample_has_its_share_of_the_calls() {
    for (share, expected) in [(0.0, 0), (0.25, 250), (1.0, 1000)] {
        let output = Output::default();
        let log = DecisionLog::default().with_output(output.clone(), share).unwrap();
        (0..1000).for_each(|_| log.begin(Api::Envoy, None).unwrap().log(ALLOWED, None, "", None));
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
    let log = DecisionLog::default().with_output(Slow(blocked), 1.0).unwrap();
    let message = "x".repeat(1000);
    let lines = 2 * MAX_QUEUED / message.len();
    let call = log.begin(Api::Mixer, None).unwrap();
    (0..lines).for_each(|_| call.log(ALLOWED, Some((7, &message)), "", None));
    let dropped = log.counts().unwrap().dropped.load(Relaxed);
    assert!(dropped > 0 && dropped < lines as u64, "{dropped} of {lines}");
    assert!(!log.flush(Duration::ZERO));
    drop(release);
    assert!(log.flush(LONG));
    assert_eq!(log.counts().unwrap().written.load(Relaxed) + dropped, lines as u64);
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

    let log = DecisionLog::default().with_output(Full, 1.0).unwrap();
    log.begin(Api::Mixer, None).unwrap().log(ALLOWED, None, "", None);
    assert!(log.flush(LONG));
    assert_eq!(log.counts().unwrap().failed.load(Relaxed), 1);
}

#[test]
fn calls_outside_the_sample_have_an_id_and_no_attributes() {
    let log = DecisionLog::default().with_output(io::sink(), 0.0).unwrap();
    let call = log.begin(Api::Mixer, None).unwrap();
    assert!(!call.id().is_empty() && !call.is_logged());
    assert_eq!(call.attributes(&Bag::new(Arc::new(Vocabulary::new()))), None);
}

#[test]
fn without_an_output_calls_are_logged_while_somebody_watches() {
    let log = DecisionLog::default();
    assert!(log.begin(Api::Mixer, None).is_none());
    assert!(log.begin_entry(Api::Envoy, "1-1").is_none());
    log.recent().read(0);
    log.begin(Api::Mixer, None).unwrap().log(ALLOWED, None, "", None);
    log.begin_entry(Api::Envoy, "1-1").unwrap().log(LoggedDecision::LogEntry, None, "", None);
    let recent: Json = serde_json::from_str(&log.recent().read(0)).unwrap();
    let kinds: Vec<&Json> =
        recent["decisions"].as_array().unwrap().iter().map(|line| &line["kind"]).collect();
    assert_eq!(kinds, ["check", "log_entry"]);
    assert!(log.counts().is_none());
}

#[test]
fn attributes_without_room_and_long_names_of_quotas_are_marked() {
    let mut vocabulary = Vocabulary::new();
    vocabulary.declare("request.path", ValueType::String).unwrap();
    vocabulary.declare("request.host", ValueType::String).unwrap();
    let mut bag = Bag::new(Arc::new(vocabulary));
    bag.insert("request.path", &*"x".repeat(20_000));
    bag.insert("request.host", "here");
    let output = Output::default();
    let log = DecisionLog::default().with_output(output.clone(), 1.0).unwrap();
    let call = log.begin(Api::Mixer, None).unwrap();
    call.log(ALLOWED, None, "", call.attributes(&bag).as_ref());
    let name = "q".repeat(20_000);
    let (verdict, quota) = ("granted", &*name);
    let quota = LoggedDecision::Quota { verdict, quota, amount: None, granted: None, failed: NONE };
    call.log(quota, None, "", None);
    assert!(log.flush(LONG));
    let [check, quota] = &output.lines()[..] else { panic!() };
    assert_eq!(
        (&check["attributes"], &check["omitted"]),
        (&serde_json::json!({"request.host": "here"}), &1.into())
    );
    let logged = quota["quota"].as_str().unwrap();
    assert!(logged.ends_with("q...") && logged.len() < 1100, "{logged}");
}

#[test]
fn after_a_line_that_was_written_in_part_the_next_one_begins_anew() {
    /// Accepts ten bytes, then fails once, then accepts everything.
    #[derive(Clone, Default)]
    struct Failing {
        output: Output,
        calls: usize,
    }

    impl io::Write for Failing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            let accepted = match self.calls {
                1 => &bytes[..10],
                2 => return Err(io::ErrorKind::StorageFull.into()),
                _ => bytes,
            };
            self.output.write_all(accepted)?;
            Ok(accepted.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let output = Output::default();
    let log = DecisionLog::default().with_output(Failing { output: output.clone(), calls: 0 }, 1.0).unwrap();
    for _ in 0..2 {
        log.begin(Api::Mixer, None).unwrap().log(ALLOWED, None, "", None);
        assert!(log.flush(LONG));
    }
    let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
    let [torn, whole] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert_eq!(torn.len(), 10);
    serde_json::from_str::<Json>(whole).unwrap();
    let counts = log.counts().unwrap();
    assert_eq!((counts.failed.load(Relaxed), counts.written.load(Relaxed)), (1, 1));
}
