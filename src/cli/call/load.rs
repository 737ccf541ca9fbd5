//! Repeated calls, and their rate and latency.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tonic::Status;

use super::{answer::Answer, request::PreparedCall};
use crate::cli::{
    progress::{INTERVAL, Progress},
    rpc_client::RpcClient,
};
use mixer_adapter_core::{
    framework::{dynamic::HandleRequest, status::status_name},
    proto::Any,
};

/// Calls that differ only in their dedup_id.
#[derive(Clone)]
pub(super) struct Calls {
    prepared: Arc<PreparedCall>,
    request: HandleRequest,
    dedup_id: DedupId,
    timeout: Option<Duration>,
}

#[derive(Clone)]
enum DedupId {
    Same(String),
    /// Counts up from a random number, as in Mixer (docs/behaviour/adapter-calls.md#deduplication-ids).
    From(u64),
}

/// The result of a load test.
pub(super) struct Load {
    pub(super) took: Duration,
    pub(super) concurrency: u32,
    pub(super) connections: usize,
    /// The latency of each call, sorted.
    pub(super) micros: Vec<u32>,
    pub(super) outcomes: BTreeMap<Outcome, Count>,
}

/// The outcome of calls.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Answer(Cow<'static, str>),
    Error(i32),
}

/// The calls with one outcome.
#[derive(Clone, Default)]
pub(super) struct Count {
    pub(super) calls: u32,
    /// The message of the first gRPC error with this code.
    pub(super) message: String,
}

impl Calls {
    pub(super) fn new(
        prepared: Arc<PreparedCall>,
        adapter_config: Option<&Any>,
        dedup_id: Option<String>,
        timeout: Option<Duration>,
    ) -> Self {
        let template = &prepared.template;
        let instances = prepared.instances.clone();
        let request = template.request(instances, adapter_config, prepared.quota_request.as_ref());
        // The keys of std's hash maps are random, which is enough for an id.
        let random = || RandomState::new().build_hasher().finish() >> 1;
        Self {
            request,
            dedup_id: dedup_id.map_or_else(|| DedupId::From(random()), DedupId::Same),
            timeout,
            prepared,
        }
    }

    pub(super) async fn call(&self, client: &RpcClient, index: u32) -> Result<Answer, Status> {
        let request = match &self.dedup_id {
            DedupId::Same(id) => self.request.with_dedup_id(id),
            DedupId::From(start) => self.request.with_dedup_id(&(start + u64::from(index)).to_string()),
        };
        let answer = client.call(&self.prepared.method, request, self.timeout).await?;
        Answer::decode(&self.prepared, answer)
    }

    /// Makes `count` calls, at most `concurrency` at the same time, on these connections in turn.
    pub(super) async fn run(self, clients: Vec<RpcClient>, count: u32, concurrency: u32) -> Load {
        let (start, next) = (Instant::now(), Arc::new(AtomicU32::new(0)));
        let connections = clients.len();
        let mut callers = tokio::task::JoinSet::new();
        for (_, client) in (0..concurrency.min(count)).zip(clients.into_iter().cycle()) {
            callers.spawn(self.clone().call_repeatedly(client, next.clone(), count));
        }
        let mut load = Load {
            took: Duration::ZERO,
            concurrency,
            connections,
            micros: Vec::new(),
            outcomes: BTreeMap::new(),
        };
        let mut progress = Progress::new("calls", Some(count as usize));
        let mut ticks = tokio::time::interval(INTERVAL);
        let mut results = pin!(callers.join_all());
        let results = loop {
            tokio::select! {
                results = &mut results => break results,
                _ = ticks.tick(), if progress.is_visible() => progress.at(next.load(Relaxed) as usize),
            }
        };
        drop(progress);
        for (micros, outcomes) in results {
            load.micros.extend(micros);
            for (outcome, count) in outcomes {
                let known = load
                    .outcomes
                    .entry(outcome)
                    .or_insert_with(|| Count { calls: 0, message: count.message });
                known.calls += count.calls;
            }
        }
        load.took = start.elapsed();
        load.micros.sort_unstable();
        load
    }

    async fn call_repeatedly(
        self,
        client: RpcClient,
        next: Arc<AtomicU32>,
        count: u32,
    ) -> (Vec<u32>, BTreeMap<Outcome, Count>) {
        let (mut micros, mut outcomes) = (Vec::new(), BTreeMap::<Outcome, Count>::new());
        loop {
            let index = next.fetch_add(1, Relaxed);
            if index >= count {
                return (micros, outcomes);
            }
            let start = Instant::now();
            let answer = self.call(&client, index).await;
            micros.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
            let (outcome, message) = match answer {
                Ok(answer) => (Outcome::Answer(answer.summary(&self.prepared)), ""),
                Err(ref status) => (Outcome::Error(status.code() as i32), status.message()),
            };
            outcomes
                .entry(outcome)
                .or_insert_with(|| Count { calls: 0, message: message.to_owned() })
                .calls += 1;
        }
    }
}

impl Load {
    /// Whether any call ended with a gRPC error.
    pub(super) fn failed(&self) -> bool {
        self.outcomes.keys().any(|outcome| matches!(outcome, Outcome::Error(_)))
    }

    pub(super) fn calls_per_second(&self) -> f64 {
        self.micros.len() as f64 / self.took.as_secs_f64()
    }

    /// A percentile of the latency in milliseconds.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.micros.len() * percent).div_ceil(100).max(1);
        self.micros.get(rank - 1).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
    }
}

impl Outcome {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Answer(summary) => summary.clone().into_owned(),
            Self::Error(code) => status_name(*code).into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_latencies_of_calls() {
        let load = |micros: Vec<u32>| Load {
            took: Duration::from_secs(2),
            concurrency: 1,
            connections: 1,
            micros,
            outcomes: BTreeMap::new(),
        };
        let hundred = load((1..=100).map(|milli| milli * 1000).collect());
        let percentiles = [50, 90, 99, 100].map(|percent| hundred.percentile(percent));
        assert_eq!(percentiles, [50.0, 90.0, 99.0, 100.0]);
        assert_eq!(hundred.calls_per_second(), 50.0);
        let two = load(vec![1000, 9000]);
        assert_eq!([50, 51].map(|percent| two.percentile(percent)), [1.0, 9.0]);
    }
}
