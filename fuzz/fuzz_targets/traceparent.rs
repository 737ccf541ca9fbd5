#![no_main]

use libfuzzer_sys::fuzz_target;
use mixer_adapter_net::grpc::TraceParent;

// The ids of a valid header are those that it has been read from.
fuzz_target!(|header: &[u8]| {
    if let Some(parent) = TraceParent::parse(header) {
        let ids = format!("{}-{}", parent.trace_id(), parent.parent_id());
        assert_eq!(&header[3..52], ids.as_bytes());
    }
});
