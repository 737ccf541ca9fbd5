//! Clients that send requests while something else changes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use http::uri::PathAndQuery;
use mixer_adapter_engine::proto::istio::mixer::v1::{CheckRequest, CheckResponse, CompressedAttributes};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Request, client::Grpc, transport::Endpoint};
use tonic_prost::ProstCodec;

use super::{
    Server, eventually_within,
    http::{HttpConnection, HttpResponse},
};

/// Sends requests over a few connections until it is dropped or stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Starts clients whose responses are checked: a description of what is wrong ends its client.
    pub(crate) fn start(
        front: &str,
        paths: &'static [&'static str],
        check: fn(&str, &HttpResponse) -> Result<(), String>,
    ) -> Self {
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let clients = (0..4).map(|_| {
            let (front, stop, sent) = (front.to_owned(), stop.clone(), sent.clone());
            std::thread::spawn(move || {
                let mut connection = HttpConnection::open(&front);
                let mut wrong = Vec::new();
                for path in paths.iter().cycle() {
                    if stop.load(Relaxed) || !wrong.is_empty() {
                        break;
                    }
                    wrong.extend(check(path, &connection.get(path, &[])).err());
                    sent.fetch_add(1, Relaxed);
                }
                wrong
            })
        });
        let clients = clients.collect();
        Self { stop, sent, clients }
    }

    /// Waits until this many further requests are answered.
    pub(crate) fn until_sent(&self, requests: u64) {
        let end = self.sent.load(Relaxed) + requests;
        eventually_within(Duration::from_secs(600), "the requests are answered", || {
            (self.sent.load(Relaxed) >= end || self.clients.iter().any(JoinHandle::is_finished)).then_some(())
        });
    }

    /// Ends the clients, and returns the number of requests.
    pub(crate) fn finish(self) -> u64 {
        self.stop.store(true, Relaxed);
        let wrong: Vec<String> = self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        self.sent.load(Relaxed)
    }
}

/// Sends checks of the Mixer API at a rate until it is finished or dropped. What they answer is not looked at.
pub(crate) struct CheckLoad {
    stop: CancellationToken,
    sender: Option<JoinHandle<u64>>,
}

/// The number of checks without an answer, beyond which no further one is sent.
const MAX_CHECKS: usize = 256;

impl CheckLoad {
    pub(crate) fn start(server: &Server, per_second: u64, path: fn(u64) -> String) -> Self {
        let stop = CancellationToken::new();
        let (stopped, address) = (stop.clone(), format!("http://{}", server.grpc));
        let sender = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(send_checks(&address, per_second, path, stopped))
        });
        Self { stop, sender: Some(sender) }
    }

    /// Ends the load, and returns the number of checks.
    pub(crate) fn finish(mut self) -> u64 {
        self.stop.cancel();
        self.sender.take().unwrap().join().unwrap()
    }
}

impl Drop for CheckLoad {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn send_checks(
    address: &str,
    per_second: u64,
    path: fn(u64) -> String,
    stop: CancellationToken,
) -> u64 {
    const STEP: Duration = Duration::from_millis(10);
    let channel = Endpoint::from_shared(address.to_owned()).unwrap().connect().await.unwrap();
    let free = Arc::new(Semaphore::new(MAX_CHECKS));
    let mut steps = tokio::time::interval(STEP);
    let mut sent = 0;
    while stop.run_until_cancelled(steps.tick()).await.is_some() {
        for _ in 0..per_second / 100 {
            let Ok(permit) = free.clone().try_acquire_owned() else { break };
            let attributes = CompressedAttributes {
                words: vec!["request.path".to_owned(), path(sent)],
                strings: [(-1, -2)].into(),
                ..CompressedAttributes::default()
            };
            let request = CheckRequest { attributes: Some(attributes), ..CheckRequest::default() };
            let mut client = Grpc::new(channel.clone());
            tokio::spawn(async move {
                if client.ready().await.is_ok() {
                    let method = PathAndQuery::from_static("/istio.mixer.v1.Mixer/Check");
                    let codec = ProstCodec::<CheckRequest, CheckResponse>::default();
                    let _ = client.unary(Request::new(request), method, codec).await;
                }
                drop(permit);
            });
            sent += 1;
        }
    }
    sent
}
