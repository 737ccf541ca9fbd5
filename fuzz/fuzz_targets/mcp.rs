#![no_main]

use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use mixer_adapter::prost::Message as _;
use mixer_adapter_streams::{
    mcp::source::McpStream,
    proto::istio::mcp::v1alpha1::{RequestResources, Resources},
    stream::{
        sink::{self, Output, SinkDecision, SinkOptions},
        source::Catalogue,
    },
};

const COLLECTIONS: [&str; 2] = ["istio/policy/v1beta1/rules", "istio/policy/v1beta1/instances"];

/// Applies everything that is offered, after reading its bodies.
fn drain(sink: &mut sink::SinkMachine, catalogue: &mut Catalogue, now: Instant) {
    while let Some(output) = sink.poll(now) {
        if let Output::Decide(proposal, change) = output {
            for resource in &change.resources {
                let _ = resource.spec();
            }
            catalogue.apply(&change);
            sink.decided(&change.collection, proposal, SinkDecision::Live, now);
        }
    }
}

// Both ends: a push to a sink, twice, and a request to a source that has what the sink took in.
fuzz_target!(|bytes: &[u8]| {
    let now = Instant::now();
    let mut catalogue = Catalogue::of(COLLECTIONS);
    if let Ok(push) = Resources::decode(bytes) {
        let mut sink = sink::SinkMachine::new(SinkOptions::new("fuzz", COLLECTIONS));
        sink.opened(1, now);
        for _ in 0..2 {
            sink.received(1, push.clone(), now);
            drain(&mut sink, &mut catalogue, now);
        }
        sink.closed(1, None, now);
    }
    if let Ok(request) = RequestResources::decode(bytes) {
        let mut source = McpStream::new(true);
        for _ in 0..2 {
            if source.requested(request.clone(), &catalogue).is_err() {
                break;
            }
            // At most one push of a collection is under way.
            let pushes = (0..10).map_while(|_| source.next(&catalogue)).count();
            assert!(pushes <= COLLECTIONS.len());
        }
    }
});
