//! What a call allocates: nothing for a span that nobody traces, and in proportion to its size.

use std::collections::HashMap;

use crate::linear::assert_linear;
use bytes::{BufMut as _, Bytes, BytesMut};
use mixer_adapter::{
    adapter::Config as _,
    prost::Message as _,
    proto::Any,
    template::{
        CheckNothing, Metric, Template as _, checknothing, checknothing::HandleCheckNothingRequest, metric,
        metric::HandleMetricRequest,
    },
    value::Value,
};
use mixer_adapter_host::{
    Host, NewSession,
    handler::{Adapters, Caller, Closing, TableLimits},
};
use mixer_adapter_net::grpc::TraceParent;
use test_adapters::{
    Bystander, Probe,
    params::{self, bystander::Params},
};
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::EnvFilter;

/// The request as it is received: a part of a buffer.
fn request() -> Bytes {
    let config = Params { ledger: "allocations".to_owned() };
    let request = HandleCheckNothingRequest {
        instance: Some(checknothing::InstanceMsg { name: "nothing.instance.istio-system".to_owned() }),
        adapter_config: Some(Any {
            type_url: format!("type.googleapis.com/{}", Params::NAME),
            value: config.encode_to_vec().into(),
        }),
        dedup_id: "1".to_owned(),
    };
    let mut received = BytesMut::new();
    received.put_slice(&request.encode_to_vec());
    received.put_slice(b"the next frame");
    received.split_to(received.len() - 14).freeze()
}

fn allocations(runtime: &Runtime, host: &Host, caller: &Caller) -> u64 {
    let (request, caller) = (request(), caller.clone());
    let counted = allocation_counter::measure(|| {
        let answer = runtime.block_on(host.call(CheckNothing::METHOD, request, caller));
        assert!(matches!(answer, Some(Ok(_))));
    });
    counted.count_total
}

fn logging(filter: &str) -> impl tracing::Subscriber + Send + Sync + 'static {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_writer(std::io::sink).finish()
}

#[test]
fn a_call_without_an_enabled_span_allocates_nothing_for_it() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let adapters = Adapters::builder(runtime.handle().clone()).add::<Bystander>().build().unwrap();
    let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime.handle().clone()));
    let nobody = Caller::default();
    let somebody = Caller {
        connection: 1,
        peer: Some("spiffe://cluster.local/ns/a/sa/b".into()),
        trace: TraceParent::parse(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ..Caller::default()
    };
    // The first call opens the handler.
    allocations(&runtime, &host, &nobody);
    let without = allocations(&runtime, &host, &nobody);
    // Three strings of the request, its instance and configuration in shared bytes, two boxed futures, and the frame.
    assert!(without <= 9, "{without} allocations");
    tracing::subscriber::with_default(logging("info"), || {
        assert_eq!(allocations(&runtime, &host, &somebody), without, "a log without spans");
    });
    tracing::subscriber::with_default(logging("info,mixer_adapter::call=debug"), || {
        assert!(allocations(&runtime, &host, &somebody) > without, "a log with spans");
    });
}

#[test]
fn the_work_for_a_call_or_a_session_is_linear_in_its_size() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let adapters = Adapters::builder(runtime.handle().clone()).add::<Probe>().build().unwrap();
    let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime.handle().clone()));
    let probe = |ledger: &str| {
        let config = params::probe::Params { ledger: ledger.to_owned(), ..Default::default() };
        let type_url = format!("type.googleapis.com/{}", params::probe::Params::NAME);
        Some(Any { type_url, value: config.encode_to_vec().into() })
    };
    let call = |instances: Vec<metric::InstanceMsg>| {
        let request =
            HandleMetricRequest { instances, adapter_config: probe("work"), dedup_id: "1".to_owned() };
        let request = request.encode_to_vec().into();
        let answer = runtime.block_on(host.call(Metric::METHOD, request, Caller::default()));
        assert!(matches!(answer, Some(Ok(_))));
    };
    let named = |index: usize| metric::InstanceMsg { name: format!("i{index}"), ..Default::default() };
    assert_linear("instances", |n| call((0..n).map(named).collect()));
    assert_linear("dimensions", |n| {
        let dimensions: HashMap<_, _> = (0..n).map(|index| (format!("d{index}"), Value::from("x"))).collect();
        call(vec![metric::InstanceMsg { dimensions: dimensions.into_iter().collect(), ..named(0) }]);
    });
    assert_linear("types of a session", |n| {
        let of_type = |index: usize| {
            let type_url = "type.googleapis.com/metric.Type".to_owned();
            (format!("i{index}"), Any { type_url, value: Bytes::new() })
        };
        let inferred_types = (0..n).map(of_type).collect();
        let new = NewSession { adapter_config: probe("work of sessions"), inferred_types };
        runtime.block_on(host.create_session(new, &Caller::default())).unwrap();
    });
}
