//! A cluster, its endpoints and the route to it arrive in one file.

use super::support::{
    envoy::{Envoy, get, is_there},
    eventually,
    http::HttpResponse,
    load::Load,
};
use super::{ConfigSource, routes, source, upstream};

/// The number of changes under load; 200 with `ENVOY_REQUESTS=10000` (docs/testing.md).
fn changes() -> u64 {
    std::env::var("ENVOY_REQUESTS").map_or(40, |requests| requests.parse::<u64>().unwrap() / REQUESTS)
}

/// The number of requests for each change.
const REQUESTS: u64 = 50;

/// The answer of the routes themselves.
fn answer(number: u64) -> String {
    format!("change-{number}")
}

/// Listener, cluster, endpoints and route; all but the listener are new with each `number`.
fn resources(form: ConfigSource, number: u64, upstream: &str) -> String {
    let name = format!("upstream-{number}");
    let clusters = form.clusters(upstream).replace("name: upstream", &format!("name: {name}"));
    let routes = routes(&[&answer(number)]).replace("cluster: upstream", &format!("cluster: {name}"));
    [form.listener(), clusters, routes].join("---\n")
}

fn is_answered_by_the_upstream(path: &str, response: &HttpResponse) -> Result<(), String> {
    match (response.status, &*response.body) {
        (200, "upstream") => Ok(()),
        _ => Err(format!("{path}: {response:?}")),
    }
}

fn no_request_fails(api_type: &'static str) {
    if !is_there() {
        return;
    }
    let form = ConfigSource { api_type, ads: true };
    let upstream = upstream();
    let directory = tempfile::tempdir().unwrap();
    let change = |number: u64| {
        let new = directory.path().join(".new");
        std::fs::write(&new, resources(form, number, &upstream)).unwrap();
        std::fs::rename(new, directory.path().join("resources.yaml")).unwrap();
    };
    change(0);
    let served = source(directory.path(), "127.0.0.1:0");
    let envoy = Envoy::start(&form.bootstrap(&served.grpc));
    let front = envoy.listener("front");
    eventually("the first cluster is used", || get(&front, "/up").filter(|answer| answer == "upstream"));
    let load = Load::start(&front, &["/up"], is_answered_by_the_upstream);
    for number in 1..=changes() {
        change(number);
        eventually("the routes are used", || get(&front, "/").filter(|body| *body == answer(number)));
        load.until_sent(REQUESTS);
    }
    assert!(load.finish() >= changes() * REQUESTS);
    let metric = "mixer_adapter_xds_pushes_out_of_order_total 0";
    assert!(served.get("/metrics").contains(metric), "nothing was sent before its cluster was answered");
}

#[test]
fn no_request_fails_while_whole_sets_bring_new_clusters() {
    no_request_fails("GRPC");
}

#[test]
fn no_request_fails_while_changes_bring_new_clusters() {
    no_request_fails("DELTA_GRPC");
}
