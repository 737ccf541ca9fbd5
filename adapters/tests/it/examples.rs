//! The example in each adapter's folder is one that the adapter takes.

use std::path::Path;

use mixer_adapter::{
    Adapter,
    adapter::{Config, Faults, Settings},
};
use mixer_adapter_core::framework::json::read_params;
use mixer_adapters::{
    authzen::AuthZen, denier::Denier, extauthz::ExtAuthz, list::List, noop::Noop, otlp::Otlp,
    prometheus::Prometheus,
};
use serde_json::Value as Json;

/// Checks the handler resource against the adapter's configuration, and the references of the rule.
fn taken<A: Adapter<Config: Settings<Params = P>>, P: Config>(folder: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("handler.yaml");
    let resources: Vec<Json> = serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
    let of = |kind: &str| resources.iter().filter(|resource| resource["kind"] == kind).collect::<Vec<_>>();
    let names = |resources: &[&Json]| {
        resources.iter().map(|resource| resource["metadata"]["name"].clone()).collect::<Vec<_>>()
    };

    let (handlers, instances, rules) = (of("handler"), of("instance"), of("rule"));
    assert_eq!((handlers.len(), rules.len()), (1, 1), "{folder}");
    let spec = &handlers[0]["spec"];
    assert_eq!(spec["adapter"], A::NAME);
    assert!(spec["connection"]["address"].is_string(), "a real Mixer dies of a handler without a connection");
    let pool = prost_reflect::DescriptorPool::decode(P::DESCRIPTOR).unwrap();
    let message = pool.get_message_by_name(P::NAME).unwrap();
    let params = read_params(&message, spec["params"].clone()).unwrap();
    Faults::parse::<A::Config>(P::decode(params).unwrap()).map(drop).unwrap();

    for instance in &instances {
        assert!(instance["spec"]["params"].is_object(), "a real Mixer dies of an instance without params");
    }
    let action = &rules[0]["spec"]["actions"][0];
    assert_eq!(action["handler"], names(&handlers)[0]);
    assert_eq!(action["instances"], Json::Array(names(&instances)));
}

#[test]
fn every_example_is_taken_by_its_adapter() {
    taken::<AuthZen, _>("authzen");
    taken::<Denier, _>("denier");
    taken::<ExtAuthz, _>("extauthz");
    taken::<List, _>("list");
    taken::<Noop, _>("noop");
    taken::<Otlp, _>("otlp");
    taken::<Prometheus, _>("prometheus");
}
