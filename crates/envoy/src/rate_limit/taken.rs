//! Hits of quotas that are all or nothing, which are given back if another descriptor of their call is refused or fails.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use mixer_adapter_core::framework::{log_limit::LogLimit, log_text::log_text};
use mixer_adapter_engine::{
    Mixer, Snapshot,
    dispatch::{Allocation, Caller},
};
use prost::Message as _;
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::task::TaskTracker;

use super::calls::QuotaCalls;
use crate::{
    Services,
    counters::Counters,
    proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor,
    tenants::{SharedSpace, Space},
};

/// The size in bytes of what is being given back. Tenants share it.
const SPACE: usize = 16 << 20;

/// The size of a task without its descriptors.
const TASK: usize = 4 << 10;

/// The time to give back the hits of a call. The deadline of the call does not apply: it may be the reason.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The tasks that give hits back, which outlive their calls.
#[derive(Debug)]
pub(crate) struct GiveBacks {
    tasks: TaskTracker,
    space: Arc<SharedSpace>,
    runtime: Handle,
}

impl GiveBacks {
    pub(crate) fn new(runtime: &Handle) -> Self {
        Self { tasks: TaskTracker::new(), space: SharedSpace::new(SPACE), runtime: runtime.clone() }
    }

    /// Waits until everything has been given back.
    pub(crate) async fn flush(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}

/// Hits of a descriptor.
struct Hits {
    index: usize,
    descriptor: RateLimitDescriptor,
    amount: i64,
}

/// The hits that a call has taken so far. They are given back when this is dropped, as when the client goes away.
pub(super) struct TakenHits<'c> {
    services: &'c Services,
    snapshot: &'c Arc<Snapshot>,
    domain: &'c str,
    caller: &'c Caller,
    hits: Vec<Hits>,
    tenant: Arc<str>,
}

impl<'c> TakenHits<'c> {
    pub(super) fn new(
        services: &'c Services,
        snapshot: &'c Arc<Snapshot>,
        domain: &'c str,
        caller: &'c Caller,
    ) -> Self {
        Self { services, snapshot, domain, caller, hits: Vec::new(), tenant: Arc::default() }
    }

    /// Adds the hits of a descriptor.
    pub(super) fn add(&mut self, index: usize, descriptor: &RateLimitDescriptor, amount: i64, tenant: &str) {
        if amount > 0 {
            self.tenant = tenant.into();
            self.hits.push(Hits { index, descriptor: descriptor.clone(), amount });
        }
    }

    /// Keeps the hits.
    pub(super) fn keep(mut self) {
        self.hits.clear();
    }

    /// Gives the hits back, and returns the states of their limits by descriptor. At half the time that the caller still waits, those
    /// are omitted.
    pub(super) async fn give_back(mut self) -> Vec<(usize, Allocation)> {
        let Some(task) = self.spawn() else { return Vec::new() };
        let remaining = |deadline: Instant| deadline.saturating_duration_since(Instant::now()) / 2;
        let states = timeout(self.caller.deadline.map_or(TIMEOUT, remaining), task).await;
        states.map(Result::unwrap_or_default).unwrap_or_default()
    }

    fn spawn(&mut self) -> Option<JoinHandle<Vec<(usize, Allocation)>>> {
        let hits = std::mem::take(&mut self.hits);
        if hits.is_empty() {
            return None;
        }
        let Services { mixer, counters, ids, give_backs, .. } = self.services;
        let size = TASK + hits.iter().map(|hits| hits.descriptor.encoded_len()).sum::<usize>();
        let Some(space) = give_backs.space.take(&self.tenant, size) else {
            hits.iter().for_each(|hits| lose(counters, hits.amount, self.domain, &"too many at once"));
            return None;
        };
        let task = GiveBack {
            mixer: mixer.clone(),
            snapshot: self.snapshot.clone(),
            counters: counters.clone(),
            domain: self.domain.to_owned(),
            caller: Caller { deadline: Some(Instant::now() + TIMEOUT), ..self.caller.clone() },
            hits: hits.into_iter().map(|hits| (hits, ids.next())).collect(),
            _space: space,
        };
        Some(give_backs.tasks.spawn_on(task.run(), &give_backs.runtime))
    }
}

impl Drop for TakenHits<'_> {
    fn drop(&mut self) {
        self.spawn();
    }
}

struct GiveBack {
    mixer: Arc<Mixer>,
    snapshot: Arc<Snapshot>,
    counters: Arc<Counters>,
    domain: String,
    caller: Caller,
    /// With ids for the adapter.
    hits: Vec<(Hits, String)>,
    _space: Space,
}

impl GiveBack {
    async fn run(self) -> Vec<(usize, Allocation)> {
        let mut tenant = String::new();
        let mut calls = QuotaCalls::new(&self.mixer, &self.snapshot, &self.domain, &self.caller, &mut tenant);
        let mut states = Vec::with_capacity(self.hits.len());
        for (Hits { index, descriptor, amount }, dedup_id) in &self.hits {
            match calls.allocate(descriptor, -amount, false, dedup_id).await {
                Ok(allocation) => states.push((*index, allocation)),
                Err(error) => lose(&self.counters, *amount, &self.domain, &error),
            }
        }
        states
    }
}

/// Counts and logs hits that could not be given back.
fn lose(counters: &Counters, amount: i64, domain: &str, error: &dyn std::fmt::Display) {
    counters.hits_lost.fetch_add(amount.unsigned_abs(), Relaxed);
    static LIMIT: LogLimit = LogLimit::new();
    if let Some(suppressed) = LIMIT.admit() {
        let (domain, error) = (log_text(domain), log_text(error));
        tracing::warn!(domain, error, suppressed, "hits could not be given back");
    }
}
