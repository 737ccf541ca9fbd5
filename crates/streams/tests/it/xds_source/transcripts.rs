//! What was recorded of Envoy 1.40 (docs/behaviour/xds.md#envoy-as-a-client), by its shape: types, names, nonces and who says what
//! when.

use mixer_adapter_streams::{
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    stream::source::Meaning,
};

use super::{messages::*, world::*};

fn filled(mut set: impl FnMut(&str, &str)) {
    set(CLUSTER, "upstream_xds@1");
    set(LISTENER, "front_http@1");
    set(ROUTE, "front_routes@1");
}

#[test]
fn the_state_of_the_world_over_ads() {
    let mut server = Sotw::new();
    filled(|type_url, texts| server.set(type_url, texts));
    server.request(DiscoveryRequest { node: node("envoy"), ..ask(CLUSTER, "") });
    let clusters = server.pushes(CLUSTER, "upstream_xds@1");
    server.ask(LISTENER, "");
    let listeners = server.pushes(LISTENER, "front_http@1");
    server.ack(&clusters, "");
    // The route is asked for before its listener is accepted: that warms.
    server.ask(ROUTE, "front_routes");
    let routes = server.pushes(ROUTE, "front_routes@1");
    server.ack(&listeners, "");
    server.ack(&routes, "front_routes");
    let nonces = [&clusters, &listeners, &routes].map(|push| &*push.nonce);
    assert_eq!(nonces, ["1", "2", "3"]);
    server.rests();

    server.set(ROUTE, "front_routes@2");
    let good = server.pushes_well(ROUTE, "front_routes@2", "front_routes");
    server.set(ROUTE, "front_routes@666");
    let bad = server.pushes(ROUTE, "front_routes@666");
    let mut refusal = nack(&bad, &good.version_info, "front_routes");
    let reason = "Only a single wildcard domain is permitted in route front_routes";
    refusal.error_detail = Some(error(reason));
    assert_eq!(server.request(refusal), Meaning::Refused(error(reason)));
    server.rests();
    server.set(ROUTE, "front_routes@3");
    let last = server.pushes_well(ROUTE, "front_routes@3", "front_routes");
    assert_eq!([&*good.nonce, &*bad.nonce, &*last.nonce], ["4", "5", "6"]);

    server.reconnect();
    let again = |version: &str, request| DiscoveryRequest { version_info: version.to_owned(), ..request };
    let first = DiscoveryRequest { node: node("envoy"), ..ask(CLUSTER, "") };
    server.request(again(&clusters.version_info, first));
    server.request(again(&listeners.version_info, ask(LISTENER, "")));
    server.request(again(&last.version_info, ask(ROUTE, "front_routes")));
    server.pushes_well(CLUSTER, "upstream_xds@1", "");
    server.pushes_well(LISTENER, "front_http@1", "");
    server.pushes_well(ROUTE, "front_routes@3", "front_routes");
    server.rests();
    assert_eq!(server.broken(), [], "Envoy keeps the rules of clients");
}

#[test]
fn changes_over_ads() {
    let mut server = Delta::new();
    filled(|type_url, texts| server.set(type_url, texts));
    server.request(DeltaDiscoveryRequest { node: node("envoy"), ..subscribe(CLUSTER, "", "") });
    let clusters = server.pushes(CLUSTER, "upstream_xds@1");
    server.subscribe(LISTENER, "", "");
    let listeners = server.pushes(LISTENER, "front_http@1");
    assert_eq!(server.request(accepted(&clusters)), Meaning::Accepted);
    server.subscribe(ROUTE, "front_routes", "");
    let routes = server.pushes(ROUTE, "front_routes@1");
    assert_eq!(server.request(accepted(&listeners)), Meaning::Accepted);
    assert_eq!(server.request(accepted(&routes)), Meaning::Accepted);
    server.rests();
    server.set(ROUTE, "front_routes@2");
    server.pushes_well(ROUTE, "front_routes@2");
    server.set(ROUTE, "front_routes@666");
    let bad = server.pushes(ROUTE, "front_routes@666");
    assert!(matches!(server.request(refused(&bad)), Meaning::Refused(_)));
    server.rests();
    server.set(ROUTE, "front_routes@3");
    let last = server.pushes_well(ROUTE, "front_routes@3");

    server.reconnect();
    for (push, names, answer) in
        [(&clusters, "", Some("")), (&listeners, "", Some("")), (&last, "front_routes", None)]
    {
        let versions = push.resources.iter().map(|known| (known.name.clone(), known.version.clone()));
        server.request(DeltaDiscoveryRequest {
            node: node("envoy"),
            initial_resource_versions: versions.collect(),
            ..subscribe(&push.type_url, names, "")
        });
        match answer {
            Some(changes) => _ = server.pushes_well(&push.type_url, changes),
            None => server.rests(),
        }
    }
    server.set(ROUTE, "front_routes@4");
    server.pushes_well(ROUTE, "front_routes@4");
    assert_eq!(server.broken(), [], "Envoy keeps the rules of clients");
}
