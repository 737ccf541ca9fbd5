//! Whatever happens, what the sink holds becomes what the source holds: both state machines with an unreliable connection
//! between them, in every form that it may have, and an application that refuses bad resources and tries them again later.
//!
//! The measure is that of Istio's stress test: the sink computes the system version over what the application accepted.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use mixer_adapter_streams::{
    stream::{
        ContentVersion, RawChange, RawResource,
        sink::{Mode, NackError, Output, ProposalId, ResourceError, SinkDecision, SinkMachine, SinkOptions},
        source::Catalogue,
    },
    xds::sink::Versions,
};
use proptest::prelude::*;

use super::{
    messages::{HANDLERS, RULES, resource},
    wire::{Variant, Wire},
};

const COLLECTIONS: [&str; 2] = [RULES, HANDLERS];

#[derive(Clone, Debug)]
enum Step {
    /// The source's resource of that number gets that version; version 0 is bad, version 2 cannot be read.
    Put {
        collection: usize,
        name: u8,
        version: u8,
    },
    Remove {
        collection: usize,
        name: u8,
    },
    /// One message arrives.
    ToSink,
    ToSource,
    /// The application decides what it was asked about a collection.
    Decide(usize),
    /// The connection is lost with what is on it, and made anew.
    Cut,
    /// A second passes.
    Sleep,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2_usize, 0..4_u8, 0..4_u8).prop_map(|(collection, name, version)| Step::Put { collection, name, version }),
        2 => (0..2_usize, 0..4_u8).prop_map(|(collection, name)| Step::Remove { collection, name }),
        6 => Just(Step::ToSink),
        6 => Just(Step::ToSource),
        5 => (0..2_usize).prop_map(Step::Decide),
        1 => Just(Step::Cut),
        1 => Just(Step::Sleep),
    ]
}

struct World {
    catalogue: Catalogue,
    variant: Variant,
    versions: Versions,
    wire: Box<dyn Wire>,
    sink: SinkMachine,
    stream: u64,
    now: Instant,
    asked: BTreeMap<usize, (ProposalId, RawChange)>,
    decisions: usize,
    /// What the application was offered of each collection, by which proposal, and what it uses.
    offered: [State; 2],
    kept: [ProposalId; 2],
    live: [State; 2],
}

type State = BTreeMap<String, Arc<RawResource>>;

impl World {
    fn new(variant: Variant, mode: Mode) -> Self {
        let options = SinkOptions::new("sink", COLLECTIONS).mode(mode);
        let versions = Versions::default();
        let mut world = Self {
            catalogue: Catalogue::of(COLLECTIONS),
            variant,
            wire: variant.open(&versions),
            versions,
            sink: SinkMachine::new(options),
            stream: 0,
            now: Instant::now(),
            asked: BTreeMap::new(),
            decisions: 0,
            offered: Default::default(),
            kept: [0; 2],
            live: Default::default(),
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        self.wire = self.variant.open(&self.versions);
        self.stream += 1;
        self.sink.opened(self.stream, self.now);
        self.flow();
    }

    /// Does what the machines say.
    fn flow(&mut self) {
        self.wire.push(&self.catalogue);
        while let Some(output) = self.sink.poll(self.now) {
            match output {
                Output::Send(stream, request) if stream == self.stream => self.wire.send(request),
                Output::Send(..) | Output::Accepted { .. } => {}
                Output::Decide(id, change) => {
                    let collection =
                        COLLECTIONS.iter().position(|name| *name == &*change.collection).unwrap();
                    assert!(self.asked.insert(collection, (id, change)).is_none(), "one at a time");
                }
                Output::End(stream, _) => {
                    self.sink.closed(stream, None, self.now);
                    if stream == self.stream {
                        self.connect();
                    }
                }
            }
        }
    }

    fn change(&mut self, collection: usize, resources: Vec<Arc<RawResource>>, removed: Vec<String>) {
        let collection = COLLECTIONS[collection].into();
        let change = RawChange { collection, version: String::new(), full: false, resources, removed };
        self.catalogue.apply(&change);
        self.flow();
    }

    fn put(&mut self, collection: usize, name: u8, version: u8) {
        let resource = RawResource {
            name: format!("ns/r{name}"),
            version: version.to_string(),
            body: resource(&format!("ns/r{name}@{version}")).body.unwrap(),
            ..RawResource::default()
        };
        self.change(collection, vec![Arc::new(resource)], vec![]);
    }

    fn remove(&mut self, collection: usize, name: u8) {
        self.change(collection, vec![], vec![format!("ns/r{name}")]);
    }

    fn push_arrives(&mut self) -> bool {
        let arrived = self.wire.to_sink();
        let moved = arrived.is_some();
        if let Some(push) = arrived.flatten() {
            self.sink.received(self.stream, push, self.now);
        }
        self.flow();
        moved
    }

    fn request_arrives(&mut self) -> bool {
        let arrived = self.wire.to_source(&self.catalogue);
        self.flow();
        arrived
    }

    /// The application decides; resources of version 0 are bad, and a rule of version 3 is without a handler.
    fn decide(&mut self, collection: usize) -> bool {
        let Some((id, change)) = self.asked.remove(&collection) else { return false };
        self.decisions += 1;
        let nack = |text: &str| NackError {
            reasons: vec![ResourceError { resource: String::new(), text: text.to_owned() }],
        };
        if change.resources.iter().any(|resource| resource.version == "2") {
            let decision = SinkDecision::Unreadable(nack("unreadable"));
            self.sink.decided(COLLECTIONS[collection], id, decision, self.now);
            self.flow();
            return true;
        }
        let offered = &mut self.offered[collection];
        if change.full {
            offered.clear();
        }
        offered.retain(|name, _| !change.removed.contains(name));
        offered.extend(change.resources.into_iter().map(|resource| (resource.name.clone(), resource)));
        self.kept[collection] = id;
        let fits = |rules: &State, handlers: &State| {
            let has =
                |state: &State, version: &str| state.values().any(|resource| resource.version == version);
            !has(rules, "0") && !has(handlers, "0") && (!has(rules, "3") || !handlers.is_empty())
        };
        let [rules, handlers] = &self.offered;
        let accepted: &[usize] = match () {
            () if fits(rules, handlers) => &[0, 1],
            () if fits(rules, &self.live[1]) => &[0],
            () if fits(&self.live[0], handlers) => &[1],
            () => &[],
        };
        for collection in accepted {
            self.live[*collection] = self.offered[*collection].clone();
        }
        if !accepted.contains(&collection) {
            self.sink.decided(COLLECTIONS[collection], id, SinkDecision::Refused(nack("bad")), self.now);
        }
        for collection in accepted {
            self.sink.decided(COLLECTIONS[*collection], self.kept[*collection], SinkDecision::Live, self.now);
        }
        self.flow();
        true
    }

    fn cut(&mut self) {
        self.sink.closed(self.stream, None, self.now);
        self.connect();
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Put { collection, name, version } => self.put(collection, name, version),
            Step::Remove { collection, name } => self.remove(collection, name),
            Step::ToSink => _ = self.push_arrives(),
            Step::ToSource => _ = self.request_arrives(),
            Step::Decide(collection) => _ = self.decide(collection),
            Step::Cut => self.cut(),
            Step::Sleep => {
                self.now += Duration::from_secs(1);
                self.flow();
            }
        }
    }

    /// Lets everything that is on its way arrive.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let moved = self.push_arrives() | self.request_arrives() | self.decide(0) | self.decide(1);
            if !moved {
                let Some(wakeup) = self.sink.wakeup(self.now) else { return };
                self.now = wakeup;
                self.flow();
            }
        }
        panic!("the two never come to rest");
    }

    fn assert_equal(&self) {
        for (collection, live) in COLLECTIONS.iter().zip(&self.live) {
            let Some(snapshot) = self.catalogue.snapshot(collection) else { continue };
            let view = self.sink.collection(collection).unwrap();
            assert!(view.resources().eq(live.values()), "the sink knows what the application uses");
            let held = ContentVersion::of(view.resources().map(|resource| &**resource));
            assert_eq!(held, snapshot.version(), "{collection}");
            assert_eq!(view.version(), snapshot.version().to_string());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_sink_converges_to_the_source(
        steps in proptest::collection::vec(step(), 0..120),
        mode in prop_oneof![Just(Mode::Full), Just(Mode::FullFirst), Just(Mode::Resume)],
        incremental in any::<bool>(),
    ) {
        converges(World::new(Variant::Mcp { incremental }, mode), &steps);
    }

    #[test]
    fn the_sink_converges_to_the_source_by_whole_sets_of_xds(
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        converges(World::new(Variant::Sotw, Mode::Full), &steps);
    }

    #[test]
    fn the_sink_converges_to_the_source_by_rest(
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        converges(World::new(Variant::Rest, Mode::Full), &steps);
    }

    #[test]
    fn the_sink_converges_to_the_source_by_changes_of_xds(
        steps in proptest::collection::vec(step(), 0..120),
    ) {
        converges(World::new(Variant::Delta, Mode::Delta), &steps);
    }
}

fn converges(mut world: World, steps: &[Step]) {
    for step in steps {
        world.take(step);
    }
    // What is still bad is made good.
    for (collection, name) in COLLECTIONS.iter().enumerate() {
        let resources = world.catalogue.snapshot(name).cloned();
        let names = resources.iter().flat_map(|snapshot| snapshot.resources());
        for resource in names.filter(|resource| ["0", "2"].contains(&resource.version.as_str())) {
            world.put(collection, resource.name.trim_start_matches("ns/r").parse().unwrap(), 9);
        }
    }
    world.put(1, 0, 9);
    world.settle();
    world.assert_equal();
    // And it stays so on the next stream, where nothing is an event.
    world.cut();
    let decisions = world.decisions;
    world.settle();
    world.assert_equal();
    assert_eq!(world.decisions, decisions);
}
