//! The engine in the process: what a check costs as rules grow in number, and what a report of a hundred requests costs.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mixer_adapter::service::mixer::{check, report};
use mixer_adapter_config::{ConfigSet, parse};
use mixer_adapter_engine::{
    Mixer,
    build::{BuildOptions, Connector, SnapshotBuilder},
    proto::istio::mixer::v1::{CheckRequest, CompressedAttributes, ReportRequest},
    remote,
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Caller, Closing, TableLimits},
};
use mixer_adapters::noop::Noop;
use tokio::runtime::{Builder, Handle, Runtime};

const CALLS: u32 = 20_000;

/// How the rules beside the one that matches are made.
#[derive(Clone, Copy)]
pub(super) enum Others {
    /// In another namespace than the request's.
    OtherNamespace,
    /// With one and the same condition, which does not match.
    SameCondition,
    /// Each with a condition of its own, which does not match.
    OwnCondition,
}

pub(super) fn grow() {
    println!("\na check in the process, by the number of rules, ns each\n");
    println!("{:>8} {:>18} {:>18} {:>18}", "rules", "other namespace", "same condition", "own condition");
    for count in [10, 100, 1_000, 10_000] {
        let kinds = [Others::OtherNamespace, Others::SameCondition, Others::OwnCondition];
        let cells: Vec<f64> = kinds.into_iter().map(|others| measure(count, others)).collect();
        println!("{count:>8} {:>18.0} {:>18.0} {:>18.0}", cells[0], cells[1], cells[2]);
    }
}

fn measure(count: usize, others: Others) -> f64 {
    let calls = if count >= 1_000 { CALLS / 20 } else { CALLS };
    let elapsed = time_checks(count, others, calls);
    elapsed.as_nanos() as f64 / f64::from(calls)
}

/// Makes a number of checks with ten rules.
pub(super) fn check_in_process(calls: u32) {
    time_checks(10, Others::OtherNamespace, calls);
}

fn time_checks(count: usize, others: Others, calls: u32) -> Duration {
    let runtime = runtime();
    let mixer = runtime.block_on(mixer(&configuration(count, others), runtime.handle()));
    let start = Instant::now();
    runtime.block_on(async {
        for _ in 0..calls {
            let answer = check(&mixer, request(), Caller::default()).await.expect("an answer");
            assert!(answer.precondition.is_some());
        }
    });
    start.elapsed()
}

pub(super) fn report_hundred() {
    let runtime = runtime();
    let mixer = runtime.block_on(mixer(&configuration(1, Others::OwnCondition), runtime.handle()));
    let request =
        ReportRequest { attributes: (0..100).map(|_| attributes()).collect(), ..ReportRequest::default() };
    let calls = CALLS / 20;
    let start = Instant::now();
    runtime.block_on(async {
        for _ in 0..calls {
            report(&mixer, request.clone(), Caller::default()).await.expect("delivered");
        }
    });
    let each = start.elapsed().as_micros() as f64 / f64::from(calls);
    println!("\na report of 100 requests, one instance each, to one handler: {each:.0} µs");
}

pub(super) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(super) fn request() -> CheckRequest {
    CheckRequest { attributes: Some(attributes()), ..CheckRequest::default() }
}

fn attributes() -> CompressedAttributes {
    let words = ["destination.namespace", "here", "request.path", "/x", "source.name", "somebody"];
    CompressedAttributes {
        words: words.map(str::to_owned).to_vec(),
        strings: [(-1, -2), (-3, -4), (-5, -6)].into(),
        ..CompressedAttributes::default()
    }
}

pub(super) async fn mixer(text: &str, runtime: &Handle) -> Mixer {
    let host = host(runtime);
    let (set, faults) = ConfigSet::of(parse(text, "bench.yaml", "istio-system").resources);
    let connector = Connector {
        host: host.clone(),
        remote: remote::Options::default(),
        closing: Closing::on(runtime.clone()),
    };
    let built =
        SnapshotBuilder::new(&set, faults, &host).build(None, &connector, &BuildOptions::default()).await;
    let mixer = Mixer::new();
    mixer.replace(built.map_err(|faults| format!("{faults:?}")).expect("a good configuration").0);
    mixer
}

pub(super) fn host(handle: &Handle) -> Arc<Host> {
    let adapters = Adapters::builder(handle.clone()).add::<Noop>().build().expect("one adapter");
    Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(handle.clone())))
}

/// One rule that matches, for checks and for reports, and `count` others.
pub(super) fn configuration(count: usize, others: Others) -> String {
    let mut text = HEAD.to_owned();
    for index in 0..count {
        let (namespace, condition) = match others {
            Others::OtherNamespace => (format!("ns{}", index % 100), "true".to_owned()),
            Others::SameCondition => ("here".to_owned(), r#"request.path == "/none""#.to_owned()),
            Others::OwnCondition => ("here".to_owned(), format!(r#"request.path == "/none{index}""#)),
        };
        text += &format!(
            "---\nkind: rule\nmetadata: {{name: r{index}, namespace: {namespace}}}\nspec: {{match: '{condition}', \
             actions: [{{handler: h.istio-system, instances: [entry.istio-system]}}]}}\n"
        );
    }
    text
}

const HEAD: &str = r#"
kind: handler
metadata: {name: h, namespace: istio-system}
spec: {compiledAdapter: noop}
---
kind: instance
metadata: {name: entry, namespace: istio-system}
spec: {compiledTemplate: listentry, params: {value: source.name | "unknown"}}
---
kind: instance
metadata: {name: log, namespace: istio-system}
spec: {compiledTemplate: logentry, params: {severity: '"info"', variables: {path: request.path | "/", source: source.name | "unknown"}}}
---
kind: rule
metadata: {name: matches, namespace: istio-system}
spec: {actions: [{handler: h, instances: [entry, log]}]}
"#;
