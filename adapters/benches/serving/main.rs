//! What serving costs: the adapters of this project against a bare tonic server, in one run on one machine.
//!
//! `cargo bench -p mixer-adapters --bench serving`, or with a filter: `-- list`. docs/performance.md explains the figures.
#![allow(clippy::print_stdout)]

mod bare;
#[path = "../load/client.rs"]
mod client;
mod growth;
#[path = "../load/measure.rs"]
mod measure;
mod requests;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::{net::SocketAddr, sync::Arc};

use mixer_adapter::service::{Server, ServerOptions, Workers};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use mixer_adapters::{list::List, memquota::MemQuota, noop::Noop};
use tokio_util::sync::CancellationToken;

use measure::{Subject, compare, heading};

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let wanted = |name: &str| name.contains(&filter);
    heading();
    let (ours, bare) = (Subject::start("ours", serve_ours), Subject::start("bare", bare::serve));
    for case in requests::cases() {
        if wanted(case.name) {
            case.prepare(ours.address);
            compare(case.name, case.path, case.frame(), &ours, &bare);
        }
    }
    if wanted("sessions") {
        growth::run();
    }
}

/// The server as `serve` runs it, on the runtime of the caller.
async fn serve_ours(address: tokio::sync::oneshot::Sender<SocketAddr>) {
    let runtime = tokio::runtime::Handle::current();
    let adapters = Adapters::builder(runtime.clone()).add::<Noop>().add::<List>().add::<MemQuota>();
    let adapters = adapters.build().expect("the adapters fit together");
    let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(runtime)));
    let server = Server::new(host, ServerOptions::default());
    let bound = server.bind(SocketAddr::from(([127, 0, 0, 1], 0)), None).await.expect("a free port");
    address
        .send(bound.grpc_address().ok().and_then(|bound| bound.tcp()).expect("bound"))
        .expect("somebody waits for it");
    bound.run(&Workers::here(), CancellationToken::new()).await.expect("the server runs");
}
