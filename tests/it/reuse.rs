//! A snapshot that shares unchanged parts with the previous one equals a snapshot that shares nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base64::Engine as _;
use mixer_adapter::template::STANDARD;
use mixer_adapter_config::{
    Change, Collection, ConfigSet, Content, Kind, Resource, ResourceName, Resources, ValidationError, parse,
};
use mixer_adapter_engine::{
    Snapshot,
    attribute::Bag,
    build::{BuildOptions, SnapshotBuilder},
    dispatch::{Caller, Report, Request},
    trace::{Step, Trace},
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use proptest::prelude::*;
use test_adapters::Probe;
use tokio::runtime::Handle;

use crate::mixer_api::engine::{Nowhere, RUNTIME};

/// A resource with its possible specs; some are faulty.
struct Variants {
    head: &'static str,
    specs: &'static [&'static str],
}

const RESOURCES: [Variants; 22] = [
    Variants {
        head: "kind: attributemanifest\nmetadata: {name: m, namespace: istio-system}\nspec: ",
        specs: &[
            "{attributes: {request.path: {valueType: STRING}, request.host: {valueType: STRING}}}",
            "{attributes: {request.path: {valueType: STRING}, request.host: {valueType: INT64}}}",
            "{attributes: {a.b: {valueType: STRING}, request.path: {valueType: STRING}}}",
            "{attributes: {a.b: {valueType: NOTHING}}}",
        ],
    },
    Variants {
        head: "kind: template\nmetadata: {name: listentry, namespace: istio-system}\nspec: ",
        specs: &["{descriptor: LISTENTRY}", "{descriptor: QUOTA}", "{descriptor: x}"],
    },
    Variants {
        head: "kind: adapter\nmetadata: {name: remote, namespace: istio-system}\nspec: ",
        specs: &["{templates: [listentry]}", "{templates: []}", "{templates: [none]}"],
    },
    Variants {
        head: "kind: handler\nmetadata: {name: elsewhere, namespace: istio-system}\nspec: ",
        specs: &[
            "{adapter: remote, connection: {address: \"nowhere:1\"}}",
            "{adapter: remote, connection: {address: \"nowhere:2\"}}",
            "{adapter: remote}",
        ],
    },
    Variants {
        head: "kind: handler\nmetadata: {name: h, namespace: istio-system}\nspec: ",
        specs: &[
            "{compiledAdapter: probe, params: {ledger: reuse}}",
            "{compiledAdapter: probe, params: {ledger: other reuse}}",
            "{compiledAdapter: probe, params: {ledger: reuse, fault: wrong}}",
            "{compiledAdapter: prob}",
        ],
    },
    Variants {
        head: "kind: handler\nmetadata: {name: h, namespace: shop}\nspec: ",
        specs: &["{compiledAdapter: probe, params: {ledger: shop reuse}}", "{compiledAdapter: probe}"],
    },
    Variants {
        head: "kind: instance\nmetadata: {name: i, namespace: istio-system}\nspec: ",
        specs: &[
            "{compiledTemplate: listentry, params: {value: 'request.path | \"none\"'}}",
            "{compiledTemplate: listentry, params: {value: 'request.host | \"none\"'}}",
            "{compiledTemplate: quota, params: {dimensions: {path: request.path}}}",
            "{compiledTemplate: listentry, params: {value: request.paht}}",
        ],
    },
    Variants {
        head: "kind: instance\nmetadata: {name: i, namespace: shop}\nspec: ",
        specs: &[
            "{compiledTemplate: listentry, params: {value: '\"shop\"'}}",
            "{compiledTemplate: listentry, params: {valu: '\"shop\"'}}",
        ],
    },
    Variants {
        head: "kind: instance\nmetadata: {name: remote, namespace: istio-system}\nspec: ",
        specs: &["{template: listentry, params: {value: request.path}}", "{template: listentri, params: {}}"],
    },
    Variants {
        head: "kind: rule\nmetadata: {name: a, namespace: istio-system}\nspec: ",
        specs: &[
            "{actions: [{handler: h, instances: [i]}]}",
            "{match: 'request.path == \"/a\"', actions: [{handler: h, instances: [i]}]}",
            "{match: 'request.path ==', actions: [{handler: h, instances: [i]}]}",
            "{actions: [{handler: elsewhere, instances: [remote]}]}",
        ],
    },
    Variants {
        head: "kind: rule\nmetadata: {name: b, namespace: istio-system}\nspec: ",
        specs: &[
            "{match: 'request.path == \"/a\"', actions: [{handler: h.handler, instances: [i.instance]}, {handler: elsewhere, instances: [remote]}]}",
            "{match: 'request.host == \"a\"', actions: [{handler: h.shop, instances: [i.shop, i]}]}",
            "{actions: [{handler: g, instances: [i]}], requestHeaderOperations: [{name: x, values: [request.path]}]}",
            "{}",
        ],
    },
    Variants {
        head: "kind: rule\nmetadata: {name: c, namespace: shop}\nspec: ",
        specs: &[
            "{actions: [{handler: h, instances: [i]}]}",
            "{match: 'request.path == \"/a\"', actions: [{handler: h.istio-system, instances: [i.istio-system]}]}",
            "{match: 'request.path | \"\" == \"/a\"', actions: [{handler: h.handler.istio-system, instances: [j]}]}",
        ],
    },
    Variants {
        head: "kind: rule\nmetadata: {name: d, namespace: shop, annotations: {mixer-adapter/mode: shadow}}\nspec: ",
        specs: &["{actions: [{handler: h.istio-system, instances: [i]}]}"],
    },
    Variants {
        head: "kind: rule\nmetadata: {name: e, namespace: bank}\nspec: ",
        specs: &[
            "{actions: [{handler: h.istio-system, instances: [i.istio-system]}]}",
            "{match: 'request.path == \"/e\"', actions: [{handler: h, instances: [i]}]}",
            "{actions: [{handler: h.istio-system, instances: [l.listentry.istio-system]}]}",
        ],
    },
    // Given twice, unless the first is removed.
    Variants {
        head: "kind: rule\nmetadata: {name: a, namespace: istio-system}\nspec: ",
        specs: &["{actions: [{handler: h, instances: [i]}]}", "{}"],
    },
    Variants {
        head: "kind: listentry\nmetadata: {name: l, namespace: istio-system}\nspec: ",
        specs: &["{value: 'request.path | \"none\"'}", "{value: request.paht}"],
    },
    // The rule `c` in another namespace.
    Variants {
        head: "kind: rule\nmetadata: {name: c, namespace: bank}\nspec: ",
        specs: &[
            "{actions: [{handler: h.istio-system, instances: [i.istio-system]}]}",
            "{match: 'request.path == \"/a\"', actions: [{handler: h.istio-system, instances: [i.istio-system]}]}",
        ],
    },
    // Refuses a handler for an instance of a check, and an instance of a report.
    Variants {
        head: "kind: handler\nmetadata: {name: picky, namespace: istio-system}\nspec: ",
        specs: &[
            "{compiledAdapter: probe, params: {ledger: picky reuse}}",
            "{compiledAdapter: probe, params: {ledger: picky reuse, refused: m.instance.istio-system}}",
            "{compiledAdapter: probe, params: {ledger: picky reuse, refused: n.instance.bank}}",
            "{compiledAdapter: probe, params: {ledger: picky reuse, refused: i.instance.istio-system}}",
        ],
    },
    Variants {
        head: "kind: instance\nmetadata: {name: m, namespace: istio-system}\nspec: ",
        specs: &[
            "{compiledTemplate: metric, params: {value: '1', dimensions: {path: 'request.path | \"none\"'}}}",
            "{compiledTemplate: metric, params: {value: '1'}}",
        ],
    },
    Variants {
        head: "kind: instance\nmetadata: {name: n, namespace: bank}\nspec: ",
        specs: &[
            "{compiledTemplate: metric, params: {value: '2'}}",
            "{compiledTemplate: metric, params: {value: '\"2\"'}}",
        ],
    },
    Variants {
        head: "kind: rule\nmetadata: {name: f, namespace: istio-system}\nspec: ",
        specs: &[
            "{actions: [{handler: picky, instances: [m]}]}",
            "{actions: [{handler: picky, instances: [m, i]}]}",
            "{match: 'request.path == \"/a\"', actions: [{handler: picky, instances: [m]}]}",
        ],
    },
    Variants {
        head: "kind: rule\nmetadata: {name: g, namespace: bank}\nspec: ",
        specs: &[
            "{actions: [{handler: picky.istio-system, instances: [m.istio-system, n]}]}",
            "{actions: [{handler: picky.istio-system, instances: [n]}]}",
        ],
    },
];

/// Describes a snapshot, line by line: its sizes, its rules with their places and handlers, the attributes that they use, and the
/// steps of requests.
async fn observe(snapshot: &Snapshot) -> String {
    let mut text = format!("faulty: {}\n", snapshot.has_faults());
    let parts = [Some(snapshot), snapshot.shadow().map(|shadow| &**shadow)];
    for part in parts.into_iter().flatten() {
        let (size, mut bag) = (part.size(), part.bag());
        text.push_str(&format!("{} rules, {} handlers\n", size.rules, size.handlers));
        text.extend(part.rules().map(|(rule, place)| format!("{rule} at {place}\n")));
        for handler in
            ["elsewhere.handler.istio-system", "h.handler.istio-system", "picky.handler.istio-system"]
        {
            text.push_str(&format!("{handler}: {:?}\n", part.rules_of(handler)));
        }
        text.push_str(&format!("{:?}\n", part.cached_namespaces(10)));
        for declared in part.vocabulary().iter() {
            bag.set(declared.slot, true);
            if bag.at(declared.slot).is_some() {
                text.push_str(&format!("{} is used\n", declared.name));
            }
        }
        observe_requests(part, &mut text).await;
    }
    text
}

async fn observe_requests(snapshot: &Snapshot, text: &mut String) {
    for namespace in ["", "shop", "bank"] {
        for path in ["/a", "/e"] {
            let caller = Caller::default();
            let mut report = Report::default();
            report.add(&mut Request::new(snapshot, bag(snapshot, namespace, path), &caller)).await.unwrap();
            let reported = report.prepare().batches.into_iter();
            text.extend(reported.map(|batch| format!("{} reports to {}\n", batch.len(), batch.handler())));
            let request = Request::new(snapshot, bag(snapshot, namespace, path), &caller);
            let mut request = request.with_trace(Trace::default());
            let outcome = request.answer().await;
            text.push_str(&format!("{path} in {namespace:?}: {outcome:?}\n"));
            for mut step in request.into_trace().unwrap().steps {
                if let Step::Call { micros, .. } = &mut step {
                    *micros = 0;
                }
                text.push_str(&format!("{step:?}\n"));
            }
        }
    }
}

fn bag(snapshot: &Snapshot, namespace: &str, path: &str) -> Bag {
    let mut bag = snapshot.bag();
    bag.insert("request.path", path);
    bag.insert("destination.namespace", namespace);
    bag
}

/// The index of a resource, and that of its new spec; `None` removes the resource.
type Edit = (usize, Option<usize>);

/// Returns changes of whole collections.
fn full(resources: &[Arc<Resource>]) -> Vec<Change> {
    let mut sets = Change::full_sets(resources.iter().cloned());
    // As a source of files does.
    let legacy = Collection::of("", &Kind::from("listentry"));
    if sets.iter().all(|change| change.collection != legacy) {
        sets.push(Change::new(legacy, Content::Full(Resources::default())));
    }
    sets
}

/// Returns changes of the resources with these names.
fn partial(
    touched: BTreeMap<Collection, BTreeSet<ResourceName>>,
    resources: &[Arc<Resource>],
) -> Vec<Change> {
    let changes = touched.into_iter().map(|(collection, names)| {
        let is_added =
            |resource: &&Arc<Resource>| resource.collection == collection && names.contains(&resource.name);
        let added: Vec<_> = resources.iter().filter(is_added).cloned().collect();
        let is_gone = |name: &&ResourceName| added.iter().all(|resource| resource.name != **name);
        let removed = names.iter().filter(is_gone).cloned().collect();
        Change::new(collection.clone(), Content::Partial { added, removed })
    });
    changes.collect()
}

/// Returns the texts of faults in alphabetical order.
fn texts(faults: &[ValidationError]) -> Vec<String> {
    let mut texts: Vec<_> = faults.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

/// Applies changes in turn, each of whole collections or partial. After each one, compares a snapshot that shares parts with the previous
/// one to a snapshot that shares nothing.
async fn change(changes: &[(bool, Vec<Edit>)]) {
    let adapters = Adapters::builder(Handle::current()).add::<Probe>().build().unwrap();
    let host = Host::new(adapters, TableLimits::default(), Closing::on(Handle::current()));
    let [listentry, quota] = ["listentry", "quota"].map(|name| {
        let (_, descriptor) = STANDARD.iter().find(|(known, _)| *known == name).unwrap();
        base64::engine::general_purpose::STANDARD.encode(descriptor)
    });
    let options = BuildOptions::default().lenient(true);
    // Equal resources are one and the same, as those of a file that is read again.
    let parsed = RESOURCES.iter().enumerate().map(|(resource, Variants { head, specs })| {
        let texts = specs.iter().map(|spec| format!("{head}{spec}"));
        let texts = texts.map(|text| text.replace("LISTENTRY", &listentry).replace("QUOTA", &quota));
        texts.map(|text| parse(&text, &format!("{resource}.yaml"), "istio-system").resources).collect()
    });
    let parsed: Vec<Vec<_>> = parsed.collect();
    // All resources exist at first, so that references resolve.
    let mut specs: BTreeMap<usize, usize> = (0..RESOURCES.len()).map(|resource| (resource, 0)).collect();
    let mut set = ConfigSet::default();
    let mut former: Option<Snapshot> = None;
    for (is_partial, edits) in [(false, Vec::new())].iter().chain(changes) {
        let mut touched: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (resource, spec) in edits {
            match spec {
                Some(spec) => specs.insert(*resource, spec % RESOURCES[*resource].specs.len()),
                None => specs.remove(resource),
            };
            let edited = &parsed[*resource][0][0];
            touched.entry(edited.collection.clone()).or_default().insert(edited.name.clone());
        }
        let resources: Vec<_> =
            specs.iter().flat_map(|(resource, spec)| parsed[*resource][*spec].clone()).collect();
        let (next, faults) =
            set.apply(if *is_partial { partial(touched, &resources) } else { full(&resources) });
        let (alone, fresh_faults) = ConfigSet::of(resources);
        if !is_partial {
            assert_eq!(faults, fresh_faults);
        }
        assert!(next.iter().map(|entry| &entry.resource).eq(alone.iter().map(|entry| &entry.resource)));
        assert_eq!(next.counts(), alone.counts());
        let fresh = SnapshotBuilder::new(&alone, fresh_faults, &host);
        let (fresh, fresh_faults) = fresh.build(None, &Nowhere, &options).await.unwrap();
        let reusing = SnapshotBuilder::after(former.as_ref(), &next, faults, &host);
        let (reusing, faults) = reusing.build(former.as_ref(), &Nowhere, &options).await.unwrap();
        assert_eq!(texts(&faults), texts(&fresh_faults));
        assert_eq!(observe(&reusing).await, observe(&fresh).await);
        former = Some(reusing);
        set = next;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn a_snapshot_that_shares_parts_equals_one_that_shares_nothing(
        changes in prop::collection::vec(
            (
                any::<bool>(),
                prop::collection::vec((0..RESOURCES.len(), prop::option::weighted(0.8, 0..4_usize)), 1..4),
            ),
            1..12,
        ),
    ) {
        RUNTIME.block_on(change(&changes));
    }
}
