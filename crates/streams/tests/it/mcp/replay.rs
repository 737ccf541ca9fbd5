//! Streams recorded of Galley 1.3.8: our source receives the recorded sink's requests, our sink Galley's pushes. Shapes are compared, not
//! version texts: collections, names, nonces, flags, endings and silence.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use mixer_adapter_streams::{
    certify::{ClientRules, Protocol, ServerRules},
    mcp::source::{self, TRIGGER},
    proto::istio::mcp::v1alpha1::{RequestResources, Resources},
    stream::{
        RawChange, RawResource, Summarize as _,
        sink::{Mode, NackError, Output, SinkDecision, SinkMachine, SinkOptions},
        source::Catalogue,
    },
};
use prost::Message;
use serde_json::Value as Json;
use tonic::{Code, Status};

use super::messages::names;

/// What happened, in order.
enum Event {
    Opened(u64),
    FromSink(u64, RequestResources),
    FromSource(u64, Resources),
    Configured,
    Silence,
    /// Ended by the source, with that code and text.
    Ended(u64, String, String),
}

/// Cases of Galley's limits, which are those of its transport, are in the tests with sockets.
const TRANSPORT: [&str; 1] = ["19-large-request.jsonl"];

fn recordings(folder: &str) -> Vec<(PathBuf, Vec<Event>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/mcp/galley-1.3.8").join(folder);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !TRANSPORT.iter().any(|name| path.ends_with(name)));
    files.sort();
    files.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

fn read(path: &Path) -> Vec<Event> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().filter_map(|line| event(&serde_json::from_str(line).unwrap())).collect()
}

fn event(line: &Json) -> Option<Event> {
    let stream = line["stream"].as_u64().unwrap_or_default();
    if line["kind"] == "message" {
        let bytes = unhex(line["hex"].as_str().unwrap());
        return Some(match line["from"].as_str().unwrap() {
            "sink" => Event::FromSink(stream, RequestResources::decode(&*bytes).unwrap()),
            _ => Event::FromSource(stream, Resources::decode(&*bytes).unwrap()),
        });
    }
    match line["event"].as_str().unwrap() {
        "stream-opened" | "stream-accepted" => Some(Event::Opened(stream)),
        "config-put" | "config-removed" => Some(Event::Configured),
        "silence" => Some(Event::Silence),
        "stream-ended" if line["code"] != "CANCELLED" && line["code"] != "OK" => {
            let text = |field: &str| line[field].as_str().unwrap().to_owned();
            Some(Event::Ended(stream, text("code"), text("details")))
        }
        _ => None,
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

/// What a collection held when it was pushed.
fn content(push: &Resources) -> RawChange {
    let resources = push.resources.iter().map(|resource| {
        let metadata = resource.metadata.clone().unwrap();
        Arc::new(RawResource {
            name: metadata.name,
            version: metadata.version,
            created: metadata.create_time,
            labels: metadata.labels,
            annotations: metadata.annotations,
            body: resource.body.clone().unwrap(),
        })
    });
    RawChange {
        collection: push.collection.as_str().into(),
        version: String::new(),
        full: true,
        resources: resources.collect(),
        removed: Vec::new(),
    }
}

/// Our source, configured as Galley was: what it held at each time can be seen from what it pushed next.
#[derive(Default)]
struct Replayed {
    catalogue: Catalogue,
    streams: BTreeMap<u64, (source::McpStream, VecDeque<Resources>)>,
}

impl Replayed {
    /// The next push of each collection that differs from what it holds.
    fn configure(&mut self, rest: &[Event], only_unknown: bool) {
        let mut seen = Vec::new();
        for event in rest {
            let Event::FromSource(_, push) = event else { continue };
            let known = self.catalogue.snapshot(&push.collection).is_some();
            if push.collection == TRIGGER || seen.contains(&&push.collection) || (only_unknown && known) {
                continue;
            }
            if self.catalogue.apply(&content(push)) {
                seen.push(&push.collection);
            }
        }
        self.flow();
    }

    fn flow(&mut self) {
        for (machine, pushed) in self.streams.values_mut() {
            pushed.extend(std::iter::from_fn(|| machine.next(&self.catalogue)));
        }
    }
}

#[test]
fn our_source_answers_as_galley_did() {
    for folder in ["source", "dialer"] {
        for (path, events) in recordings(folder) {
            let mut replayed = Replayed::default();
            replayed.configure(&events, true);
            let mut errors: BTreeMap<u64, Status> = BTreeMap::new();
            let mut compared = 0;
            for (at, event) in events.iter().enumerate() {
                let context = format!("{} event {at}", path.display());
                match event {
                    Event::Opened(stream) => {
                        replayed.streams.insert(*stream, (source::McpStream::new(false), VecDeque::new()));
                    }
                    Event::FromSink(stream, request) => {
                        let (machine, _) = replayed.streams.get_mut(stream).unwrap();
                        if let Err(error) = machine.requested(request.clone(), &replayed.catalogue) {
                            errors.insert(*stream, error);
                        }
                        replayed.flow();
                    }
                    // The driver sends that.
                    Event::FromSource(_, push) if push.collection == TRIGGER => {}
                    Event::FromSource(stream, expected) => {
                        let (_, pushed) = replayed.streams.get_mut(stream).unwrap();
                        let push = pushed.pop_front().unwrap_or_else(|| panic!("{context}: no push"));
                        assert_eq!(push.collection, expected.collection, "{context}");
                        assert_eq!(push.nonce, expected.nonce, "{context}");
                        assert_eq!(push.incremental, expected.incremental, "{context}");
                        assert_eq!(push.removed_resources, expected.removed_resources, "{context}");
                        assert_eq!(sorted(names(&push)), sorted(names(expected)), "{context}");
                        assert!(!push.system_version_info.is_empty(), "{context}");
                        compared += 1;
                    }
                    Event::Configured => replayed.configure(&events[at..], false),
                    Event::Silence => {
                        let unexpected = replayed.streams.values().flat_map(|(_, pushed)| pushed);
                        assert_eq!(unexpected.count(), 0, "{context}");
                    }
                    Event::Ended(stream, code, text) => {
                        let error = errors.remove(stream).unwrap_or_else(|| panic!("{context}: goes on"));
                        assert_eq!((error.code(), error.message()), (Code::InvalidArgument, text.as_str()));
                        assert_eq!(code, "INVALID_ARGUMENT");
                        compared += 1;
                    }
                }
            }
            // A source that dials ends a stream it is asked nonsense on; Galley left it open
            // (docs/behaviour/mcp.md#sources-that-dial).
            let nonsense = path.ends_with("05-dial-unknown.jsonl");
            assert_eq!(errors.len(), usize::from(nonsense), "{}", path.display());
            assert!(compared > 0 || nonsense || path.ends_with("04-dial-down.jsonl"), "{}", path.display());
        }
    }
}

/// Galley as a server, and the recorded sink as a client, by the rules of `watch --certify` and `source --certify`.
#[test]
fn the_recorded_galley_breaks_no_rule_and_the_recorded_sink_those_that_it_was_to_break() {
    let mut broken = BTreeSet::new();
    for folder in ["source", "dialer"] {
        for (path, events) in recordings(folder) {
            let file = path.file_stem().unwrap().to_string_lossy().into_owned();
            let mut streams: BTreeMap<u64, (ServerRules, ClientRules)> = BTreeMap::new();
            for event in &events {
                match event {
                    Event::Opened(stream) => {
                        let rules = (ServerRules::new(Protocol::Mcp), ClientRules::default());
                        streams.insert(*stream, rules);
                    }
                    // With this a source begins that dials, and its refusal is the invitation to go on.
                    Event::FromSink(_, RequestResources { collection, .. })
                    | Event::FromSource(_, Resources { collection, .. })
                        if collection == TRIGGER => {}
                    Event::FromSink(stream, request) => {
                        let (server, client) = streams.get_mut(stream).unwrap();
                        server.sent(&request.shorthand());
                        let found = client.received(&request.shorthand(), &request.collection);
                        broken.extend(found.into_iter().map(|found| (file.clone(), found.rule)));
                    }
                    Event::FromSource(stream, push) => {
                        let (server, client) = streams.get_mut(stream).unwrap();
                        client.sent(&push.shorthand());
                        assert_eq!(server.received(&push.shorthand()), [], "{file}");
                    }
                    Event::Configured | Event::Silence | Event::Ended(..) => {}
                }
            }
        }
    }
    let nonce = "a nonce is one that the server sent for the type";
    let expected = [
        ("07-stale-nonce", nonce),
        ("12-reconnect", "the first request for a type has no nonce and no error"),
        ("15-no-node", "the first request of a stream says who asks"),
        ("18-many-requests", nonce),
    ];
    assert_eq!(broken, expected.map(|(file, rule)| (file.to_owned(), rule)).into());
}

/// The recorded sink's answer to a push, if it answered.
fn recorded_answer<'a>(rest: &'a [Event], of: u64, push: &Resources) -> Option<&'a RequestResources> {
    rest.iter().find_map(|event| match event {
        Event::FromSink(stream, request)
            if *stream == of
                && request.response_nonce == push.nonce
                && request.collection == push.collection =>
        {
            Some(request)
        }
        _ => None,
    })
}

#[test]
fn our_sink_takes_what_galley_pushed() {
    for folder in ["source", "dialer"] {
        for (path, events) in recordings(folder) {
            let mut asked: Vec<&str> = events
                .iter()
                .filter_map(|event| match event {
                    Event::FromSource(_, push) if push.collection != TRIGGER => {
                        Some(push.collection.as_str())
                    }
                    _ => None,
                })
                .collect();
            asked.sort_unstable();
            asked.dedup();
            let options = SinkOptions::new("example", asked.iter().copied()).mode(Mode::Full);
            let mut sink = SinkMachine::new(options);
            let now = Instant::now();
            for (at, event) in events.iter().enumerate() {
                let context = format!("{} event {at}", path.display());
                match event {
                    Event::Opened(stream) => {
                        sink.opened(*stream, now);
                        let requests = sent(&mut sink, now, SinkDecision::Live);
                        let collections: Vec<_> =
                            requests.iter().map(|request| &*request.collection).collect();
                        assert_eq!(collections, asked, "{context}");
                    }
                    Event::FromSource(stream, push) => {
                        let recorded = recorded_answer(&events[at..], *stream, push);
                        let refusal = recorded.and_then(|request| request.error_detail.as_ref());
                        let decision = match refusal {
                            Some(error) => SinkDecision::Unreadable(NackError::whole(&*error.message)),
                            None => SinkDecision::Live,
                        };
                        sink.received(*stream, push.clone(), now);
                        let mut answers = sent(&mut sink, now, decision);
                        let answer = answers.pop().unwrap();
                        assert!(answers.is_empty(), "{context}");
                        assert_eq!(answer.sink_node.unwrap().id, "example");
                        assert_eq!(answer.collection, push.collection, "{context}");
                        assert_eq!(answer.response_nonce, push.nonce, "{context}");
                        assert!(!answer.incremental && answer.initial_resource_versions.is_empty());
                        if push.collection == TRIGGER {
                            let told = "unsupported collection $triggerCollection";
                            let error = answer.error_detail.unwrap();
                            assert_eq!((error.code, error.message.as_str()), (12, told));
                        } else if answer.error_detail.is_none() {
                            let view = sink.collection(&push.collection).unwrap();
                            let held: Vec<_> = view
                                .resources()
                                .map(|held| format!("{}@{}", held.name, held.version))
                                .collect();
                            assert_eq!(held, sorted(names(push)), "{context}");
                        } else {
                            assert_eq!(
                                answer.error_detail.map(|error| error.code),
                                refusal.map(|error| error.code)
                            );
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// What the sink sends, if the application decides so on every offer.
fn sent(sink: &mut SinkMachine, now: Instant, decision: SinkDecision) -> Vec<RequestResources> {
    let mut sent = Vec::new();
    while let Some(output) = sink.poll(now) {
        match output {
            Output::Send(_, request) => sent.push(request),
            Output::Decide(id, change) => sink.decided(&change.collection, id, decision.clone(), now),
            Output::End(_, status) => panic!("{status}"),
            Output::Accepted { .. } => {}
        }
    }
    sent
}
