//! Routes over REST, in both versions of Envoy's API, of both programs.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::rds::Rds;

/// Posts a request, which is answered when there are routes.
fn post(address: &str, path: &str) -> Value {
    let body = json!({ "node": { "id": "edge" }, "resource_names": ["local_route"] }).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: rds\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let start = answer.find('{').unwrap_or_else(|| panic!("{answer}"));
    let end = answer.rfind('}').unwrap();
    serde_json::from_str(&answer[start..=end]).unwrap()
}

#[test]
fn fetch_routes_over_rest_answers_in_both_versions() {
    for program in [env!("CARGO_BIN_EXE_rds"), env!("CARGO_BIN_EXE_typed")] {
        let mut rds = Rds::start(program);
        rds.route_to("shop");
        for (path, message) in [
            ("/v3/discovery:routes", "envoy.config.route.v3.RouteConfiguration"),
            ("/v2/discovery:routes", "envoy.api.v2.RouteConfiguration"),
        ] {
            let mut answer = post(&rds.address, path);
            if answer["resources"] == json!([]) {
                // It was asked before the first line was read: what follows is answered when there is something new.
                answer = post(&rds.address, path);
            }
            let routes = json!([{ "match": { "prefix": "/" }, "route": { "cluster": "shop" } }]);
            let hosts = json!([{ "name": "local_service", "domains": ["*"], "routes": routes }]);
            let expected = json!([{ "@type": format!("type.googleapis.com/{message}"), "name": "local_route", "virtualHosts": hosts }]);
            assert_eq!(answer["resources"], expected, "{program} {path}");
        }
    }
}
