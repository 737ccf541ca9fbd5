//! Both ports on Unix sockets.

use std::{path::Path, sync::Arc};

use mixer_adapter::{
    prost::Message as _,
    service::{ListenAddress, Server, ServerError, ServerOptions, Workers},
    template::{ListEntry, Template as _},
};
use mixer_adapter_config::proto::istio::policy::v1beta1::Connection;
use mixer_adapter_engine::remote::{Options, RemoteAdapter};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use test_adapters::Probe;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    runtime::Handle,
};
use tokio_util::sync::CancellationToken;

use super::{
    requests::{entry, probe},
    support::any,
};

fn server() -> Server {
    let adapters = Adapters::builder(Handle::current()).add::<Probe>().build().unwrap();
    let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(Handle::current())));
    Server::new(host, ServerOptions::default())
}

fn unix(directory: &Path, name: &str) -> ListenAddress {
    ListenAddress::Unix(directory.join(name))
}

async fn admin(directory: &Path, path: &str, host: &str) -> String {
    let mut stream = UnixStream::connect(directory.join("admin.sock")).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn both_ports_can_be_unix_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let bound =
        server().bind(unix(directory, "grpc.sock"), Some(unix(directory, "admin.sock"))).await.unwrap();
    assert_eq!(bound.grpc_address().unwrap(), unix(directory, "grpc.sock"));
    assert_eq!(bound.admin_address().unwrap(), Some(unix(directory, "admin.sock")));
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { bound.run(&Workers::here(), stop).await }
    });

    for address in ["unix:", "unix://"].map(|scheme| format!("{scheme}{}/grpc.sock", directory.display())) {
        let connection = Connection { address, ..Connection::default() };
        let remote = RemoteAdapter::new(&connection, &Options::default(), &Handle::current()).unwrap();
        let message = entry(any(&probe("unix")), "allow").encode_to_vec();
        remote.call(&ListEntry::METHOD.parse().unwrap(), message.into(), None).await.unwrap();
    }
    let health = admin(directory, "/healthz", "localhost").await;
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");

    let taken = server().bind(unix(directory, "grpc.sock"), None).await.unwrap_err();
    let ServerError::Listen { address, source } = taken else { panic!("{taken}") };
    assert_eq!(address, unix(directory, "grpc.sock"));
    assert_eq!(source.to_string(), "another process listens on it");

    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(std::fs::read_dir(directory).unwrap().count(), 0, "both files are removed");
}
