//! A real Envoy routes gRPC by the routes of this server, and an update moves the traffic.

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../../adapters/tests/it/support/envoy.rs"]
mod envoy;

use std::{
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use envoy::{Envoy, is_there};
use test_debian as debian;
use tokio::net::TcpListener;
use tonic::transport::{Channel, server::TcpIncoming};
use tonic_health::{
    ServingStatus,
    pb::{HealthCheckRequest, health_check_response, health_client::HealthClient},
};

use crate::rds::Rds;

/// The server, whose `try` installs Envoy; `cargo test` of the workspace builds it.
fn binary() -> Command {
    Command::new(Path::new(env!("CARGO_BIN_EXE_rds")).with_file_name("mixer-adapter"))
}

/// Polls until there is a value, for as long as a slow machine may need.
fn eventually<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        #[expect(clippy::disallowed_methods, reason = "another process is polled")]
        thread::sleep(Duration::from_millis(20));
    }
}

/// A gRPC server of health, which answers with this; returns its port.
async fn upstream(status: ServingStatus) -> u16 {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter.set_service_status("", status).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let incoming = TcpIncoming::from(listener);
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    port
}

fn cluster(name: &str, port: &str) -> String {
    format!(
        "  - name: {name}\n    type: STATIC\n    connect_timeout: 1s\n    \
         typed_extension_protocol_options:\n      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n        \
         '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions\n        \
         explicit_http_config: {{http2_protocol_options: {{}}}}\n    \
         load_assignment: {{cluster_name: {name}, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, \
         port_value: {port}}}}}}}}}]}}]}}\n"
    )
}

fn bootstrap(api_type: &str, clusters: &str) -> String {
    format!(
        "node: {{id: real, cluster: test}}\nstatic_resources:\n  listeners:\n  - name: front\n    \
         address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}\n    filter_chains:\n    - filters:\n      - name: http\n        \
         typed_config:\n          \
         '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n          \
         stat_prefix: front\n          rds: {{route_config_name: local_route, config_source: {{resource_api_version: V3, api_config_source: \
         {{api_type: {api_type}, transport_api_version: V3, grpc_services: [{{envoy_grpc: {{cluster_name: rds}}}}]}}}}}}\n          \
         http_filters: [{{name: router, typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]\n  \
         clusters:\n{clusters}"
    )
}

async fn check(
    client: &mut HealthClient<Channel>,
) -> Result<health_check_response::ServingStatus, tonic::Status> {
    Ok(client.check(HealthCheckRequest::default()).await?.into_inner().status())
}

/// Moves traffic from one upstream to the other while requests flow, none of which may fail.
fn an_update_moves_grpc(api_type: &str) {
    use health_check_response::ServingStatus::{NotServing, Serving};
    if !is_there() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let one = runtime.block_on(upstream(ServingStatus::Serving)).to_string();
    let two = runtime.block_on(upstream(ServingStatus::NotServing)).to_string();
    let mut rds = Rds::start(env!("CARGO_BIN_EXE_rds"));
    rds.route_to("my-grpc-svc_cluster");
    let clusters = [
        cluster("rds", rds.address.rsplit(':').next().unwrap()),
        cluster("my-grpc-svc_cluster", &one),
        cluster("another", &two),
    ];
    let envoy = Envoy::start(&bootstrap(api_type, &clusters.concat()));
    let front = envoy.listener("front");
    // The listener warms: it accepts connections when it has its routes.
    let channel = Channel::from_shared(format!("http://{front}")).unwrap();
    let mut client = HealthClient::new(runtime.block_on(async { channel.connect_lazy() }));
    let first = eventually("the first answer", || runtime.block_on(check(&mut client)).ok());
    assert_eq!(first, Serving);

    rds.route_to("another");
    eventually("the traffic has moved", || match runtime.block_on(check(&mut client)) {
        Ok(NotServing) => Some(()),
        Ok(_) => None,
        Err(status) => panic!("a request has failed: {status}"),
    });
    assert_eq!(envoy.counter("http.front.rds.local_route.update_rejected"), 0);
}

#[test]
fn stream_routes_moves_grpc_without_a_failed_request() {
    an_update_moves_grpc("GRPC");
}

#[test]
fn delta_routes_moves_grpc_without_a_failed_request() {
    an_update_moves_grpc("DELTA_GRPC");
}
