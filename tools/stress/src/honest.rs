//! An honest client: a check every 10 ms, as a proxy would make them, whether the last one was answered or not.

use std::time::Duration;

use mixer_adapter_engine::proto::istio::mixer::v1::{CheckRequest, CheckResponse, CompressedAttributes};
use tokio::task::JoinSet;

use crate::{client::Client, server::Server};

/// The time between two calls.
const INTERVAL: Duration = Duration::from_millis(10);

/// Of this many calls one is made on a new connection.
const NEW: u64 = 4;

/// After this time a call counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The latencies of an honest client's calls in milliseconds, from the times at which they were due.
#[derive(Debug, Default)]
pub(crate) struct Honest {
    /// Of calls on a connection that was open before the attack, sorted.
    pub(crate) open: Latencies,
    /// Of calls on connections of their own, sorted.
    pub(crate) new: Latencies,
    errors: Vec<String>,
}

/// Latencies in milliseconds, sorted.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Vec<f64>);

impl Latencies {
    pub(crate) fn p99(&self) -> f64 {
        self.0.get(self.0.len() * 99 / 100).copied().unwrap_or_default()
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }
}

impl Honest {
    /// Calls until `attack` ends.
    pub(crate) async fn measure(server: &Server, attack: impl Future<Output = ()>) -> anyhow::Result<Self> {
        let (address, token) = (server.addresses().grpc, server.token());
        let open = Client::connect(address).await?.with_token(token);
        // The first call on a connection is not measured.
        check(&open).await?;
        let mut calls = JoinSet::new();
        let mut due = tokio::time::interval(INTERVAL);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
        tokio::pin!(attack);
        for number in 0_u64.. {
            let due = tokio::select! {
                () = &mut attack => break,
                due = due.tick() => due.into_std(),
            };
            let open = (number % NEW > 0).then(|| open.clone());
            calls.spawn(async move {
                let is_new = open.is_none();
                let call = async {
                    match open {
                        Some(open) => check(&open).await,
                        None => check(&Client::connect(address).await?.with_token(token)).await,
                    }
                };
                let outcome = tokio::time::timeout(PATIENCE, call).await;
                (is_new, due.elapsed(), outcome)
            });
        }
        let mut honest = Self::default();
        while let Some(call) = calls.join_next().await {
            let (is_new, latency, outcome) = call?;
            let latencies = if is_new { &mut honest.new } else { &mut honest.open };
            latencies.0.push(latency.as_secs_f64() * 1e3);
            honest.errors.extend(match outcome {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("{error:#}")),
                Err(_) => Some(format!("no answer within {} s", PATIENCE.as_secs())),
            });
        }
        honest.open.0.sort_unstable_by(f64::total_cmp);
        honest.new.0.sort_unstable_by(f64::total_cmp);
        Ok(honest)
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
    let answer: CheckResponse = client.call("/istio.mixer.v1.Mixer/Check", &denied()).await??;
    let status = answer.precondition.and_then(|precondition| precondition.status).unwrap_or_default();
    anyhow::ensure!(status.code != 0, "a request that is denied was allowed");
    Ok(())
}

/// A check of a request that the sample configuration denies.
pub(crate) fn denied() -> CheckRequest {
    let words = vec!["request.path".to_owned(), "/admin".to_owned()];
    let attributes = CompressedAttributes { words, strings: [(-1, -2)].into(), ..Default::default() };
    CheckRequest { attributes: Some(attributes), ..Default::default() }
}
