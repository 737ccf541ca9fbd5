//! Whole sets.

use std::time::Duration;

use mixer_adapter_config::proto::istio::policy::v1beta1::Handler;
use mixer_adapter_core::proto::Any;
use mixer_adapter_streams::{
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{DiscoveryResponse, Resource as Discovered},
        },
        istio::mcp::v1alpha1::Resource as Wrapped,
    },
    stream::sink::Mode,
    xds::sink::{Sotw, Versions},
};
use prost::Message;

use super::{
    client::{Client, options},
    messages::*,
};

const GATEWAYS: &str = "istio/networking/v1alpha3/gateways";
const NEW: &str = "networking.istio.io/v1/Gateway";
const OLD: &str = "networking.istio.io/v1alpha3/Gateway";

fn whole_sets(node: Node, _: Versions) -> Sotw {
    Sotw::new(node)
}

fn client(collections: &[&str]) -> Client<Sotw> {
    Client::open(whole_sets, options(Mode::Full, collections))
}

#[test]
fn each_type_is_asked_for_and_its_pushes_are_acknowledged_by_version_and_nonce() {
    let mut client = client(&[RULES, HANDLERS]);
    assert_eq!(client.sent(), [format!("ask {HANDLER} \"\""), format!("ask {RULE} \"\"")]);
    client.receive(whole(RULE, "n1", &["ns/a@1", "ns/b@1"]));
    assert_eq!(client.accept(), [format!("{RULES} = ns/a@1 ns/b@1")]);
    assert_eq!(client.sent(), [format!("ack {RULE} n1 \"version of n1\"")]);
    client.receive(whole(RULE, "n2", &["ns/a@2"]));
    assert_eq!(client.accept(), [format!("{RULES} + ns/a@2 -ns/b")], "what is missing is deleted");
    assert_eq!(client.sent(), [format!("ack {RULE} n2 \"version of n2\"")]);
}

#[test]
fn a_refusal_names_the_version_accepted_last_the_collection_the_resource_and_the_reason() {
    let mut client = client(&[RULES]);
    client.sent();
    client.receive(whole(RULE, "n1", &["ns/a@1"]));
    client.refuse("ns/a", "no such handler");
    assert_eq!(client.sent(), [format!("nack {RULE} n1 \"\": {RULES}: ns/a: no such handler")]);
    client.receive(whole(RULE, "n2", &["ns/a@2"]));
    client.accept();
    client.sent();
    client.receive(whole(RULE, "n3", &["ns/a@3"]));
    client.refuse("ns/a", "no");
    assert_eq!(client.sent(), [format!("nack {RULE} n3 \"version of n2\": {RULES}: ns/a: no")]);
    assert_eq!(client.holds(RULES), ["ns/a@2"], "the last good configuration stays");
}

#[test]
fn an_empty_push_deletes_everything() {
    let mut client = client(&[RULES]);
    client.receive(whole(RULE, "n1", &["ns/a@1", "ns/b@1"]));
    client.accept();
    client.receive(whole(RULE, "n2", &[]));
    assert_eq!(client.accept(), [format!("{RULES} + -ns/a -ns/b")]);
    assert!(client.holds(RULES).is_empty());
}

/// istiod and Nacos do not wait.
#[test]
fn pushes_before_the_answer_to_the_one_before_are_coalesced_into_the_newest() {
    let mut client = client(&[RULES]);
    client.sent();
    for (nonce, resource) in [("n1", "ns/a@1"), ("n2", "ns/a@2"), ("n3", "ns/a@3")] {
        client.receive(whole(RULE, nonce, &[resource]));
    }
    assert_eq!(client.accept(), [format!("{RULES} = ns/a@1")]);
    assert_eq!(client.accept(), [format!("{RULES} + ns/a@3")]);
    let acks = [format!("ack {RULE} n1 \"version of n1\""), format!("ack {RULE} n3 \"version of n3\"")];
    assert_eq!(client.sent().last(), Some(&acks[1]));
}

#[test]
fn an_equal_push_is_acknowledged_and_is_no_event() {
    let mut client = client(&[RULES]);
    client.receive(whole(RULE, "n1", &["ns/a@1"]));
    client.accept();
    client.sent();
    client.receive(whole(RULE, "n2", &["ns/a@1"]));
    assert_eq!(client.accept(), [""; 0]);
    assert_eq!(client.sent(), [format!("ack {RULE} n2 \"version of n2\"")]);
}

#[test]
fn a_new_stream_asks_without_nonce_and_version_and_what_did_not_change_is_no_event() {
    let mut client = client(&[RULES]);
    client.receive(whole(RULE, "n1", &["ns/a@1", "ns/b@1"]));
    client.accept();
    client.reopen();
    assert_eq!(client.sent(), [format!("ask {RULE} \"\"")]);
    client.receive(whole(RULE, "other", &["ns/b@1"]));
    assert_eq!(client.accept(), [format!("{RULES} + -ns/a")], "deleted while the sink was away");
    client.reopen();
    client.receive(whole(RULE, "another", &["ns/b@1"]));
    assert_eq!(client.accept(), [""; 0]);
}

/// istiod pushes what concerns the proxy it takes the sink for, and nothing else.
#[test]
fn everything_is_asked_for_again_every_few_minutes() {
    let resync = Some(Duration::from_secs(300));
    let options = options(Mode::Full, &[RULES]).resync(resync);
    let mut client = Client::open(whole_sets, options);
    client.receive(whole(RULE, "n1", &["ns/a@1"]));
    client.accept();
    client.sent();
    client.wait(Duration::from_secs(299));
    assert_eq!(client.sent(), [""; 0]);
    client.wait(Duration::from_secs(1));
    assert_eq!(client.sent(), [format!("ask {RULE} \"\"")]);
    client.receive(whole(RULE, "n2", &["ns/a@1", "ns/gone-unnoticed@1"]));
    assert_eq!(client.accept(), [format!("{RULES} + ns/gone-unnoticed@1")]);
    client.wait(Duration::from_secs(300));
    assert!(client.sent().contains(&format!("ask {RULE} \"\"")));
}

#[test]
fn a_kind_of_istio_is_asked_for_by_the_old_version_where_the_new_one_is_empty() {
    let mut client = client(&[GATEWAYS]);
    assert_eq!(client.sent(), [format!("ask {NEW} \"\"")]);
    client.receive(whole(NEW, "n1", &[]));
    assert_eq!(client.accept(), [""; 0], "nothing is deleted before the other is known");
    assert_eq!(client.sent(), [format!("ack {NEW} n1 \"version of n1\""), format!("ask {OLD} \"\"")]);
    client.receive(whole(OLD, "n2", &["ns/a@1"]));
    assert_eq!(client.accept(), [format!("{GATEWAYS} = ns/a@1")]);
    assert_eq!(client.sent(), [format!("ack {OLD} n2 \"version of n2\"")]);
    // istiod pushes every type again when anything changes.
    client.receive(whole(NEW, "n3", &[]));
    assert_eq!(client.accept(), [""; 0]);
    assert_eq!(client.sent(), [format!("ack {NEW} n3 \"version of n3\"")]);
}

/// Nacos has no MeshConfig, and says nothing about it.
#[test]
fn a_collection_that_is_never_answered_is_pending_only_if_it_is_required() {
    const MESH: &str = "k8s/v1alpha1/MeshConfig";
    let mut options = options(Mode::Full, &[RULES, MESH]);
    options.collections[1].required = false;
    let mut client = Client::open(whole_sets, options);
    assert_eq!(client.sent(), [format!("ask {RULE} \"\""), "ask core/v1alpha1/MeshConfig \"\"".to_owned()]);
    assert_eq!(client.machine.pending().map(|name| &**name).collect::<Vec<_>>(), [RULES]);
    client.receive(whole(RULE, "n1", &[]));
    client.accept();
    assert_eq!(client.machine.pending().count(), 0);
}

#[test]
fn a_type_that_was_not_asked_for_is_refused_by_its_url() {
    let mut client = client(&[RULES]);
    client.sent();
    client.receive(whole("example.com/v1/Widget", "n1", &["ns/a@1"]));
    let refusal = "nack example.com/v1/Widget n1 \"\": unsupported collection example.com/v1/Widget";
    assert_eq!(client.sent(), [refusal]);
}

#[test]
fn a_push_without_a_nonce_is_answered_without_one_and_not_asked_for_again() {
    let mut client = client(&[RULES]);
    client.sent();
    client.receive(whole(RULE, "", &["ns/a@1"]));
    client.accept();
    assert_eq!(client.sent(), [format!("ask {RULE} \"version of \"")], "by the version it is an answer");
}

fn bare(resources: Vec<Any>) -> DiscoveryResponse {
    DiscoveryResponse { resources, ..whole(HANDLER, "n1", &[]) }
}

fn outcome(resources: Vec<Any>) -> Vec<String> {
    let mut client = client(&[HANDLERS]);
    client.receive(bare(resources));
    let accepted = client.accept();
    let faults = client.sent().into_iter().filter(|sent| sent.starts_with("nack"));
    accepted.into_iter().chain(faults).collect()
}

#[test]
fn a_bare_resource_is_called_by_the_name_in_its_body() {
    let handler = Handler { name: "ns/h".to_owned(), ..Handler::default() };
    let handler = any("istio.policy.v1beta1.Handler", handler.encode_to_vec());
    assert_eq!(outcome(vec![handler]), [format!("{HANDLERS} = ns/h@")]);
}

#[test]
fn a_bare_resource_without_a_name_is_called_by_its_content() {
    let first = outcome(vec![any("example.Unknown", "x"), any("example.Unknown", "y")]);
    let [change] = &first[..] else { panic!("{first:?}") };
    let names: Vec<_> = change.split(' ').skip(2).collect();
    assert_eq!(names.len(), 2, "{change}");
    assert!(names.iter().all(|name| name.starts_with("nameless-")), "{change}");
    assert_eq!(outcome(vec![any("example.Unknown", "y"), any("example.Unknown", "x")]), first);
}

/// Resources of Envoy have any text for a name, in their first field.
#[test]
fn a_resource_of_envoy_is_called_by_its_name() {
    const CLUSTERS: &str = "envoy.config.cluster.v3.Cluster";
    let type_url = format!("type.googleapis.com/{CLUSTERS}");
    let mut client = client(&[CLUSTERS]);
    assert_eq!(client.sent(), [format!("ask {type_url} \"\"")]);
    let cluster = any(CLUSTERS, &b"\x0a\x0eoutbound|80||a"[..]);
    client.receive(DiscoveryResponse { resources: vec![cluster], ..whole(&type_url, "n1", &[]) });
    assert_eq!(client.accept(), [format!("{CLUSTERS} = outbound|80||a@")]);
}

/// Routes, endpoints and secrets come in parts, and are never reported as deleted
/// (docs/behaviour/xds.md#rule-5-what-a-missing-resource-means).
#[test]
fn for_some_types_of_envoy_what_is_missing_is_not_removed() {
    const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";
    let type_url = format!("type.googleapis.com/{ROUTES}");
    let mut client = client(&[ROUTES]);
    let push = |nonce: &str, names: &[&str]| {
        let routes = names.iter().map(|name| any(ROUTES, [b"\x0a\x01", name.as_bytes()].concat()));
        DiscoveryResponse { resources: routes.collect(), ..whole(&type_url, nonce, &[]) }
    };
    client.receive(push("n1", &["a", "b"]));
    assert_eq!(client.accept(), [format!("{ROUTES} = a@ b@")]);
    client.receive(push("n2", &["c"]));
    assert_eq!(client.accept(), [format!("{ROUTES} + c@")]);
    client.reopen();
    client.receive(push("1", &["a", "c"]));
    assert_eq!(client.accept(), [format!("{ROUTES} + -b")], "the first of a stream holds all there are");
}

#[test]
fn a_resource_wrapped_to_give_it_a_name_has_that_name() {
    let named = Discovered {
        name: "ns/outer".to_owned(),
        version: "7".to_owned(),
        resource: Some(wrapped("ns/inner@1")),
        ..Discovered::default()
    };
    let named = any("envoy.service.discovery.v3.Resource", named.encode_to_vec());
    assert_eq!(outcome(vec![named]), [format!("{HANDLERS} = ns/outer@1")]);
}

/// Higress adds a field to the wrapper, and gives no versions.
#[test]
fn unknown_fields_in_the_wrapper_do_no_harm_and_no_version_is_none() {
    let mut wrapper = Wrapped::decode(wrapped("ns/a@1").value).unwrap();
    wrapper.metadata.as_mut().unwrap().version.clear();
    let mut bytes = wrapper.encode_to_vec();
    // Field 100, bytes.
    bytes.extend([0xa2, 0x06, 0x02, b'{', b'}']);
    assert_eq!(outcome(vec![any("istio.mcp.v1alpha1.Resource", bytes)]), [format!("{HANDLERS} = ns/a@")]);
}

#[test]
fn bad_resources_are_refused_by_name_and_reason() {
    let wrap = |wrapped: Wrapped| any("istio.mcp.v1alpha1.Resource", wrapped.encode_to_vec());
    let nack = |reason: &str| vec![format!("nack {HANDLER} n1 \"\": {HANDLERS}: {reason}")];
    let bodiless = Wrapped { metadata: Some(metadata("ns/a@1")), body: None };
    assert_eq!(outcome(vec![wrap(bodiless)]), nack("ns/a: it has no body"));
    assert_eq!(outcome(vec![wrap(Wrapped::default())]), nack("resource 1: it has no name"));
    let twice = vec![wrapped("ns/a@1"), wrapped("ns/a@2")];
    assert_eq!(outcome(twice), nack("ns/a: it comes twice, with different content"));
    let odd = wrap(Wrapped { metadata: Some(metadata("ns/a b@1")), body: Some(any("a.B", "")) });
    assert_eq!(
        outcome(vec![wrapped("ns/good@1"), odd]),
        nack(
            "ns/a b: \"a b\" in the name \"ns/a b\" is not valid; use letters, digits, hyphens and underscores, with dots between them"
        )
    );
}

#[test]
fn good_resources_are_taken_from_a_push_with_bad_ones_where_that_is_wanted() {
    let options = options(Mode::Full, &[RULES]).skip_bad_resources(true);
    let mut client = Client::open(whole_sets, options);
    let bodiless = Wrapped { metadata: Some(metadata("ns/bad@1")), body: None };
    let bad = any("istio.mcp.v1alpha1.Resource", bodiless.encode_to_vec());
    client.receive(DiscoveryResponse { resources: vec![bad, wrapped("ns/a@1")], ..whole(RULE, "n1", &[]) });
    assert_eq!(client.accept(), [format!("{RULES} = ns/a@1")]);
}
