//! Routes over REST, in both versions of Envoy's API, of both programs.
#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

/// A program whose routes lead to the cluster `shop`; killed when this is dropped.
struct Rds {
    child: Child,
    address: String,
}

impl Rds {
    fn start(program: &str) -> Self {
        let mut command = Command::new(program);
        command.arg("127.0.0.1:0").stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once(' ').unwrap().1.to_owned();
        let mut clusters = child.stdin.take().unwrap();
        writeln!(clusters, "shop").unwrap();
        child.stdin = Some(clusters);
        Self { child, address }
    }

    /// Posts a request, which is answered when there are routes.
    fn post(&self, path: &str) -> Value {
        let body = json!({ "node": { "id": "edge" }, "resource_names": ["local_route"] }).to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
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
}

impl Drop for Rds {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn fetch_routes_over_rest_answers_in_both_versions() {
    for program in [env!("CARGO_BIN_EXE_rds"), env!("CARGO_BIN_EXE_typed")] {
        let rds = Rds::start(program);
        for (path, message) in [
            ("/v3/discovery:routes", "envoy.config.route.v3.RouteConfiguration"),
            ("/v2/discovery:routes", "envoy.api.v2.RouteConfiguration"),
        ] {
            let mut answer = rds.post(path);
            if answer["resources"] == json!([]) {
                // It was asked before the first line was read: what follows is answered when there is something new.
                answer = rds.post(path);
            }
            let routes = json!([{ "match": { "prefix": "/" }, "route": { "cluster": "shop" } }]);
            let hosts = json!([{ "name": "local_service", "domains": ["*"], "routes": routes }]);
            let expected = json!([{ "@type": format!("type.googleapis.com/{message}"), "name": "local_route", "virtualHosts": hosts }]);
            assert_eq!(answer["resources"], expected, "{program} {path}");
        }
    }
}
