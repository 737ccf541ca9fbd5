//! How long it takes to make a snapshot of many rules and instances, and to make the next one after one rule changed.

use std::time::Instant;

use mixer_adapter_config::{Change, Collection, ConfigSet, Content, Kind, parse};
use mixer_adapter_engine::{
    Snapshot,
    build::{BuildOptions, Connector, SnapshotBuilder},
    remote,
};
use mixer_adapter_host::handler::Closing;

use super::rules::{host, runtime};

const RULES: usize = 10_000;

pub(super) fn time() {
    let runtime = runtime();
    let host = host(runtime.handle());
    let connector = Connector {
        host: host.clone(),
        remote: remote::Options::default(),
        closing: Closing::on(runtime.handle().clone()),
    };
    let start = Instant::now();
    let resources = parse(&configuration(""), "bench.yaml", "istio-system").resources;
    let parsed = start.elapsed();
    let (set, faults) = ConfigSet::of(resources);
    let build = |set: &ConfigSet, former: Option<&Snapshot>| {
        let builder = SnapshotBuilder::after(former, set, Vec::new(), &host);
        let options = BuildOptions::default();
        let built = runtime.block_on(builder.build(former, &connector, &options));
        built.map_err(|faults| format!("{:?}", faults.first())).expect("a good configuration").0
    };
    assert!(faults.is_empty());
    let start = Instant::now();
    let first = build(&set, None);
    let whole = start.elapsed();

    let changed = parse(&rule(0, "|| false"), "bench.yaml", "istio-system").resources;
    let start = Instant::now();
    let change = Change::new(
        Collection::of("", &Kind::Rule),
        Content::Partial { added: changed, removed: Vec::new() },
    );
    let (next, _) = set.apply([change]);
    build(&next, Some(&first));
    println!(
        "\n{RULES} rules and {RULES} instances: reading YAML {parsed:.2?}, building {whole:.2?}, one rule changed {:.2?}",
        start.elapsed()
    );
}

fn configuration(more: &str) -> String {
    let mut text = String::from(
        "kind: handler\nmetadata: {name: h, namespace: istio-system}\nspec: {compiledAdapter: noop}\n",
    );
    for index in 0..RULES {
        text += &format!(
            "---\nkind: instance\nmetadata: {{name: i{index}, namespace: istio-system}}\nspec: {{compiledTemplate: \
             listentry, params: {{value: 'source.name | \"unknown{index}\"'}}}}\n"
        );
        text.push_str(&rule(index, more));
    }
    text
}

fn rule(index: usize, more: &str) -> String {
    format!(
        "---\nkind: rule\nmetadata: {{name: r{index}, namespace: istio-system}}\nspec: {{match: 'request.path == \
         \"/{index}\" {more}', actions: [{{handler: h, instances: [i{index}]}}]}}\n"
    )
}
