#![no_main]

use libfuzzer_sys::fuzz_target;
use mixer_adapter::prost::Message as _;
use mixer_adapter_streams::{
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{
                DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            },
        },
        istio::mcp::v1alpha1::RequestResources,
    },
    stream::{sink::Dialect, source::Catalogue},
    xds::{
        sink::{Delta, Sotw, Versions},
        source::{DeltaStream, SotwStream},
    },
};

/// Asks for a collection, and reads the same response twice.
fn respond<D: Dialect>(mut dialect: D, response: D::Response)
where
    D::Response: Clone,
{
    let collection = "istio/policy/v1beta1/rules".to_owned();
    dialect.on_request(RequestResources { collection, ..RequestResources::default() });
    for _ in 0..2 {
        let received = dialect.on_response(response.clone());
        if let Some(push) = received.push {
            let (collection, response_nonce) = (push.collection, push.nonce);
            dialect.on_request(RequestResources {
                collection,
                response_nonce,
                ..RequestResources::default()
            });
        }
    }
}

// Both ends in both variants.
fuzz_target!(|bytes: &[u8]| {
    if let Ok(response) = DiscoveryResponse::decode(bytes) {
        respond(Sotw::new(Node::default()), response);
    }
    if let Ok(response) = DeltaDiscoveryResponse::decode(bytes) {
        respond(Delta::new(Node::default(), Versions::default()), response);
    }
    let catalogue = Catalogue::default().open();
    if let Ok(request) = DiscoveryRequest::decode(bytes) {
        let mut stream = SotwStream::new(None);
        while stream.requested(request.clone()).is_ok() && stream.next(&catalogue).is_some() {}
    }
    if let Ok(request) = DeltaDiscoveryRequest::decode(bytes) {
        let mut stream = DeltaStream::new(None);
        while stream.requested(request.clone()).is_ok() && stream.next(&catalogue).is_some() {}
    }
});
