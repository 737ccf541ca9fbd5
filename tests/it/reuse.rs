//! A snapshot that shares unchanged parts with the previous one equals a snapshot that shares nothing.

use std::collections::BTreeMap;

use base64::Engine as _;
use mixer_adapter::template::STANDARD;
use mixer_adapter_config::{Change, Collection, ConfigSet, Content, Kind, parse};
use mixer_adapter_engine::{
    Snapshot,
    build::{BuildOptions, SnapshotBuilder},
    dispatch::{Caller, Request},
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

const RESOURCES: [Variants; 16] = [
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
];

/// Describes a snapshot, line by line: its sizes, its rules with their places, and the steps of requests.
async fn observe(snapshot: &Snapshot) -> String {
    let size = snapshot.size();
    let mut text =
        format!("{} rules, {} handlers, faulty: {}\n", size.rules, size.handlers, snapshot.has_faults());
    let parts = [Some(snapshot), snapshot.shadow().map(|shadow| &**shadow)];
    for part in parts.into_iter().flatten() {
        text.extend(part.rules().map(|(rule, place)| format!("{rule} at {place}\n")));
        observe_requests(part, &mut text).await;
    }
    text
}

async fn observe_requests(snapshot: &Snapshot, text: &mut String) {
    for namespace in ["", "shop", "bank"] {
        for path in ["/a", "/e"] {
            let mut bag = snapshot.bag();
            bag.insert("request.path", path);
            bag.insert("destination.namespace", namespace);
            let caller = Caller::default();
            let mut request = Request::new(snapshot, bag, &caller).with_trace(Trace::default());
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

/// The index of a resource, and that of its new spec; `None` removes the resource.
type Edit = (usize, Option<usize>);

/// Applies changes in turn. After each one, compares a snapshot that shares parts with the previous one to a snapshot that shares nothing.
async fn change(changes: &[Vec<Edit>]) {
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
    for edits in [Vec::new()].iter().chain(changes) {
        for (resource, spec) in edits {
            match spec {
                Some(spec) => specs.insert(*resource, spec % RESOURCES[*resource].specs.len()),
                None => specs.remove(resource),
            };
        }
        let resources: Vec<_> =
            specs.iter().flat_map(|(resource, spec)| parsed[*resource][*spec].clone()).collect();
        let mut sets = Change::full_sets(resources.clone());
        // As a source of files does.
        let legacy = Collection::of("", &Kind::from("listentry"));
        if sets.iter().all(|change| change.collection != legacy) {
            sets.push(Change::new(legacy, Content::Full(Vec::new())));
        }
        let (next, faults) = set.apply(sets);
        let (alone, fresh_faults) = ConfigSet::of(resources);
        assert_eq!(faults, fresh_faults);
        assert!(next.iter().map(|entry| &entry.resource).eq(alone.iter().map(|entry| &entry.resource)));
        let fresh = SnapshotBuilder::new(&alone, fresh_faults, &host);
        let (fresh, fresh_faults) = fresh.build(None, &Nowhere, &options).await.unwrap();
        let reusing = SnapshotBuilder::after(former.as_ref(), &next, faults, &host);
        let (reusing, faults) = reusing.build(former.as_ref(), &Nowhere, &options).await.unwrap();
        let texts = |faults: &[mixer_adapter_config::ValidationError]| {
            faults.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
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
            prop::collection::vec((0..RESOURCES.len(), prop::option::weighted(0.8, 0..4_usize)), 1..4),
            1..12,
        ),
    ) {
        RUNTIME.block_on(change(&changes));
    }
}
