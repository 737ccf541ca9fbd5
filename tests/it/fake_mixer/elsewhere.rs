//! Adapters that run elsewhere: on a server of ours, over TCP.

use std::sync::Arc;

use mixer_adapter::{
    Code,
    service::{Server, ServerOptions, Workers},
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use test_adapters::{Probe, ledger};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{obedient, order};

async fn serve() -> (String, CancellationToken) {
    let adapters = Adapters::builder(Handle::current()).add::<Probe>().build().unwrap();
    let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(Handle::current())));
    let server = Server::new(host, ServerOptions::default());
    let bound = server.bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0)), None).await.unwrap();
    let address = bound.grpc_address().unwrap().to_string();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move { bound.run(&Workers::here(), stopped).await });
    (address, stop)
}

#[tokio::test]
async fn the_adapter_under_test_may_run_elsewhere() {
    let (address, stop) = serve().await;
    let mixer = obedient("far").at(&address).start().await.unwrap();
    mixer
        .check(order("deny"))
        .await
        .expect_denied(Code::PermissionDenied, "denied on request")
        .expect_calls(1);
    let sessions = obedient("far-session").sessions().at(&address).start().await.unwrap();
    assert_eq!(ledger("far-session").opened(), 1);
    sessions.check(order("deny")).await.expect_denied(Code::PermissionDenied, "denied on request");
    sessions.close().await;
    stop.cancel();
}

#[tokio::test]
async fn an_adapter_that_is_not_there_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mixer = obedient("gone").at(address).start().await.unwrap();
    mixer.check(order("allow")).await.expect_error(Code::Internal, "UNAVAILABLE");
}
