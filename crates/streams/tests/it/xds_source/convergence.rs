//! Whatever happens, what a client holds becomes what the catalogue holds: by streams of both variants and by REST, with a client that refuses what is bad, takes
//! some or none of it, changes its mind and comes back.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use mixer_adapter_streams::{
    proto::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    },
    stream::{RawChange, collection_of, source::Catalogue},
    xds::source::{DeltaStream, SotwStream, fetch},
};
use proptest::prelude::*;

use super::{messages::*, world};

const TYPES: [&str; 4] = [CLUSTER, LISTENER, ROUTE, ENTRY];

#[derive(Clone, Debug)]
enum Step {
    /// A resource gets a version; version 0 is bad.
    Put(usize, u8, u8),
    Remove(usize, u8),
    /// What is on its way arrives.
    ToClient,
    ToServer,
    /// The client wants a resource, or everything, or does not any more.
    Want(usize, Option<u8>),
    Leave(usize, Option<u8>),
    /// The connection is lost with what is on it.
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || prop_oneof![4 => (0..4_u8).prop_map(Some), 1 => Just(None)];
    prop_oneof![
        4 => (0..4_usize, 0..4_u8, 0..4_u8).prop_map(|(at, name, version)| Step::Put(at, name, version)),
        2 => (0..4_usize, 0..4_u8).prop_map(|(at, name)| Step::Remove(at, name)),
        6 => Just(Step::ToClient),
        6 => Just(Step::ToServer),
        3 => (0..4_usize, name()).prop_map(|(at, name)| Step::Want(at, name)),
        2 => (0..4_usize, name()).prop_map(|(at, name)| Step::Leave(at, name)),
        1 => Just(Step::Cut),
    ]
}

/// What a client wants and has of a type.
#[derive(Clone, Debug, Default)]
struct Held {
    all: bool,
    names: BTreeSet<String>,
    /// Name to version and text.
    resources: BTreeMap<String, (String, String)>,
    /// Whether the type was asked for on this stream.
    opened: bool,
    nonce: String,
}

impl Held {
    fn wants(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }

    fn wanted(&self) -> Vec<String> {
        self.all.then(|| "*".to_owned()).into_iter().chain(self.names.iter().cloned()).collect()
    }

    /// Takes a push in. `false` if it is refused; of that it may have taken the good.
    fn take(&mut self, changed: Vec<(String, String, String)>, lenient: bool) -> bool {
        let good = changed.iter().all(|(_, _, text)| !text.ends_with("@0"));
        for (name, version, text) in changed {
            if good || (lenient && !text.ends_with("@0")) {
                self.resources.insert(name, (version, text));
            }
        }
        good
    }
}

/// One form of the protocol, as a client speaks it.
trait Client {
    type Up;
    type Down;
    /// The number of pushes that may be under way.
    const LIMIT: usize = TYPES.len();
    /// Whether a client forgets a resource when it unsubscribes. A server of whole sets ignores requests that cross a push (rule 2), and
    /// learns of it with the answer to that push.
    const FORGETS_AT_ONCE: bool = false;

    fn open() -> Self;
    fn requested(&mut self, request: Self::Up);
    fn next(&mut self, catalogue: &Catalogue) -> Option<Self::Down>;
    /// The first request of a type on a stream.
    fn first(type_url: &str, held: &Held) -> Self::Up;
    /// What was wanted before is not any more.
    fn wants(type_url: &str, held: &Held, more: &[String], less: &[String]) -> Self::Up;
    /// Takes a push in and answers it.
    fn arrived(push: Self::Down, held: &mut [Held], lenient: bool) -> Self::Up;
    /// Whether the client learns that a resource is gone.
    fn hears_of_removals(type_url: &str) -> bool;
}

fn place(type_url: &str) -> usize {
    TYPES.iter().position(|known| *known == type_url).unwrap()
}

/// Takes a response in and answers it. If it is whole, what it does not have is gone.
fn response_arrived(
    push: &DiscoveryResponse,
    held: &mut Held,
    lenient: bool,
    is_whole: bool,
) -> DiscoveryRequest {
    let changed = push.resources.iter().map(text);
    let changed = changed.map(|text| (text.split_once('@').unwrap().0.to_owned(), String::new(), text));
    let changed: Vec<_> = changed.collect();
    let names: BTreeSet<_> = changed.iter().map(|(name, ..)| name.clone()).collect();
    assert_eq!(names.len(), changed.len(), "rule 10");
    let good = held.take(changed, lenient);
    if good && is_whole {
        held.resources.retain(|name, _| names.contains(name));
    }
    let kept = held.clone();
    held.resources.retain(|name, _| kept.wants(name));
    held.nonce.clone_from(&push.nonce);
    let wanted = held.wanted();
    if good { ack(push, &wanted.join(" ")) } else { nack(push, "", &wanted.join(" ")) }
}

struct States(SotwStream);

impl Client for States {
    type Up = DiscoveryRequest;
    type Down = DiscoveryResponse;

    fn open() -> Self {
        Self(SotwStream::new(None))
    }

    fn requested(&mut self, request: DiscoveryRequest) {
        self.0.requested(request).unwrap();
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<DiscoveryResponse> {
        self.0.next(catalogue)
    }

    fn first(type_url: &str, held: &Held) -> DiscoveryRequest {
        ask(type_url, &held.wanted().join(" "))
    }

    fn wants(type_url: &str, held: &Held, _: &[String], _: &[String]) -> DiscoveryRequest {
        DiscoveryRequest { response_nonce: held.nonce.clone(), ..Self::first(type_url, held) }
    }

    fn arrived(push: DiscoveryResponse, held: &mut [Held], lenient: bool) -> DiscoveryRequest {
        let held = &mut held[place(&push.type_url)];
        response_arrived(&push, held, lenient, Self::hears_of_removals(&push.type_url))
    }

    fn hears_of_removals(type_url: &str) -> bool {
        type_url != ROUTE
    }
}

struct Changes(DeltaStream);

impl Client for Changes {
    type Up = DeltaDiscoveryRequest;
    type Down = DeltaDiscoveryResponse;
    const FORGETS_AT_ONCE: bool = true;

    fn open() -> Self {
        Self(DeltaStream::new(None))
    }

    fn requested(&mut self, request: DeltaDiscoveryRequest) {
        self.0.requested(request).unwrap();
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<DeltaDiscoveryResponse> {
        self.0.next(catalogue)
    }

    fn first(type_url: &str, held: &Held) -> DeltaDiscoveryRequest {
        let versions = held.resources.iter().map(|(name, (version, _))| (name.clone(), version.clone()));
        DeltaDiscoveryRequest {
            initial_resource_versions: versions.collect(),
            ..subscribe(type_url, &held.wanted().join(" "), "")
        }
    }

    fn wants(type_url: &str, _: &Held, more: &[String], less: &[String]) -> DeltaDiscoveryRequest {
        subscribe(type_url, &more.join(" "), &less.join(" "))
    }

    fn arrived(push: DeltaDiscoveryResponse, held: &mut [Held], lenient: bool) -> DeltaDiscoveryRequest {
        let held = &mut held[place(&push.type_url)];
        let names: BTreeSet<_> = push.resources.iter().map(|resource| &resource.name).collect();
        assert_eq!(names.len(), push.resources.len(), "rule 10");
        let changed = push.resources.iter().filter(|resource| held.wants(&resource.name));
        let changed = changed.map(|resource| {
            (resource.name.clone(), resource.version.clone(), text(resource.resource.as_ref().unwrap()))
        });
        let good = held.take(changed.collect(), lenient);
        if good {
            held.resources.retain(|name, _| !push.removed_resources.contains(name));
        }
        if good { accepted(&push) } else { refused(&push) }
    }

    fn hears_of_removals(_: &str) -> bool {
        true
    }
}

/// REST: each answer is held until there is news. A client polls for the types that it wants something of.
#[derive(Default)]
struct Polls(BTreeMap<String, DiscoveryRequest>);

impl Client for Polls {
    /// The next request for a type, in place of the one that is held.
    type Up = (String, Option<DiscoveryRequest>);
    type Down = DiscoveryResponse;
    /// A request may be replaced while its answer is under way.
    const LIMIT: usize = usize::MAX;

    fn open() -> Self {
        Self::default()
    }

    fn requested(&mut self, (type_url, request): Self::Up) {
        match request {
            Some(request) => _ = self.0.insert(type_url, request),
            None => _ = self.0.remove(&type_url),
        }
    }

    fn next(&mut self, catalogue: &Catalogue) -> Option<DiscoveryResponse> {
        let answer = self.0.values().find_map(|request| fetch(catalogue, request).unwrap())?;
        self.0.remove(&answer.type_url);
        Some(answer)
    }

    fn first(type_url: &str, held: &Held) -> Self::Up {
        let wanted = held.wanted();
        (type_url.to_owned(), (!wanted.is_empty()).then(|| ask(type_url, &wanted.join(" "))))
    }

    fn wants(type_url: &str, held: &Held, _: &[String], _: &[String]) -> Self::Up {
        let (type_url, request) = Self::first(type_url, held);
        let nonce = held.nonce.clone();
        (type_url, request.map(|request| DiscoveryRequest { response_nonce: nonce, ..request }))
    }

    fn arrived(push: DiscoveryResponse, held: &mut [Held], lenient: bool) -> Self::Up {
        let held = &mut held[place(&push.type_url)];
        let answer = response_arrived(&push, held, lenient, true);
        if push.resources.iter().map(text).any(|text| !held.wants(text.split_once('@').unwrap().0)) {
            // A client that dropped a part of an answer does not name its version, by which the server knows what it has.
            held.nonce.clear();
        }
        (push.type_url, (!held.wanted().is_empty()).then_some(answer))
    }

    fn hears_of_removals(_: &str) -> bool {
        true
    }
}

struct World<C: Client> {
    catalogue: Catalogue,
    server: C,
    held: [Held; 4],
    up: VecDeque<C::Up>,
    down: VecDeque<C::Down>,
    lenient: bool,
}

impl<C: Client> World<C> {
    fn new(lenient: bool) -> Self {
        let mut world = Self {
            catalogue: world::catalogue(),
            server: C::open(),
            held: Default::default(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            lenient,
        };
        for type_url in TYPES {
            world.catalogue.apply(&all(type_url, ""));
        }
        world
    }

    fn flow(&mut self) {
        while let Some(push) = self.server.next(&self.catalogue) {
            self.down.push_back(push);
        }
        assert!(self.down.len() <= C::LIMIT, "one push of a type is under way");
    }

    fn change(&mut self, at: usize, changed: &[String], removed: Vec<String>) {
        let change = RawChange {
            collection: collection_of(TYPES[at]).as_str().into(),
            version: String::new(),
            full: false,
            resources: changed.iter().map(|text| resource(TYPES[at], text)).collect::<Vec<Arc<_>>>(),
            removed,
        };
        self.catalogue.apply(&change);
        self.flow();
    }

    fn put(&mut self, at: usize, name: &str, version: u8) {
        self.change(at, &[format!("{name}@{version}")], vec![]);
    }

    fn push_arrives(&mut self) -> bool {
        let Some(push) = self.down.pop_front() else { return false };
        let answer = C::arrived(push, &mut self.held, self.lenient);
        self.up.push_back(answer);
        true
    }

    fn request_arrives(&mut self) -> bool {
        let Some(request) = self.up.pop_front() else { return false };
        self.server.requested(request);
        self.flow();
        true
    }

    fn want(&mut self, at: usize, name: Option<u8>) {
        let more = name.map_or("*".to_owned(), |name| format!("r{name}"));
        let held = &mut self.held[at];
        match name {
            None => held.all = true,
            Some(_) => _ = held.names.insert(more.clone()),
        }
        let request = if std::mem::replace(&mut held.opened, true) {
            C::wants(TYPES[at], held, &[more], &[])
        } else {
            C::first(TYPES[at], held)
        };
        self.up.push_back(request);
    }

    fn leave(&mut self, at: usize, name: Option<u8>) {
        let less = name.map_or("*".to_owned(), |name| format!("r{name}"));
        let held = &mut self.held[at];
        let wanted = match name {
            None => std::mem::take(&mut held.all),
            Some(_) => held.names.remove(&less),
        };
        if !wanted || !held.opened {
            return;
        }
        if C::FORGETS_AT_ONCE {
            let kept = held.clone();
            held.resources.retain(|name, _| kept.wants(name));
        }
        self.up.push_back(C::wants(TYPES[at], held, &[], &[less]));
    }

    fn cut(&mut self) {
        self.server = C::open();
        self.up.clear();
        self.down.clear();
        for (type_url, held) in TYPES.iter().zip(&mut self.held) {
            held.nonce.clear();
            held.opened = held.all || !held.names.is_empty();
            if held.opened {
                self.up.push_back(C::first(type_url, held));
            }
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Put(at, name, version) => self.put(at, &format!("r{name}"), version),
            Step::Remove(at, name) => self.change(at, &[], vec![format!("r{name}")]),
            Step::ToClient => _ = self.push_arrives(),
            Step::ToServer => _ = self.request_arrives(),
            Step::Want(at, name) => self.want(at, name),
            Step::Leave(at, name) => self.leave(at, name),
            Step::Cut => self.cut(),
        }
    }

    fn settle(&mut self) {
        for _ in 0..1000 {
            if !(self.push_arrives() | self.request_arrives()) {
                return;
            }
        }
        panic!("the two never come to rest");
    }

    /// What is bad is made good.
    fn mend(&mut self) {
        for (at, type_url) in TYPES.iter().enumerate() {
            let snapshot = self.catalogue.snapshot(collection_of(type_url).as_str()).cloned().unwrap();
            for resource in snapshot.resources().filter(|resource| resource.body.value.ends_with(b"@0")) {
                self.put(at, &resource.name, 9);
            }
        }
    }

    fn assert_equal(&self) {
        for (type_url, held) in TYPES.iter().zip(&self.held) {
            let snapshot = self.catalogue.snapshot(collection_of(type_url).as_str()).unwrap();
            let there = snapshot.resources().filter(|resource| held.opened && held.wants(&resource.name));
            let there: BTreeMap<_, _> =
                there.map(|resource| (resource.name.clone(), text(&resource.body))).collect();
            let has = held.resources.iter().filter(|(name, _)| held.wants(name));
            let has = has.map(|(name, (_, text))| (name.clone(), text.clone()));
            let has: BTreeMap<_, _> =
                has.filter(|(name, _)| C::hears_of_removals(type_url) || there.contains_key(name)).collect();
            assert_eq!(has, there, "{type_url}");
        }
    }
}

fn converges<C: Client>(steps: &[Step], lenient: bool) {
    let mut world = World::<C>::new(lenient);
    for step in steps {
        world.take(step);
    }
    world.settle();
    world.mend();
    world.settle();
    world.assert_equal();
    world.cut();
    world.settle();
    world.assert_equal();
}

/// A client that unsubscribes from everything and subscribes to a resource of it, while a push that it refuses is on its way.
#[test]
fn a_client_that_changes_its_mind_while_a_push_is_under_way_converges() {
    let steps = [
        Step::Want(2, None),
        Step::Put(2, 1, 1),
        Step::ToServer,
        Step::ToClient,
        Step::Put(2, 0, 0),
        Step::ToServer,
        Step::Leave(2, None),
        Step::Want(2, Some(1)),
    ];
    converges::<States>(&steps, false);
    converges::<Polls>(&steps, false);
    converges::<Changes>(&steps, false);
}

/// A client without a stream that wants nothing any more when the answer to all arrives, and then one resource of it.
#[test]
fn a_client_that_dropped_an_answer_receives_it_again() {
    let steps = [
        Step::Put(0, 1, 1),
        Step::Want(0, None),
        Step::Leave(0, None),
        Step::ToServer,
        Step::ToClient,
        Step::Want(0, Some(1)),
    ];
    converges::<States>(&steps, false);
    converges::<Polls>(&steps, false);
    converges::<Changes>(&steps, false);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn states_converge(steps in proptest::collection::vec(step(), 0..100), lenient in any::<bool>()) {
        converges::<States>(&steps, lenient);
    }

    #[test]
    fn polls_over_rest_converge(steps in proptest::collection::vec(step(), 0..100), lenient in any::<bool>()) {
        converges::<Polls>(&steps, lenient);
    }

    #[test]
    fn changes_converge(steps in proptest::collection::vec(step(), 0..100), lenient in any::<bool>()) {
        converges::<Changes>(&steps, lenient);
    }
}
