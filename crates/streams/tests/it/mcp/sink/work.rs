//! The work for a push is linear in its size, from its bytes to the answer.

use mixer_adapter_config::proto::istio::policy::v1beta1::{
    Action, AttributeManifest, Instance, Rule, attribute_manifest::AttributeInfo,
    rule::HeaderOperationTemplate,
};
use mixer_adapter_core::proto::Any;
use mixer_adapter_net::Rate;
use mixer_adapter_streams::proto::istio::mcp::v1alpha1::Resource;
use prost::{Message as _, Name as _};

use super::*;
use crate::mcp::linear::assert_linear;

/// So that all answers are sent at once.
const UNLIMITED: Rate = Rate { burst: 1_000_000, every: Duration::from_millis(1) };

/// Asserts that the work for a first push, and for others after it, is linear.
fn pushes(name: &str, pushes: impl Fn(usize) -> Vec<Resources>) {
    assert_linear(name, |n| {
        let mut sink = Sink::with(&[RULES], |options| options.requests = UNLIMITED).open();
        for push in pushes(n) {
            let received = Resources::decode(&push.encode_to_vec()[..]).unwrap();
            sink.accept(received);
            for resource in sink.changes.drain(..).flat_map(|change| change.resources) {
                let _unreadable = resource.spec();
            }
        }
    });
}

/// The same of one resource that is pushed.
fn resources(name: &str, resource: impl Fn(usize) -> Resource) {
    pushes(name, |n| vec![Resources { resources: vec![resource(n)], ..push(RULES, "1", &[]) }]);
}

/// `n` resources of a version.
fn versioned(n: usize, version: &str) -> Resources {
    let resources = (0..n).map(|index| resource(&format!("ns/r{index}@{version}"))).collect();
    Resources { resources, ..push(RULES, version, &[]) }
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|index| format!("ns/r{index}")).collect()
}

fn texts<M: FromIterator<(String, String)>>(n: usize) -> M {
    names(n).into_iter().map(|name| (name, "value".to_owned())).collect()
}

#[test]
fn resources_of_a_push() {
    pushes("resources", |n| vec![versioned(n, "1")]);
    pushes("equal resources", |n| {
        vec![versioned(n, "1"), Resources { nonce: "2".to_owned(), ..versioned(n, "1") }]
    });
    pushes("changed resources", |n| vec![versioned(n, "1"), versioned(n, "2")]);
    pushes("resources that are gone", |n| vec![versioned(n, "1"), push(RULES, "2", &[])]);
    pushes("changes of resources", |n| {
        vec![versioned(n, "1"), Resources { incremental: true, ..versioned(n, "2") }]
    });
    pushes("resources of one name", |n| {
        vec![Resources { resources: vec![resource("ns/a@1"); n], ..push(RULES, "1", &[]) }]
    });
    pushes("resources without metadata", |n| {
        vec![Resources { resources: vec![Resource::default(); n], ..push(RULES, "1", &[]) }]
    });
}

#[test]
fn removed_resources_of_a_push() {
    let removing =
        |removed_resources: Vec<String>| Resources { removed_resources, ..increment(RULES, "2", &[], &[]) };
    pushes("removed", |n| vec![versioned(n, "1"), removing(names(n))]);
    pushes("removed of none", |n| vec![versioned(1, "1"), removing(names(n))]);
    pushes("one removed again and again", |n| vec![versioned(n, "1"), removing(vec!["ns/r0".to_owned(); n])]);
}

#[test]
fn pushes_of_one_change() {
    pushes("pushes", |n| {
        let change = |index| increment(RULES, &format!("{index}"), &[&format!("ns/r{index}@2")], &[]);
        [vec![versioned(n, "1")], (0..n).map(change).collect()].concat()
    });
}

#[test]
fn maps_of_a_resource() {
    let with = |metadata: Metadata| Resource { metadata: Some(metadata), ..resource("ns/a@1") };
    let named = || resource("ns/a@1").metadata.unwrap();
    resources("labels", |n| with(Metadata { labels: texts(n), ..named() }));
    resources("annotations", |n| with(Metadata { annotations: texts(n), ..named() }));
}

#[test]
fn lists_of_a_body() {
    let with = |type_url: String, body: Vec<u8>| Resource {
        body: Some(Any { type_url, value: body.into() }),
        ..resource("ns/a@1")
    };
    let rule = |rule: Rule| with(Rule::type_url(), rule.encode_to_vec());
    resources("actions", |n| rule(Rule { actions: vec![Action::default(); n], ..Rule::default() }));
    resources("instances", |n| {
        rule(Rule { actions: vec![Action { instances: names(n), ..Action::default() }], ..Rule::default() })
    });
    resources("header operations", |n| {
        let operations = vec![HeaderOperationTemplate::default(); n];
        rule(Rule {
            request_header_operations: operations.clone(),
            response_header_operations: operations,
            ..Rule::default()
        })
    });
    resources("values of a header operation", |n| {
        let operation = HeaderOperationTemplate { values: names(n), ..HeaderOperationTemplate::default() };
        rule(Rule { request_header_operations: vec![operation], ..Rule::default() })
    });
    resources("attribute bindings", |n| {
        let instance = Instance { attribute_bindings: texts(n), ..Instance::default() };
        with(Instance::type_url(), instance.encode_to_vec())
    });
    resources("attributes", |n| {
        let attributes = names(n).into_iter().map(|name| (name, AttributeInfo::default())).collect();
        let manifest = AttributeManifest { attributes, ..AttributeManifest::default() };
        with(AttributeManifest::type_url(), manifest.encode_to_vec())
    });
}
