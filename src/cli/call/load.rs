//! Many calls, and how they went.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tonic::Status;

use super::{answer::Answer, request::Prepared};
use crate::cli::remote::Remote;
use mixer_adapter_core::{
    framework::{dynamic::HandleRequest, status::status_name},
    proto::Any,
};

/// Calls that differ in their dedup_id only.
#[derive(Clone)]
pub(super) struct Calls {
    prepared: Arc<Prepared>,
    request: HandleRequest,
    dedup_id: DedupId,
    timeout: Option<Duration>,
}

#[derive(Clone)]
enum DedupId {
    Same(String),
    /// Counts up from a random start, as Mixer's do (docs/behaviour/adapter-calls.md#deduplication-ids).
    From(u64),
}

/// How many calls went how.
pub(super) struct Load {
    pub(super) took: Duration,
    pub(super) concurrency: u32,
    pub(super) connections: usize,
    /// Of each call, in order.
    pub(super) micros: Vec<u32>,
    pub(super) outcomes: BTreeMap<Kind, Count>,
}

/// What calls are counted by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Answer(Cow<'static, str>),
    Error(i32),
}

/// Calls of one kind.
#[derive(Clone, Default)]
pub(super) struct Count {
    pub(super) calls: u32,
    /// Of the first gRPC error of this kind.
    pub(super) message: String,
}

impl Calls {
    pub(super) fn new(
        prepared: Arc<Prepared>,
        adapter_config: Option<&Any>,
        dedup_id: Option<String>,
        timeout: Option<Duration>,
    ) -> Self {
        let template = &prepared.template;
        let instances = prepared.instances.clone();
        let request = template.request(instances, adapter_config, prepared.quota_request.as_ref());
        // The keys of std's hash maps are random; nothing here needs a generator of random numbers.
        let random = || RandomState::new().build_hasher().finish() >> 1;
        Self {
            request,
            dedup_id: dedup_id.map_or_else(|| DedupId::From(random()), DedupId::Same),
            timeout,
            prepared,
        }
    }

    pub(super) async fn call(&self, remote: &Remote, index: u32) -> Result<Answer, Status> {
        let request = match &self.dedup_id {
            DedupId::Same(id) => self.request.with_dedup_id(id),
            DedupId::From(start) => self.request.with_dedup_id(&(start + u64::from(index)).to_string()),
        };
        let answer = remote.call(&self.prepared.method, request, self.timeout).await?;
        Answer::decode(&self.prepared, answer)
    }

    /// So many calls, so many of them at a time, on these connections in turn.
    pub(super) async fn run(self, remotes: Vec<Remote>, count: u32, concurrency: u32) -> Load {
        let (start, next) = (Instant::now(), Arc::new(AtomicU32::new(0)));
        let connections = remotes.len();
        let mut callers = tokio::task::JoinSet::new();
        for (_, remote) in (0..concurrency.min(count)).zip(remotes.into_iter().cycle()) {
            callers.spawn(self.clone().call_again_and_again(remote, next.clone(), count));
        }
        let mut load = Load {
            took: Duration::ZERO,
            concurrency,
            connections,
            micros: Vec::new(),
            outcomes: BTreeMap::new(),
        };
        for (micros, outcomes) in callers.join_all().await {
            load.micros.extend(micros);
            for (kind, count) in outcomes {
                let known =
                    load.outcomes.entry(kind).or_insert_with(|| Count { calls: 0, message: count.message });
                known.calls += count.calls;
            }
        }
        load.took = start.elapsed();
        load.micros.sort_unstable();
        load
    }

    async fn call_again_and_again(
        self,
        remote: Remote,
        next: Arc<AtomicU32>,
        count: u32,
    ) -> (Vec<u32>, BTreeMap<Kind, Count>) {
        let (mut micros, mut outcomes) = (Vec::new(), BTreeMap::<Kind, Count>::new());
        loop {
            let index = next.fetch_add(1, Relaxed);
            if index >= count {
                return (micros, outcomes);
            }
            let start = Instant::now();
            let answer = self.call(&remote, index).await;
            micros.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
            let (kind, message) = match answer {
                Ok(answer) => (Kind::Answer(answer.summary(&self.prepared)), ""),
                Err(ref status) => (Kind::Error(status.code() as i32), status.message()),
            };
            outcomes.entry(kind).or_insert_with(|| Count { calls: 0, message: message.to_owned() }).calls +=
                1;
        }
    }
}

impl Load {
    /// Whether any call ended with a gRPC error.
    pub(super) fn failed(&self) -> bool {
        self.outcomes.keys().any(|kind| matches!(kind, Kind::Error(_)))
    }

    pub(super) fn calls_per_second(&self) -> f64 {
        self.micros.len() as f64 / self.took.as_secs_f64()
    }

    /// The latency within which so many of a hundred calls were answered, in milliseconds.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.micros.len() * percent).div_ceil(100).max(1);
        self.micros.get(rank - 1).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
    }
}

impl Kind {
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
