//! The source's state machine.

use std::sync::Arc;

use mixer_adapter_streams::{
    mcp::source::{McpStream, TRIGGER},
    proto::istio::mcp::v1alpha1::{RequestResources, Resources, SinkNode},
    stream::{
        ContentVersion, RawChange, RawResource,
        source::{Catalogue, Meaning},
    },
};
use prost::Message as _;
use tonic::Code;

use super::{linear::assert_linear, messages::*};

/// A source with one stream, without sockets.
struct Source {
    catalogue: Catalogue,
    machine: McpStream,
}

impl Source {
    fn new(incremental: bool) -> Self {
        let catalogue = Catalogue::of([RULES, HANDLERS, INSTANCES]);
        Self { catalogue, machine: McpStream::new(incremental) }
    }

    fn set(&mut self, collection: &str, resources: &[&str]) {
        let resources = resources.iter().map(|text| {
            let (name, version) = text.split_once('@').unwrap();
            let body = resource(text).body.unwrap();
            Arc::new(RawResource {
                name: name.to_owned(),
                version: version.to_owned(),
                body,
                ..RawResource::default()
            })
        });
        self.catalogue.apply(&RawChange {
            collection: collection.into(),
            version: String::new(),
            full: true,
            resources: resources.collect(),
            removed: Vec::new(),
        });
    }

    fn request(&mut self, request: RequestResources) -> Meaning {
        self.machine.requested(request, &self.catalogue).unwrap()
    }

    fn next(&mut self) -> Option<Resources> {
        self.machine.next(&self.catalogue)
    }

    /// The nonce and names of the next push, which is full.
    fn full(&mut self) -> (String, Vec<String>) {
        let push = self.next().unwrap();
        assert!(!push.incremental && push.removed_resources.is_empty());
        (push.nonce.clone(), names(&push))
    }

    /// The nonce, names and removed names of the next push, which is incremental.
    fn increment(&mut self) -> (String, Vec<String>, Vec<String>) {
        let push = self.next().unwrap();
        assert!(push.incremental);
        (push.nonce.clone(), names(&push), push.removed_resources)
    }

    fn ack(&mut self, nonce: &str) {
        assert_eq!(self.request(ack(RULES, nonce)), Meaning::Accepted);
    }

    fn ack_incremental(&mut self, nonce: &str) {
        let request = RequestResources { incremental: true, ..ack(RULES, nonce) };
        assert_eq!(self.request(request), Meaning::Accepted);
    }
}

fn s(text: &str) -> String {
    text.to_owned()
}

fn list(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| s(text)).collect()
}

/// TestSourceACKAddUpdateDelete
#[test]
fn each_answer_is_followed_by_the_newest_state_as_a_whole() {
    let mut source = Source::new(false);
    source.set(RULES, &["a@1"]);
    assert_eq!(source.request(request(RULES)), Meaning::Requested);
    assert_eq!(source.full(), (s("1"), list(&["a@1"])));
    source.ack("1");
    assert_eq!(source.next(), None);

    source.set(RULES, &["a@2"]);
    assert_eq!(source.full(), (s("2"), list(&["a@2"])));
    let Meaning::Refused(error) = source.request(nack(RULES, "2", 3, "no")) else { panic!() };
    assert_eq!((error.code, error.message.as_str()), (3, "no"));
    assert_eq!(source.next(), None, "what was refused is not sent again");

    source.set(RULES, &["a@3"]);
    assert_eq!(source.full(), (s("3"), list(&["a@3"])));
    source.ack("3");
    source.set(RULES, &[]);
    assert_eq!(source.full(), (s("4"), vec![]), "the last one deleted is an empty push");
    source.ack("4");
    source.set(RULES, &["a@4", "b@1"]);
    assert_eq!(source.full(), (s("5"), list(&["a@4", "b@1"])));
    source.ack("5");
    source.set(RULES, &["a@4", "b@2", "c@1"]);
    assert_eq!(source.full(), (s("6"), list(&["a@4", "b@2", "c@1"])));
    source.ack_incremental("6");
    source.set(RULES, &["a@5"]);
    assert_eq!(source.full(), (s("7"), list(&["a@5"])), "asked for changes, this source sends the whole");
}

/// TestSourceACKAddUpdateDelete_Incremental
#[test]
fn a_sink_that_asks_for_changes_gets_what_differs_from_what_it_accepted() {
    let mut source = Source::new(true);
    source.set(RULES, &["a@1"]);
    source.request(request(RULES));
    assert_eq!(source.full(), (s("1"), list(&["a@1"])));
    source.ack_incremental("1");

    source.set(RULES, &["a@2"]);
    assert_eq!(source.increment(), (s("2"), list(&["a@2"]), vec![]));
    let refusal = RequestResources { incremental: true, ..nack(RULES, "2", 3, "no") };
    assert!(matches!(source.request(refusal), Meaning::Refused(_)));
    source.set(RULES, &["a@3", "b@1"]);
    assert_eq!(source.increment(), (s("3"), list(&["a@3", "b@1"]), vec![]), "what was refused is not known");
    source.ack_incremental("3");

    source.set(RULES, &["b@1"]);
    assert_eq!(source.increment(), (s("4"), vec![], list(&["a"])));
    source.ack_incremental("4");
    source.set(RULES, &["c@1", "d@1"]);
    assert_eq!(source.increment(), (s("5"), list(&["c@1", "d@1"]), list(&["b"])));
    source.ack("5");
    source.set(RULES, &["d@1"]);
    assert_eq!(source.full(), (s("6"), list(&["d@1"])), "not asked for changes");
    source.ack_incremental("6");
    source.set(RULES, &["d@1", "e@1"]);
    assert_eq!(source.increment(), (s("7"), list(&["e@1"]), vec![]), "and again");
}

#[test]
fn without_knowing_what_the_sink_has_the_first_push_is_whole() {
    let mut source = Source::new(true);
    source.set(RULES, &["a@1"]);
    source.request(RequestResources { incremental: true, ..request(RULES) });
    assert_eq!(source.full(), (s("1"), list(&["a@1"])));
}

#[test]
fn a_sink_that_names_its_versions_gets_what_it_missed_removals_included() {
    let mut source = Source::new(true);
    source.set(RULES, &["a@1", "b@2", "c@1"]);
    let known = [("a", "1"), ("b", "1"), ("gone", "1")].map(|(name, version)| (s(name), s(version)));
    let resume =
        RequestResources { incremental: true, initial_resource_versions: known.into(), ..request(RULES) };
    source.request(resume.clone());
    assert_eq!(source.increment(), (s("1"), list(&["b@2", "c@1"]), list(&["gone"])));

    let mut source = Source::new(false);
    source.set(RULES, &["a@1"]);
    source.request(resume);
    assert_eq!(source.full(), (s("1"), list(&["a@1"])), "this source sends the whole always");
}

/// TestSourceWatchBeforeResponsesAvailable, TestCreateWatch
#[test]
fn a_request_before_there_is_anything_is_answered_when_there_is() {
    let mut source = Source::new(false);
    source.request(request(RULES));
    assert_eq!(source.next(), None);
    source.set(HANDLERS, &["h@1"]);
    assert_eq!(source.next(), None, "not asked for");
    source.set(RULES, &[]);
    assert_eq!(source.full(), (s("1"), vec![]), "nothing is an answer too");
    source.ack("1");
    source.set(RULES, &[]);
    assert_eq!(source.next(), None, "it is the same nothing");
}

/// TestClearSnapshot
#[test]
fn a_collection_that_was_cleared_is_answered_when_it_is_known_again() {
    let mut source = Source::new(false);
    source.set(RULES, &["a@1"]);
    source.catalogue.clear(RULES);
    source.request(request(RULES));
    assert_eq!(source.next(), None);
    source.set(RULES, &["a@2"]);
    assert_eq!(source.full(), (s("1"), list(&["a@2"])));
}

/// UnsupportedTypeError
#[test]
fn an_unknown_collection_ends_the_stream_unless_the_catalogue_is_open() {
    let mut source = Source::new(false);
    let error = source.machine.requested(request("no/such"), &source.catalogue).unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::InvalidArgument, "unsupported collection \"no/such\"")
    );

    source.catalogue = source.catalogue.clone().open();
    assert_eq!(source.request(request("no/such")), Meaning::Requested);
    assert_eq!(source.next(), None, "nobody knows yet what there is");
    source.set(RULES, &["a@1"]);
    assert_eq!(source.full(), (s("1"), vec![]));
}

/// TestSourceStaleNonce
#[test]
fn stale_answers_change_nothing() {
    let mut source = Source::new(false);
    source.set(RULES, &["a@1"]);
    assert_eq!(source.request(ack(RULES, "9")), Meaning::Stale, "the nonce of another stream");
    assert_eq!(source.next(), None);
    source.request(request(RULES));
    source.full();
    source.set(RULES, &["a@2"]);
    assert_eq!(source.request(ack(RULES, "9")), Meaning::Stale);
    assert_eq!(source.request(nack(RULES, "9", 3, "late")), Meaning::Stale);
    assert_eq!(source.next(), None, "the push is still under way");
    source.ack("1");
    assert_eq!(source.full(), (s("2"), list(&["a@2"])));
    source.ack("2");
    assert_eq!(source.request(ack(RULES, "2")), Meaning::Stale, "twice");
    source.set(RULES, &["a@3"]);
    assert_eq!(source.full(), (s("3"), list(&["a@3"])));
}

/// TestSourceConcurrentRequestsForMultipleTypes, and UniqueQueue: one entry a collection, the newest value, its own place
#[test]
fn collections_share_a_stream_and_its_nonces_but_do_not_wait_for_each_other() {
    let mut source = Source::new(false);
    for (collection, text) in [(RULES, "r@1"), (HANDLERS, "h@1"), (INSTANCES, "i@1")] {
        source.set(collection, &[text]);
        source.request(request(collection));
    }
    let pushes: Vec<_> =
        std::iter::from_fn(|| source.next()).map(|push| (push.nonce, push.collection)).collect();
    assert_eq!(pushes, [(s("1"), s(HANDLERS)), (s("2"), s(INSTANCES)), (s("3"), s(RULES))]);
    for version in 2..5 {
        source.set(RULES, &[&format!("r@{version}")]);
        source.set(HANDLERS, &[&format!("h@{version}")]);
    }
    assert_eq!(source.next(), None);
    assert_eq!(source.request(ack(HANDLERS, "1")), Meaning::Accepted);
    assert_eq!(source.full(), (s("4"), list(&["h@4"])), "what came between is left out");
    assert_eq!(source.request(ack(HANDLERS, "3")), Meaning::Stale, "the nonce of another collection");
    source.ack("3");
    assert_eq!(source.full(), (s("5"), list(&["r@4"])));
}

#[test]
fn collections_are_sent_in_the_order_of_dependency() {
    const GATEWAYS: &str = "istio/networking/v1alpha3/gateways";
    const IN_ORDER: [&str; 7] = [
        "istio/policy/v1beta1/attributemanifests",
        "istio/config/v1alpha2/templates",
        "istio/config/v1alpha2/adapters",
        HANDLERS,
        INSTANCES,
        RULES,
        GATEWAYS,
    ];
    let mut source = Source::new(false);
    source.catalogue = Catalogue::of(IN_ORDER);
    for collection in IN_ORDER.iter().rev() {
        source.set(collection, &["a@1"]);
        source.request(request(collection));
    }
    let order = |source: &mut Source| -> Vec<_> {
        std::iter::from_fn(|| source.next()).map(|push| push.collection).collect()
    };
    assert_eq!(order(&mut source), IN_ORDER);
    for (collection, nonce) in IN_ORDER.iter().zip(1..) {
        if ![HANDLERS, INSTANCES].contains(collection) {
            source.request(ack(collection, &nonce.to_string()));
        }
    }
    for collection in [GATEWAYS, RULES, INSTANCES, HANDLERS] {
        source.set(collection, &["a@2"]);
    }
    assert_eq!(order(&mut source), [GATEWAYS], "rules wait for the handlers that they may refer to");
    source.request(ack(HANDLERS, "4"));
    source.request(ack(INSTANCES, "5"));
    assert_eq!(order(&mut source), [HANDLERS, INSTANCES, RULES]);
}

#[test]
fn a_collection_is_served_under_the_name_it_is_asked_for_by() {
    const TYPE_URL: &str = "type.googleapis.com/istio.io.networking.v1alpha3.VirtualService";
    for name in [TYPE_URL, "istio/networking/v1alpha3/VirtualService"] {
        let mut source = Source::new(false);
        source.catalogue = Catalogue::default().open();
        source.set("istio/networking/v1alpha3/virtualservices", &["a@1"]);
        source.request(request(name));
        let push = source.next().unwrap();
        assert_eq!((&*push.collection, push.resources.len()), (name, 1));
        assert_eq!(source.request(ack(name, &push.nonce)), Meaning::Accepted);
    }
}

#[test]
fn a_request_without_a_nonce_brings_the_state_again_but_answers_a_push_under_way() {
    let mut source = Source::new(true);
    source.set(RULES, &["a@1"]);
    source.request(request(RULES));
    source.full();
    source.ack_incremental("1");
    assert_eq!(source.request(request(RULES)), Meaning::Requested);
    assert_eq!(source.full(), (s("2"), list(&["a@1"])));
    assert_eq!(source.request(request(RULES)), Meaning::Accepted);
    assert_eq!(source.next(), None);
}

/// TestClientSource: trigger refused, then requests served
#[test]
fn the_refusal_of_the_trigger_is_let_pass() {
    let mut source = Source::new(false);
    assert_eq!(source.request(nack(TRIGGER, "", 12, "unsupported collection")), Meaning::Triggered);
    assert_eq!(source.request(nack("", "", 12, "unsupported collection ")), Meaning::Triggered);
    source.set(RULES, &["a@1"]);
    source.request(request(RULES));
    source.full();
}

#[test]
fn the_system_version_is_that_of_the_content() {
    let mut source = Source::new(false);
    let mut version = |resources: &[&str]| {
        source.set(RULES, resources);
        source.request(request(RULES));
        let push = source.next().unwrap();
        source.ack(&push.nonce);
        push.system_version_info
    };
    let first = version(&["a@1", "b@1"]);
    assert_ne!(version(&["a@1", "b@2"]), first);
    assert_eq!(version(&["b@1", "a@1"]), first);
    let held = source.catalogue.snapshot(RULES).unwrap();
    assert_eq!(ContentVersion::of(held.resources()).to_string(), first, "a sink can compute it");
}

#[test]
fn a_sink_may_not_ask_for_collections_without_end() {
    let mut source = Source::new(false);
    source.catalogue = source.catalogue.clone().open();
    let mut ask = |n| source.machine.requested(request(&format!("c/{n}")), &source.catalogue);
    assert!((0..1000).all(|n| ask(n).is_ok()));
    assert_eq!(ask(1000).unwrap_err().code(), Code::ResourceExhausted);
    assert!(ask(1).is_ok());
}

#[test]
fn the_work_for_a_request_is_linear_in_its_size() {
    let requests = |name: &str, requests: &dyn Fn(usize) -> RequestResources| {
        assert_linear(name, |n| {
            let mut source = Source::new(true);
            let held: Vec<String> = (0..n).map(|index| format!("ns/r{index}@2")).collect();
            source.set(RULES, &held.iter().map(String::as_str).collect::<Vec<_>>());
            let request = RequestResources::decode(&requests(n).encode_to_vec()[..]).unwrap();
            source.request(request);
            source.next().unwrap();
        });
    };
    let texts =
        |n: usize, text: &str| (0..n).map(|index| (format!("ns/r{index}"), text.to_owned())).collect();
    requests("nothing held", &|_| request(RULES));
    for version in ["1", "2"] {
        requests("versions", &|n| RequestResources {
            incremental: true,
            initial_resource_versions: texts(n, version),
            ..request(RULES)
        });
    }
    requests("annotations", &|n| RequestResources {
        sink_node: Some(SinkNode { annotations: texts(n, ""), ..SinkNode::default() }),
        ..request(RULES)
    });
}
