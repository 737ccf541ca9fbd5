//! Configurations with the templates of the adapters in the process, without resources for them.

use std::sync::Arc;

use mixer_adapter::{Code, template::STANDARD};
use mixer_adapter_config::{ConfigSet, parse};
use mixer_adapter_engine::{
    build::{BuildOptions, Connector, SnapshotBuilder},
    dispatch::{Caller, Request},
    remote,
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use test_adapters::Recorded;
use tokio::runtime::Handle;

use crate::mixer_api::engine::Nowhere;

/// A check by a template that only the adapter `recorded` has.
const TAGS: &str = "
kind: handler
metadata: {name: h}
spec: {compiledAdapter: recorded, params: {deny: [mallory], greeting: no tags, limit: 1}}
---
kind: instance
metadata: {name: tags}
spec: {compiledTemplate: tagcheck, params: {subject: source.name}}
---
kind: rule
metadata: {name: tagged}
spec: {actions: [{handler: h, instances: [tags]}]}
";

fn host() -> Arc<Host> {
    let adapters = Adapters::builder(Handle::current()).add::<Recorded>().build().unwrap();
    Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(Handle::current())))
}

fn builder(config: &str, host: &Host) -> SnapshotBuilder {
    let (set, faults) = ConfigSet::of(parse(config, "config.yaml", "istio-system").resources);
    SnapshotBuilder::new(&set, faults, host)
}

#[tokio::test]
async fn a_template_of_an_adapter_in_the_process_needs_no_resource() {
    let host = host();
    let connector =
        Connector { host: host.clone(), remote: remote::Options::default(), closing: host.closing().clone() };
    let built = builder(TAGS, &host).build(None, &connector, &BuildOptions::default()).await;
    let (snapshot, _) = built.unwrap();
    for (subject, code) in [("alice", 0), ("mallory", Code::PermissionDenied as i32)] {
        let mut bag = snapshot.bag();
        bag.insert("source.name", subject);
        let answer = Request::new(&snapshot, bag, &Caller::default()).answer().await.unwrap();
        assert_eq!(answer.status.code, code, "{subject}");
    }
}

#[tokio::test]
async fn a_template_of_no_adapter_is_an_error_that_lists_those_of_the_program() {
    let config = TAGS.replace("tagcheck", "zzz");
    let built = builder(&config, &host()).build(None, &Nowhere, &BuildOptions::default()).await;
    let faults: Vec<String> = built.unwrap_err().iter().map(ToString::to_string).collect();
    let unknown = faults.iter().find(|fault| fault.contains("spec.compiled_template")).unwrap();
    assert!(unknown.contains("there is no template \"zzz\" in this program; expected one of: "), "{unknown}");
    let standard = STANDARD.iter().map(|(name, _)| *name);
    let missing: Vec<&str> =
        standard.chain(["ownergen", "tagcheck"]).filter(|name| !unknown.contains(name)).collect();
    assert_eq!(missing, [""; 0], "{unknown}");
}
