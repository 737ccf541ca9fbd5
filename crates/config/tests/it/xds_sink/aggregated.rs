//! The protocol before MCP: `AggregatedMeshConfigService` of Istio 1.0 and 1.1.

use mixer_adapter_config::{
    mcp::sink::{Aggregated, AggregatedDelta},
    proto::istio::mcp::v1alpha1::{
        IncrementalMeshConfigRequest, IncrementalMeshConfigResponse, MeshConfigRequest, MeshConfigResponse,
        Resource,
    },
    stream::sink::Mode,
};
use prost::Message;

use super::{
    client::{Client, options},
    messages::*,
};

impl Shape for MeshConfigRequest {
    fn shape(&self) -> String {
        let Self { version_info, sink_node, type_url, response_nonce, error_detail } = self;
        assert_eq!(sink_node.as_ref().map(|node| &*node.id), Some("sink"));
        let error = error_detail.as_ref().map_or("", |error| &error.message);
        format!("{type_url} {version_info:?} {response_nonce:?} {error}").trim_end().to_owned()
    }
}

impl Shape for IncrementalMeshConfigRequest {
    fn shape(&self) -> String {
        let Self { type_url, initial_resource_versions: versions, response_nonce, error_detail, .. } = self;
        let error = error_detail.as_ref().map_or("", |error| &error.message);
        format!("{type_url} {versions:?} {response_nonce:?} {error}").trim_end().to_owned()
    }
}

fn resources(texts: &[&str]) -> Vec<Resource> {
    texts.iter().map(|text| Resource::decode(wrapped(text).value).unwrap()).collect()
}

fn whole(nonce: &str, texts: &[&str]) -> MeshConfigResponse {
    MeshConfigResponse {
        version_info: format!("v{nonce}"),
        resources: resources(texts),
        type_url: RULES.to_owned(),
        nonce: nonce.to_owned(),
    }
}

#[test]
fn whole_collections_are_asked_for_by_name_and_answered_by_the_version_accepted_last() {
    let mut client = Client::open(|_, _| Aggregated::default(), options(Mode::Full, &[RULES]));
    assert_eq!(client.sent(), [format!("{RULES} \"\" \"\"")]);
    client.receive(whole("1", &["ns/a@1", "ns/b@1"]));
    assert_eq!(client.accept(), [format!("{RULES} = ns/a@1 ns/b@1")]);
    assert_eq!(client.sent(), [format!("{RULES} \"v1\" \"1\"")]);
    client.receive(whole("2", &["ns/a@2"]));
    client.refuse("ns/a", "bad");
    assert_eq!(client.sent(), [format!("{RULES} \"v1\" \"2\" {RULES}: ns/a: bad")]);
    client.receive(whole("3", &["ns/a@3"]));
    assert_eq!(client.accept(), [format!("{RULES} + ns/a@3")]);
    assert_eq!(client.holds(RULES), ["ns/a@3"]);
    assert_eq!(client.sent(), [format!("{RULES} \"v3\" \"3\"")]);
    client.reopen();
    assert_eq!(client.sent(), [format!("{RULES} \"\" \"\"")]);
}

fn changes(nonce: &str, texts: &[&str], removed: &[&str]) -> IncrementalMeshConfigResponse {
    IncrementalMeshConfigResponse {
        system_version_info: format!("v{nonce}"),
        resources: resources(texts),
        removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
        nonce: nonce.to_owned(),
    }
}

#[test]
fn changes_of_a_collection_are_applied_and_a_new_stream_states_what_is_held() {
    let mut client = Client::open(|_, _| AggregatedDelta::new(RULES), options(Mode::Delta, &[RULES]));
    assert_eq!(client.sent(), [format!("{RULES} {{}} \"\"")]);
    client.receive(changes("1", &["ns/a@1", "ns/b@1"], &[]));
    assert_eq!(client.accept(), [format!("{RULES} = ns/a@1 ns/b@1")]);
    client.receive(changes("2", &["ns/c@1"], &["ns/b"]));
    assert_eq!(client.accept(), [format!("{RULES} + ns/c@1 -ns/b")]);
    let acks = [format!("{RULES} {{}} \"1\""), format!("{RULES} {{}} \"2\"")];
    assert_eq!(client.sent(), acks);
    client.reopen();
    assert_eq!(client.sent(), [format!("{RULES} {{\"ns/a\": \"1\", \"ns/c\": \"1\"}} \"\"")]);
    client.receive(changes("1", &[], &["ns/a"]));
    client.accept();
    assert_eq!(client.holds(RULES), ["ns/c@1"]);
}
