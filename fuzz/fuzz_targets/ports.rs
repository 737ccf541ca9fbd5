#![no_main]

use std::{
    net::SocketAddr,
    sync::{Arc, LazyLock},
};

use libfuzzer_sys::fuzz_target;
use mixer_adapter::service::{Server, ServerOptions, Workers};
use mixer_adapter_denier::Denier;
use mixer_adapter_engine::{Mixer, Snapshot};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::Runtime,
};
use tokio_util::sync::CancellationToken;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
});

/// The gRPC port and the admin port of a server.
static PORTS: LazyLock<[SocketAddr; 2]> = LazyLock::new(|| {
    RUNTIME.block_on(async {
        let runtime = RUNTIME.handle().clone();
        let adapters = Adapters::builder(runtime.clone()).add::<Denier>().build().unwrap();
        let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(runtime)));
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let mixer = Arc::new(Mixer::new());
        mixer.replace(Snapshot::empty());
        let server = Server::new(host, ServerOptions::default()).mixer(mixer);
        let server = server.bind(local, Some(local.into())).await.unwrap();
        let ports = [server.grpc_address().unwrap(), server.admin_address().unwrap().unwrap()];
        let ports = ports.map(|port| port.tcp().unwrap());
        tokio::spawn(async move { server.run(&Workers::here(), CancellationToken::new()).await });
        ports
    })
});

// What a connection begins with: the preface and frames of HTTP/2, or a request to the admin port. The server ends it, and
// serves the next one.
fuzz_target!(|bytes: &[u8]| {
    let ports = &*PORTS;
    RUNTIME.block_on(async {
        for port in ports {
            let mut stream = TcpStream::connect(port).await.unwrap();
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
});
