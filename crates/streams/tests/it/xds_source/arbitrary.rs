//! The server stays within its bounds for arbitrary requests.

use std::collections::{BTreeMap, BTreeSet};

use mixer_adapter_streams::{
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    },
    xds::source::{DeltaStream, SotwStream},
};
use proptest::{collection::vec, prelude::*};

use super::{messages::*, world};

#[derive(Clone, Debug)]
struct Request {
    type_url: String,
    names: Vec<String>,
    less: Vec<String>,
    versions: BTreeMap<String, String>,
    nonce: String,
    refuses: bool,
    node: Option<String>,
    /// What is there then.
    there: Option<(usize, String)>,
}

const TYPES: [&str; 4] = [CLUSTER, ENDPOINT, LISTENER, ENTRY];

fn request() -> impl Strategy<Value = Request> {
    let type_url = prop_oneof![
        8 => prop::sample::select(&TYPES[..]).prop_map(str::to_owned),
        1 => "[a-z./]{0,20}",
    ];
    let name = || prop_oneof![3 => "[abc]", 1 => Just("*".to_owned()), 1 => any::<String>()];
    let nonce = prop_oneof![2 => Just(String::new()), 4 => (0..12_u8).prop_map(|n| n.to_string()), 1 => any::<String>()];
    let versions = prop::collection::btree_map(name(), any::<String>(), 0..3);
    let there = prop::option::of((0..4_usize, "([abc]@[0-3] ){0,3}"));
    let node = prop::option::of(prop_oneof![Just("gRPC Go".to_owned()), any::<String>()]);
    (type_url, vec(name(), 0..4), vec(name(), 0..3), versions, nonce, any::<bool>(), node, there).prop_map(
        |(type_url, names, less, versions, nonce, refuses, node, there)| Request {
            type_url,
            names,
            less,
            versions,
            nonce,
            refuses,
            node,
            there,
        },
    )
}

fn node(request: &Request) -> Option<Node> {
    let user_agent_name = request.node.clone()?;
    Some(Node { user_agent_name, ..Node::default() })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_each_type_at_most_one_push_is_under_way_whatever_is_asked(requests in vec(request(), 0..60)) {
        let mut catalogue = world::catalogue();
        let (mut states, mut changes) = (SotwStream::new(None), DeltaStream::new(None));
        let mut types = BTreeSet::new();
        for request in requests {
            if let Some((at, texts)) = &request.there {
                catalogue.apply(&all(TYPES[*at], texts));
            }
            let error_detail = request.refuses.then(|| error("no"));
            let sotw = DiscoveryRequest {
                version_info: request.nonce.clone(),
                node: node(&request),
                resource_names: request.names.clone(),
                type_url: request.type_url.clone(),
                response_nonce: request.nonce.clone(),
                error_detail: error_detail.clone(),
            };
            prop_assert_eq!(states.requested(sotw).is_err(), request.type_url.is_empty());
            let delta = DeltaDiscoveryRequest {
                node: node(&request),
                type_url: request.type_url.clone(),
                resource_names_subscribe: request.names,
                resource_names_unsubscribe: request.less,
                initial_resource_versions: request.versions.into_iter().collect(),
                response_nonce: request.nonce,
                error_detail,
            };
            prop_assert_eq!(changes.requested(delta).is_err(), request.type_url.is_empty());
            types.insert(request.type_url);
            let mut pushed = BTreeSet::new();
            while let Some(push) = states.next(&catalogue) {
                prop_assert!(pushed.insert(push.type_url.clone()) && types.contains(&push.type_url));
                let resources: BTreeSet<_> = push.resources.iter().map(text).collect();
                prop_assert_eq!(resources.len(), push.resources.len());
            }
            let mut pushed = BTreeSet::new();
            while let Some(push) = changes.next(&catalogue) {
                prop_assert!(pushed.insert(push.type_url.clone()) && types.contains(&push.type_url));
                let changed: BTreeSet<_> = push.resources.iter().map(|resource| &resource.name).collect();
                let removed: BTreeSet<_> = push.removed_resources.iter().collect();
                prop_assert_eq!(changed.len(), push.resources.len());
                prop_assert_eq!(removed.len(), push.removed_resources.len());
                prop_assert!(changed.is_disjoint(&removed));
            }
        }
    }
}
