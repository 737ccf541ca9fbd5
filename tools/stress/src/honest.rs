//! An honest client: a few calls at a time, as a proxy would make them.

use std::time::{Duration, Instant};

use mixer_adapter_engine::proto::istio::mixer::v1::{CheckRequest, CheckResponse, CompressedAttributes};

use crate::{client::Client, server::Server};

/// The time between two calls.
const PAUSE: Duration = Duration::from_millis(10);

/// After this time a call counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The latencies of an honest client's calls.
#[derive(Debug)]
pub(crate) struct Honest {
    /// In milliseconds, sorted.
    latencies: Vec<f64>,
    errors: Vec<String>,
}

impl Honest {
    /// Calls until `attack` ends: on a connection that was open before it, and on a new connection each time.
    pub(crate) async fn measure(server: &Server, attack: impl Future<Output = ()>) -> anyhow::Result<Self> {
        let address = server.addresses().grpc;
        let mut honest = Self { latencies: Vec::new(), errors: Vec::new() };
        let open = Client::connect(address).await?;
        tokio::pin!(attack);
        loop {
            let calls = async {
                honest.call(async { check(&open).await }).await;
                honest.call(async { check(&Client::connect(address).await?).await }).await;
                tokio::time::sleep(PAUSE).await;
            };
            tokio::select! {
                () = &mut attack => break,
                () = calls => {}
            }
        }
        honest.latencies.sort_unstable_by(f64::total_cmp);
        Ok(honest)
    }

    /// Makes one call.
    async fn call(&mut self, call: impl Future<Output = anyhow::Result<()>>) {
        let start = Instant::now();
        let outcome = tokio::time::timeout(PATIENCE, call).await;
        self.latencies.push(start.elapsed().as_secs_f64() * 1e3);
        let error = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        self.errors.push(error);
    }

    /// Returns the 99th percentile in milliseconds.
    pub(crate) fn p99(&self) -> f64 {
        self.latencies.get(self.latencies.len() * 99 / 100).copied().unwrap_or_default()
    }

    pub(crate) fn failed(&self) -> usize {
        self.errors.len()
    }

    pub(crate) fn first_error(&self) -> &str {
        self.errors.first().map_or("", String::as_str)
    }
}

/// Checks a request that the sample configuration denies.
async fn check(client: &Client) -> anyhow::Result<()> {
    let words = vec!["request.path".to_owned(), "/admin".to_owned()];
    let attributes = CompressedAttributes { words, strings: [(-1, -2)].into(), ..Default::default() };
    let request = CheckRequest { attributes: Some(attributes), ..Default::default() };
    let answer: CheckResponse = client.call("/istio.mixer.v1.Mixer/Check", &request).await??;
    let status = answer.precondition.and_then(|precondition| precondition.status).unwrap_or_default();
    anyhow::ensure!(status.code != 0, "a request that is denied was allowed");
    Ok(())
}
