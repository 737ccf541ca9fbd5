//! How long it takes to make a snapshot of many rules and instances, and what the next one costs after one rule changed: in memory, and
//! in a file.

use std::{fs, path::Path, sync::Arc, time::Instant};

use mixer_adapter_config::{
    Acceptance, Apply, Change, Collection, ConfigSet, Content, Kind, Progress, Update, Verdict, parse,
    source::FileSource,
};
use mixer_adapter_engine::{
    Controller, Mixer, Snapshot,
    build::{BuildOptions, Connector, SnapshotBuilder},
    remote,
};
use mixer_adapter_host::handler::Closing;
use tokio::{
    runtime::Handle,
    sync::mpsc::{Sender, channel},
};

use super::rules::{host, runtime};

const RULES: usize = 10_000;
/// How often a rule changes; the clock has ticks of 10 ms.
const CHANGES: u32 = 20;

pub(super) fn time() {
    in_memory();
    for rules in [RULES, 5 * RULES] {
        runtime().block_on(in_file(rules));
    }
}

fn connector(runtime: &Handle) -> Connector {
    Connector {
        host: host(runtime),
        remote: remote::Options::default(),
        closing: Closing::on(runtime.clone()),
    }
}

fn in_memory() {
    let runtime = runtime();
    let connector = connector(runtime.handle());
    let start = Instant::now();
    let resources = parse(&configuration(RULES, RULES), "bench.yaml", "istio-system").resources;
    let parsed = start.elapsed();
    let (set, faults) = ConfigSet::of(resources);
    let build = |set: &ConfigSet, former: Option<&Snapshot>| {
        let builder = SnapshotBuilder::after(former, set, Vec::new(), &connector.host);
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

/// A controller that sends the CPU time at which it applied each configuration.
struct Timed {
    controller: Controller,
    applied: Sender<u64>,
}

impl Apply for Timed {
    async fn apply(&mut self, update: Update) -> Verdict {
        let verdict = self.controller.apply(update).await;
        self.applied.try_send(cpu_millis()).expect("somebody waits for it");
        verdict
    }

    fn report(&mut self, progress: Progress) {
        assert!(progress.refused.is_empty(), "{progress:?}");
        self.controller.report(progress);
    }
}

/// Prints the CPU time from the change of a rule in a file to the next snapshot in use.
async fn in_file(rules: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("bench.yaml");
    let texts = [configuration(rules, rules), configuration(rules, rules / 2)];
    write(&path, &texts[0]);
    let connector = Arc::new(connector(&Handle::current()));
    let (host, options) = (connector.host.clone(), BuildOptions::default());
    let controller = Controller::new(Arc::new(Mixer::new()), host, connector, options);
    let (sender, mut applied) = channel(1);
    let source = FileSource::new(path.as_path(), "istio-system");
    let following = Acceptance::new(Timed { controller, applied: sender }).run(vec![source.into()]);
    tokio::pin!(following);
    let changing = async {
        applied.recv().await.expect("the first configuration");
        let mut millis = 0;
        for change in 1..=CHANGES {
            write(&path, &texts[change as usize % 2]);
            let start = cpu_millis();
            millis += applied.recv().await.expect("the next configuration") - start;
        }
        f64::from(u32::try_from(millis).expect("a short time")) / f64::from(CHANGES)
    };
    let millis = tokio::select! {
        millis = changing => millis,
        () = &mut following => unreachable!("the source ends"),
    };
    println!("{rules} rules and {rules} instances in a file: one rule changed {millis:.1} ms CPU");
}

/// Replaces the file as a whole.
fn write(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).expect("written");
    fs::rename(next, path).expect("replaced");
}

/// The CPU time of this process so far.
fn cpu_millis() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, fields) = stat.rsplit_once(") ").expect("the format of stat");
    let ticks = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
    ticks.sum::<u64>() * 10
}

/// Rules with an instance each; one rule has another condition.
fn configuration(rules: usize, other: usize) -> String {
    let mut text = String::from(
        "kind: handler\nmetadata: {name: h, namespace: istio-system}\nspec: {compiledAdapter: noop}\n",
    );
    for index in 0..rules {
        text += &format!(
            "---\nkind: instance\nmetadata: {{name: i{index}, namespace: istio-system}}\nspec: {{compiledTemplate: \
             listentry, params: {{value: 'source.name | \"unknown{index}\"'}}}}\n"
        );
        text.push_str(&rule(index, if index == other { "|| false" } else { "" }));
    }
    text
}

fn rule(index: usize, more: &str) -> String {
    format!(
        "---\nkind: rule\nmetadata: {{name: r{index}, namespace: istio-system}}\nspec: {{match: 'request.path == \
         \"/{index}\" {more}', actions: [{{handler: h, instances: [i{index}]}}]}}\n"
    )
}
