//! Entries of access logs, streamed over one connection.

use std::time::{Duration, Instant};

use mixer_adapter::tonic::{client::Grpc, transport::Endpoint};
use mixer_adapter_envoy::proto::envoy::service::accesslog::v3::{
    StreamAccessLogsMessage, StreamAccessLogsResponse,
};
use tokio::runtime::Builder;
use tonic_prost::ProstCodec;

use super::{
    measure::{Subject, median},
    requests,
};

const MESSAGES: usize = 400;
const ENTRIES: usize = 50;
const ROUNDS: usize = 5;

pub(super) fn compare(ours: &Subject, bare: &Subject) {
    measure(ours);
    measure(bare);
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (measure(ours), measure(bare))).collect();
    let median_of = |of: &dyn Fn(&(Measured, Measured)) -> f64| median(rounds.iter().map(of).collect());
    println!(
        "{:<34} {:>9.0} {:>9.0} {:>7.2} {:>9.2} {:>9.2} {:>7.2}",
        "log entries, one logentry each",
        median_of(&|pair| pair.0.rate),
        median_of(&|pair| pair.1.rate),
        median_of(&|pair| pair.0.rate / pair.1.rate),
        median_of(&|pair| pair.0.cpu),
        median_of(&|pair| pair.1.cpu),
        median_of(&|pair| pair.0.cpu / pair.1.cpu),
    );
}

struct Measured {
    /// Entries per second.
    rate: f64,
    /// Microseconds of CPU for each entry.
    cpu: f64,
}

/// Streams entries, and waits until the server has dealt with all of them. They fit into its queues, so that none is lost.
fn measure(subject: &Subject) -> Measured {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let messages = vec![requests::log_message(ENTRIES); MESSAGES];
    let start = Instant::now();
    let before = subject.cpu();
    runtime.block_on(async {
        let endpoint: Endpoint = format!("http://{}", subject.address).parse().expect("an address");
        let mut client = Grpc::new(endpoint.connect().await.expect("the server listens"));
        client.ready().await.expect("the server listens");
        let path = http::uri::PathAndQuery::from_static(
            "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs",
        );
        let codec = ProstCodec::<StreamAccessLogsMessage, StreamAccessLogsResponse>::default();
        let request = mixer_adapter::tonic::Request::new(futures_util::stream::iter(messages));
        client.client_streaming(request, path, codec).await.expect("the end of the stream");
    });
    let (cpu, idle_since) = runtime.block_on(until_idle(subject));
    let entries = (MESSAGES * ENTRIES) as f64;
    Measured {
        rate: entries / (idle_since - start).as_secs_f64(),
        cpu: (cpu - before) as f64 / entries / 1_000.0,
    }
}

/// Waits until the server uses no more CPU. Returns how much it has used, and since when it uses none.
async fn until_idle(subject: &Subject) -> (u64, Instant) {
    let (mut cpu, mut since) = (subject.cpu(), Instant::now());
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        match subject.cpu() {
            now if now > cpu => (cpu, since) = (now, Instant::now()),
            _ if since.elapsed() > Duration::from_millis(100) => return (cpu, since),
            _ => {}
        }
    }
}
