//! The latency that a check adds to a request through the real Envoy.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Instant,
};

use super::{
    measure::Subject,
    support::envoy::{Envoy, is_there},
};

const REQUESTS: usize = 2_000;
const ROUNDS: usize = 3;

pub(super) fn compare(subjects: &[(&str, &Subject)]) {
    if !is_there() {
        return;
    }
    println!(
        "\nlatency of {REQUESTS} requests through Envoy, one after the other, µs: median of {ROUNDS} rounds in turn\n"
    );
    println!("{:<20} {:>8} {:>8} {:>12} {:>12}", "", "p50", "p99", "added p50", "added p99");
    let plain = ("no filter", Envoy::start(&bootstrap(None)));
    let checked =
        subjects.iter().map(|(name, subject)| (*name, Envoy::start(&bootstrap(Some(subject.address)))));
    let envoys: Vec<(&str, Envoy)> = std::iter::once(plain).chain(checked).collect();
    let fronts: Vec<String> = envoys.iter().map(|(_, envoy)| envoy.listener("front")).collect();
    let mut measured: Vec<Vec<(i64, i64)>> = vec![Vec::new(); envoys.len()];
    for front in &fronts {
        measure(front);
    }
    for _ in 0..ROUNDS {
        for (rounds, front) in measured.iter_mut().zip(&fronts) {
            rounds.push(measure(front));
        }
    }
    let medians = measured.into_iter().map(|mut rounds| {
        rounds.sort_unstable();
        rounds[ROUNDS / 2]
    });
    let medians: Vec<(i64, i64)> = medians.collect();
    for ((name, _), (p50, p99)) in envoys.iter().zip(&medians) {
        let (added_p50, added_p99) = (p50 - medians[0].0, p99 - medians[0].1);
        println!("{name:<20} {p50:>8} {p99:>8} {added_p50:>12} {added_p99:>12}");
    }
}

/// The median and the 99th percentile in microseconds.
fn measure(front: &str) -> (i64, i64) {
    let mut stream = BufReader::new(TcpStream::connect(front).expect("Envoy listens"));
    stream.get_ref().set_nodelay(true).expect("a TCP stream");
    let mut latencies: Vec<i64> = (0..REQUESTS)
        .map(|_| {
            let start = Instant::now();
            request(&mut stream);
            i64::try_from(start.elapsed().as_micros()).unwrap_or(i64::MAX)
        })
        .collect();
    latencies.sort_unstable();
    (latencies[REQUESTS / 2], latencies[REQUESTS * 99 / 100])
}

fn request(stream: &mut BufReader<TcpStream>) {
    stream
        .get_mut()
        .write_all(b"GET /catalogue/17?sort=price HTTP/1.1\r\nhost: shop.example.com\r\naccept: application/json\r\n\r\n")
        .expect("Envoy reads");
    let (mut line, mut length, mut is_first) = (String::new(), 0, true);
    loop {
        line.clear();
        stream.read_line(&mut line).expect("Envoy answers");
        if is_first {
            assert_eq!(line.split(' ').nth(1), Some("200"), "{line}");
            is_first = false;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().expect("a number");
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("the whole answer");
}

/// An Envoy that answers by itself, after a check if there is a server.
fn bootstrap(server: Option<SocketAddr>) -> String {
    let (filter, cluster) = match server {
        None => (String::new(), String::new()),
        Some(server) => (
            "{name: check, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz, \
             transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: server}, timeout: 5s}}}, "
                .to_owned(),
            format!(
                "  clusters:\n  - name: server\n    type: STATIC\n    connect_timeout: 1s\n    \
                 typed_extension_protocol_options:\n      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n        \
                 '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions\n        \
                 explicit_http_config: {{http2_protocol_options: {{}}}}\n    \
                 load_assignment: {{cluster_name: server, endpoints: [{{lb_endpoints: [{{endpoint: {{address: \
                 {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}}}}}]}}]}}\n",
                server.port()
            ),
        ),
    };
    format!(
        "static_resources:\n  listeners:\n  - name: front\n    \
         address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}\n    filter_chains:\n    - filters:\n      - name: http\n        \
         typed_config:\n          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n          \
         stat_prefix: front\n          \
         route_config: {{virtual_hosts: [{{name: all, domains: ['*'], routes: [{{match: {{prefix: /}}, direct_response: {{status: 200, body: {{inline_string: hello}}}}}}]}}]}}\n          \
         http_filters: [{filter}{{name: router, typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]\n{cluster}"
    )
}
